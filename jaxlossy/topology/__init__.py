"""DoubleClimb: the logical topology around a learning task, chosen at least cost."""

from jaxlossy.topology.model import Instance as Instance
from jaxlossy.topology.model import Plan as Plan
from jaxlossy.topology.model import Problem as Problem
from jaxlossy.topology.model import load as load
from jaxlossy.topology.model import save as save
