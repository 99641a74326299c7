"""A packet-level network simulator: what a network loses, and how long its flows take.

Event-driven, in integer nanoseconds; exact against Netbench where transports are the same.
"""

from jaxlossy.netsim.flows import Flows as Flows
from jaxlossy.netsim.flows import Paths as Paths
from jaxlossy.netsim.network import Network as Network
from jaxlossy.netsim.ports import Discipline as Discipline
from jaxlossy.netsim.simulation import Scenario as Scenario
from jaxlossy.netsim.simulation import simulate as simulate
from jaxlossy.netsim.simulation import simulate_many as simulate_many
from jaxlossy.netsim.transports import Transport as Transport
from jaxlossy.netsim.transports import bounded as bounded
from jaxlossy.netsim.transports import dctcp as dctcp
from jaxlossy.netsim.transports import gap as gap
from jaxlossy.netsim.transports import paced as paced
from jaxlossy.netsim.transports import round_robin as round_robin
from jaxlossy.netsim.transports import simple_dctcp as simple_dctcp
from jaxlossy.netsim.transports import simple_tcp as simple_tcp
