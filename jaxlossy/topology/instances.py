"""Instances made from a seed: nodes in the plane, costs and delays from their distances."""

import numpy as np
from jaxtyping import Float

from jaxlossy.topology.model import Problem


def edge_network(
    learning: int, information: int, *, seed: int
) -> tuple[Problem, Float[np.ndarray, "L+I 2"]]:
    """A problem like those of an edge network, with nodes at random in the unit square.

    Links cost in proportion to their length; delays of I-nodes grow with the distance to the
    nearest L-node. ``eps_max`` and ``T_max`` are a little more than a middling plan reaches.

    Args:
      learning: number of L-nodes.
      information: number of I-nodes.
      seed: of positions and everything else.

    Returns:
      The problem, and the positions of L-nodes, then I-nodes.

    >>> problem, positions = edge_network(5, 8, seed=0)
    >>> problem.learning, problem.information, positions.shape
    (5, 8, (13, 2))
    """
    rng = np.random.default_rng(seed)
    positions = rng.random((learning + information, 2))
    distance = np.linalg.norm(positions[:, None] - positions[:learning], axis=-1)
    return problem_on(distance[:learning], distance[learning:], rng=rng), positions


def problem_on(
    links: Float[np.ndarray, "L L"], supplies: Float[np.ndarray, "I L"], *, rng: np.random.Generator
) -> Problem:
    """A problem on a network of given distances, everything else about its nodes drawn at random.

    A link costs 0.1 + its distance an epoch; the least delay of an I-node is 0.2 s + 1 s times the
    distance to its nearest L-node + up to 0.3 s.

    Args:
      links: distances between L-nodes, in about the size of the network.
      supplies: distances of I-nodes to L-nodes, likewise.
      rng: of everything else.
    """
    information, learning = supplies.shape
    near = supplies.min(axis=1)
    return Problem(
        X0=rng.uniform(20, 100, learning),
        work=learning * rng.uniform(2, 6, learning),
        strag=rng.uniform(0.2, 0.6, learning),
        cL=rng.uniform(0.5, 2.0, learning),
        cLL=0.1 + links,
        r=rng.uniform(2, 20, information),
        dmin=0.2 + near + rng.uniform(0, 0.3, information),
        dexp=rng.uniform(0.2, 0.8, information),
        cI=rng.uniform(0.3, 2.0, information),
        cIL=0.1 + supplies,
        tg=0.1,
        c0=0.02,
        c1=1.0,
        c2=0.3,
        alpha=1.0,
        beta=0.5,
        eps_max=0.06,
        T_max=300.0,
        K_max=400,
    )
