"""Cost, time and error of plans: one at a time in NumPy, thousands at once in JAX.

Our formulation of the model in arXiv 2102.03394, with K epochs, active L-nodes A and I-nodes S:

- samples: ``X(K) = sum_A X0 + (K + 1) / 2 * sum_S r``, the mean available over the epochs
- error: ``c0 + c1 X(K)^-beta + c2 (gap K)^-alpha``, the gap that of the Metropolis mixing matrix
- time of an epoch: ``E[max(max_A C, max_S D)] + tg * (largest degree)``, where
  ``C = work / |A| + Exp(mean strag)`` and ``D = dmin + Exp(mean dexp)``, all independent
- cost of an epoch: the sum over active nodes and links

Given everything but K, the best K is the least that meets ``eps_max``, so that is what is taken.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxlossy.errors import ConfigError
from jaxlossy.topology.epoch_time import expected_maximum, time_grid
from jaxlossy.topology.graphs import adjacency_of, spectral_gap
from jaxlossy.topology.model import Plan, Problem

SLACK = 1e-9  # of constraints, relative: what quadrature and rounding may get wrong


def evaluate(problem: Problem, plan: Plan) -> Plan:
    """The plan with its cost, error and time, and every I-node's L-node.

    Raises:
      ConfigError: the plan names nodes that do not exist or are not active, or no L-node.
    """
    nodes, sources, attached = _check(problem, plan)
    adjacency = adjacency_of(plan.edges, nodes)
    degree = adjacency.sum(axis=1).max()
    gap = float(spectral_gap(adjacency))
    shift = np.append(problem.work[nodes] / len(nodes), problem.dmin[sources])
    mean = np.append(problem.strag[nodes], problem.dexp[sources])
    epoch = expected_maximum(shift, mean) + problem.tg * degree
    links = sum(problem.cLL[a, b] for a, b in plan.edges)
    rate = problem.cL[nodes].sum() + problem.cI[sources].sum() + links
    rate += problem.cIL[sources, attached].sum()
    error = error_of(problem, gap, problem.X0[nodes].sum(), problem.r[sources].sum(), plan.epochs)
    return dataclasses.replace(
        plan,
        attached_to=tuple(map(int, attached)),
        cost=float(plan.epochs * rate),
        error=float(error),
        time=float(plan.epochs * epoch),
    )


def meets(problem: Problem, plan: Plan) -> bool:
    """Whether an evaluated plan meets error, time, K_max and uses only links that can be."""
    assert plan.cost is not None and plan.error is not None and plan.time is not None
    return (
        plan.error <= problem.eps_max * (1 + SLACK)
        and plan.time <= problem.T_max * (1 + SLACK)
        and 1 <= plan.epochs <= problem.K_max
        and math.isfinite(plan.cost)
    )


def error_of(problem: Problem, gap: Any, samples: Any, rate: Any, epochs: Any) -> Any:
    """The error after K epochs; inf where there are no samples or nothing mixes.

    Args:
      problem: the problem.
      gap: spectral gap.
      samples: from the start.
      rate: samples an epoch.
      epochs: K.
    """
    with np.errstate(divide="ignore", over="ignore"):
        return _error(np, problem, gap, samples, rate, np.asarray(epochs, np.float64))


def least_epochs(problem: Problem, gap: Any, samples: Any, rate: Any) -> np.ndarray:
    """The least K that meets ``eps_max``, K_max + 1 where none up to K_max does.

    Arguments as for ``error_of``, arrays of one shape after broadcasting.
    """
    gap, samples, rate = np.broadcast_arrays(gap, samples, rate)
    low, high = np.ones(gap.shape, np.int64), np.full(gap.shape, problem.K_max + 1)
    with np.errstate(divide="ignore", over="ignore"):
        for _ in range(problem.K_max.bit_length() + 1):
            middle = (low + high) // 2
            error = _error(np, problem, gap, samples, rate, middle.astype(np.float64))
            met = (error <= problem.eps_max) | (middle > problem.K_max)
            low, high = (
                np.where(met, low, np.minimum(middle + 1, high)),
                np.where(met, middle, high),
            )
    return high


def epochs_in_time(problem: Problem, epoch: Any) -> np.ndarray:
    """How many epochs of this length, in seconds, there is time for, at most K_max."""
    with np.errstate(divide="ignore"):
        most = np.floor(problem.T_max / np.asarray(epoch, np.float64) * (1 + SLACK))
    return np.minimum(most, problem.K_max).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Solution:
    """What an algorithm says about a problem.

    Attributes:
      plan: evaluated and meeting both constraints; None: it found none.
      least_error: the plan's, or the least that was reached at the deadline.
      reason: why there is no plan: which constraint binds.
    """

    plan: Plan | None
    least_error: float
    reason: str = ""


def solution(problem: Problem, nodes: Any, edges: Any, sources: Any) -> Solution:
    """The plan of these nodes and links with its least K.

    Args:
      problem: the problem.
      nodes: active L-nodes.
      edges: pairs of them.
      sources: active I-nodes, each at its cheapest active L-node.
    """
    nodes, sources = (tuple(int(node) for node in some) for some in (nodes, sources))
    gap = spectral_gap(adjacency_of(edges, nodes))
    samples, supplied = problem.X0[list(nodes)].sum(), problem.r[list(sources)].sum()
    epochs = int(least_epochs(problem, gap, samples, supplied))
    plan = evaluate(problem, Plan(nodes, tuple(edges), sources, epochs))
    if not meets(problem, plan):
        raise AssertionError(f"a plan that violates a constraint: {plan}")
    assert plan.error is not None
    return Solution(plan, plan.error)


def no_plan(problem: Problem, least_error: float) -> Solution:
    """What to say where no plan was found, with the least error reached at the deadline."""
    lowest = float(error_of(problem, 1.0, problem.X0.sum(), problem.r.sum(), problem.K_max))
    if math.isinf(least_error):
        reason = f"T_max: {problem.T_max:g} s is too short for one epoch"
    elif lowest > problem.eps_max:
        reason = (
            f"eps_max: {problem.eps_max:g} is below {lowest:.6g}, the error of everything active "
            f"and mixing at once after K_max={problem.K_max} epochs"
        )
    else:
        reason = (
            f"T_max: in {problem.T_max:g} s the error gets down to {least_error:.6g}, above "
            f"eps_max={problem.eps_max:g}"
        )
    return Solution(None, least_error, reason)


class Graphs(NamedTuple):
    """What a batch of graphs over active L-nodes contributes to plans.

    Attributes:
      learning: the active L-nodes.
      link_cost: of the links, an epoch.
      degree: the largest.
      gap: spectral gap.
    """

    learning: Bool[np.ndarray, "plan L"]
    link_cost: Float[np.ndarray, " plan"]
    degree: Int[np.ndarray, " plan"]
    gap: Float[np.ndarray, " plan"]


class Scores(NamedTuple):
    """A batch of plans, each with its least K that meets the error, or with all its time allows.

    Attributes:
      epochs: K; 0 where there is no time for one.
      cost: of all epochs.
      error: after them; inf where there are none.
      time: of all epochs, seconds.
      feasible: meets both constraints.
    """

    epochs: Int[np.ndarray, " plan"]
    cost: Float[np.ndarray, " plan"]
    error: Float[np.ndarray, " plan"]
    time: Float[np.ndarray, " plan"]
    feasible: Bool[np.ndarray, " plan"]


def describe(
    problem: Problem, learning: Bool[np.ndarray, "plan L"], adjacency: Bool[np.ndarray, "plan L L"]
) -> Graphs:
    """Link cost, degree and gap of any graphs; links of nodes that are not active are left out."""
    with jax.enable_x64(True):
        cost, degree, gap = _describe(problem.cLL, jnp.asarray(learning), jnp.asarray(adjacency))
    return Graphs(learning, np.asarray(cost), np.asarray(degree), np.asarray(gap))


class Scorer:
    """Scores plans of one problem in batches, in float64 whatever JAX's default is.

    >>> from jaxlossy.topology.instances import edge_network
    >>> problem, _ = edge_network(4, 6, seed=0)
    >>> graphs = Graphs(np.array([[True] * 4]), np.array([6.0]), np.array([3]), np.array([1.0]))
    >>> Scorer(problem)(graphs, np.ones((1, 6), bool)).epochs.shape
    (1,)
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        names = ("X0", "cL", "r", "cI", "cIL", "tg", "c0", "c1", "c2", "alpha", "beta")
        names += ("eps_max", "T_max")
        self._fields = {name: np.asarray(getattr(problem, name), np.float64) for name in names}
        self._fields["K_max"] = np.asarray(problem.K_max, np.int64)
        self._tables = functools.lru_cache(maxsize=64)(self._table)

    def __call__(self, graphs: Graphs, information: Bool[np.ndarray, "plan I"]) -> Scores:
        """Scores plans: a graph and a set of I-nodes, each at its cheapest active L-node.

        Args:
          graphs: one for each plan, with at least one L-node each.
          information: the active I-nodes.
        """
        counts = graphs.learning.sum(axis=1)
        result = Scores(*(np.zeros(len(counts), t) for t in (int, float, float, float, bool)))
        with jax.enable_x64(True):
            for count in np.unique(counts):  # a grid for each number of L-nodes
                some = np.flatnonzero(counts == count)
                # Few shapes, few programs: sets are filled up to a power of two.
                size = max(64, 1 << (len(some) - 1).bit_length())
                padded = np.resize(some, size)
                part = Graphs(*(a[padded] for a in graphs))
                scores = _score(self._fields, self._tables(int(count)), part, information[padded])
                for whole, piece in zip(result, scores, strict=True):
                    whole[some] = np.asarray(piece)[: len(some)]
        return result

    def _table(self, count: int) -> tuple[np.ndarray, ...]:
        grid = time_grid(self.problem, count)
        log = np.concatenate([grid.log_learning, grid.log_information])
        short = -len(grid.weights) % 256
        pad = ((0, 0), (0, short))
        return np.float64(grid.start), np.pad(grid.weights, pad[1]), np.pad(log, pad)


def _error(xp: Any, problem: Any, gap: Any, samples: Any, rate: Any, epochs: Any) -> Any:
    data = samples + (epochs + 1) / 2 * rate
    return (
        problem.c0
        + problem.c1 * xp.asarray(data) ** -problem.beta
        + problem.c2 * xp.asarray(gap * epochs) ** -problem.alpha
    )


@jax.jit
def _describe(cost, learning, adjacency):
    both = learning[:, :, None] & learning[:, None, :]
    adjacency = adjacency & both & ~jnp.eye(len(cost), dtype=bool)
    degree = adjacency.sum(axis=2)
    larger = jnp.maximum(degree[:, :, None], degree[:, None, :])
    weights = jnp.where(adjacency, 1 / (1.0 + larger), 0.0)
    diagonal = jnp.where(learning, 1 - weights.sum(axis=2), 0.0)
    count = learning.sum(axis=1)[:, None, None]
    # Without its eigenvalue 1, and with eigenvalue 0 for every node that is not active.
    mixing = weights + diagonal[:, :, None] * jnp.eye(len(cost)) - jnp.where(both, 1 / count, 0.0)
    gap = 1 - jnp.abs(jnp.linalg.eigvalsh(mixing)).max(axis=1)
    links = jnp.where(adjacency, cost, 0.0).sum(axis=(1, 2)) / 2
    return links, degree.max(axis=1), jnp.where(gap < 1e-12, 0.0, gap)


class _Fields(NamedTuple):
    """A problem's fields inside a compiled program."""

    X0: Any
    cL: Any
    r: Any
    cI: Any
    cIL: Any
    tg: Any
    c0: Any
    c1: Any
    c2: Any
    alpha: Any
    beta: Any
    eps_max: Any
    T_max: Any
    K_max: Any


@jax.jit
def _score(fields, table, graphs, information):
    problem = _Fields(**fields)
    start, weights, log = table
    active = jnp.concatenate([graphs.learning, information], axis=1).astype(log.dtype)
    learning, sources = active[:, : len(problem.X0)], active[:, len(problem.X0) :]
    epoch = start - jnp.expm1(active @ log) @ weights + problem.tg * graphs.degree
    links = jnp.where(graphs.learning[:, None, :], problem.cIL, jnp.inf).min(axis=2)
    prices = jnp.where(information, problem.cI + links, 0.0).sum(axis=1)
    rate = learning @ problem.cL + graphs.link_cost + prices
    samples, more = learning @ problem.X0, sources @ problem.r

    def error(epochs):
        return _error(jnp, problem, graphs.gap, samples, more, epochs.astype(log.dtype))

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        met = (error(middle) <= problem.eps_max) | (middle > problem.K_max)
        low = jnp.where(met, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(met, middle, high)

    low = jnp.ones(len(rate), jnp.int64)
    bounds = (low, jnp.full(len(rate), problem.K_max + 1))
    steps = jnp.ceil(jnp.log2(problem.K_max + 1.0)).astype(jnp.int64) + 1
    _, least = jax.lax.fori_loop(0, steps, halve, bounds)
    most = jnp.floor(problem.T_max / epoch * (1 + SLACK)).astype(jnp.int64)
    most = jnp.minimum(most, problem.K_max)
    epochs = jnp.minimum(least, most)
    cost, time = epochs * rate, epochs * epoch
    feasible = (least <= most) & jnp.isfinite(rate)
    return Scores(epochs, cost, jnp.where(epochs > 0, error(epochs), jnp.inf), time, feasible)


def _check(problem: Problem, plan: Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The plan's L-nodes, I-nodes and where these are attached."""
    for name, count in (("learning_nodes", "learning"), ("information_nodes", "information")):
        nodes, known = getattr(plan, name), range(getattr(problem, count))
        if len(set(nodes)) != len(nodes) or not all(node in known for node in nodes):
            raise ConfigError(name, nodes, f"different numbers of {len(known)} nodes, from 0")
    if not plan.learning_nodes:
        raise ConfigError("learning_nodes", (), "at least one")
    active = set(plan.learning_nodes)
    pairs = [frozenset(edge) for edge in plan.edges]
    if len(set(pairs)) != len(pairs) or any(len(p) != 2 or not p <= active for p in pairs):
        raise ConfigError("edges", plan.edges, "different pairs of active learning nodes")
    nodes = np.array(plan.learning_nodes, int)
    sources = np.array(plan.information_nodes, int)
    if plan.attached_to is None:
        attached = nodes[np.argmin(problem.cIL[np.ix_(sources, nodes)], axis=1)]
    else:
        attached = np.array(plan.attached_to, int)
        if len(attached) != len(sources) or not set(plan.attached_to) <= active:
            raise ConfigError(
                "attached_to", plan.attached_to, "an active learning node for each I-node"
            )
    if isinstance(plan.epochs, bool) or not isinstance(plan.epochs, int) or plan.epochs < 1:
        raise ConfigError("epochs", plan.epochs, "an integer >= 1")
    return nodes, sources, attached
