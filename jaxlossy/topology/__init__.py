"""DoubleClimb: the logical topology around a learning task, chosen at least cost.

>>> from jaxlossy import topology
>>> problem, positions = topology.edge_network(5, 8, seed=0)
>>> plan = topology.solve(problem).plan
>>> plan.error <= problem.eps_max, plan.time <= problem.T_max
(True, True)
"""

from jaxlossy.topology.climb import doubleclimb as doubleclimb
from jaxlossy.topology.evaluate import Solution as Solution
from jaxlossy.topology.evaluate import evaluate as evaluate
from jaxlossy.topology.evaluate import meets as meets
from jaxlossy.topology.instances import edge_network as edge_network
from jaxlossy.topology.model import Instance as Instance
from jaxlossy.topology.model import Plan as Plan
from jaxlossy.topology.model import Problem as Problem
from jaxlossy.topology.model import load as load
from jaxlossy.topology.model import save as save
from jaxlossy.topology.scoring import Scorer as Scorer
from jaxlossy.topology.solve import ALGORITHMS as ALGORITHMS
from jaxlossy.topology.solve import solve as solve
from jaxlossy.topology.solve import table as table
