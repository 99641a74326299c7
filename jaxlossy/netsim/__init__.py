"""A packet-level network simulator: what a network loses, and how long its flows take.

Event-driven, in integer nanoseconds; exact against Netbench where transports are the same.
"""

from jaxlossy.netsim.flows import Flows as Flows
from jaxlossy.netsim.flows import Paths as Paths
from jaxlossy.netsim.learning import Exchange as Exchange
from jaxlossy.netsim.learning import LearningTraffic as LearningTraffic
from jaxlossy.netsim.learning import compute_times as compute_times
from jaxlossy.netsim.learning import exchange_of as exchange_of
from jaxlossy.netsim.learning import learning_traffic as learning_traffic
from jaxlossy.netsim.learning import open_loop as open_loop
from jaxlossy.netsim.network import Network as Network
from jaxlossy.netsim.outcome import iteration_times as iteration_times
from jaxlossy.netsim.outcome import phase_times as phase_times
from jaxlossy.netsim.outcome import to_trace as to_trace
from jaxlossy.netsim.ports import Discipline as Discipline
from jaxlossy.netsim.routing import given_paths as given_paths
from jaxlossy.netsim.routing import shortest_paths as shortest_paths
from jaxlossy.netsim.simulation import Scenario as Scenario
from jaxlossy.netsim.simulation import simulate as simulate
from jaxlossy.netsim.simulation import simulate_many as simulate_many
from jaxlossy.netsim.topologies import dumbbell as dumbbell
from jaxlossy.netsim.topologies import fat_tree as fat_tree
from jaxlossy.netsim.topologies import from_edges as from_edges
from jaxlossy.netsim.topologies import leaf_spine as leaf_spine
from jaxlossy.netsim.topologies import star as star
from jaxlossy.netsim.traffic import DATA_MINING as DATA_MINING
from jaxlossy.netsim.traffic import WEB_SEARCH as WEB_SEARCH
from jaxlossy.netsim.traffic import Messages as Messages
from jaxlossy.netsim.traffic import Sizes as Sizes
from jaxlossy.netsim.traffic import make_flows as make_flows
from jaxlossy.netsim.traffic import poisson as poisson
from jaxlossy.netsim.transports import Transport as Transport
from jaxlossy.netsim.transports import bounded as bounded
from jaxlossy.netsim.transports import dctcp as dctcp
from jaxlossy.netsim.transports import gap as gap
from jaxlossy.netsim.transports import paced as paced
from jaxlossy.netsim.transports import round_robin as round_robin
from jaxlossy.netsim.transports import simple_dctcp as simple_dctcp
from jaxlossy.netsim.transports import simple_tcp as simple_tcp
