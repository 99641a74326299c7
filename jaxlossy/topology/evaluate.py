"""Cost, time and error of a plan, and of all numbers of epochs the best.

Our formulation of the model in arXiv 2102.03394, with K epochs, active L-nodes A and I-nodes S:

- samples: ``X(K) = sum_A X0 + (K + 1) / 2 * sum_S r``, the mean available over the epochs
- error: ``c0 + c1 X(K)^-beta + c2 (gap K)^-alpha``, the gap that of the Metropolis mixing matrix
- time of an epoch: ``E[max(max_A C, max_S D)] + tg * (largest degree)``, where
  ``C = work / |A| + Exp(mean strag)`` and ``D = dmin + Exp(mean dexp)``, all independent
- cost of an epoch: the sum over active nodes and links

Given everything but K, the best K is the least that meets ``eps_max``, so that is what is taken.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.topology.epoch_time import expected_maximum
from jaxlossy.topology.graphs import adjacency_of, spectral_gap
from jaxlossy.topology.model import Plan, Problem

SLACK = 1e-9  # of constraints, relative: what quadrature may get wrong
ROUNDING = 1e-12  # what sums in another order may


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
    assert plan.cost is not None
    assert plan.error is not None
    assert plan.time is not None
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
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return error_formula(np, problem, gap, samples, rate, np.asarray(epochs, np.float64))


def least_epochs(problem: Problem, gap: Any, samples: Any, rate: Any) -> np.ndarray:
    """The least K that meets ``eps_max``, K_max + 1 where none up to K_max does.

    Arguments as for ``error_of``, arrays of one shape after broadcasting.
    """
    gap, samples, rate = np.broadcast_arrays(gap, samples, rate)
    low, high = np.ones(gap.shape, np.int64), np.full(gap.shape, problem.K_max + 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(problem.K_max.bit_length() + 1):
            middle = (low + high) // 2
            error = error_formula(np, problem, gap, samples, rate, middle.astype(np.float64))
            met = (error <= problem.eps_max * (1 + ROUNDING)) | (middle > problem.K_max)
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


def with_least_epochs(
    problem: Problem,
    nodes: Any,
    edges: Any,
    sources: Any,
    attached_to: Any = None,
) -> tuple[Plan | None, float]:
    """The plan of these nodes and links with its least K, evaluated, and its error.

    Where no K meets error and deadline: None, and the error at the deadline.

    Args:
      problem: the problem.
      nodes: active L-nodes.
      edges: pairs of them.
      sources: active I-nodes.
      attached_to: as for a plan.
    """
    nodes, sources = (tuple(int(node) for node in some) for some in (nodes, sources))
    attached = None if attached_to is None else tuple(int(node) for node in attached_to)
    once = evaluate(problem, Plan(nodes, tuple(edges), sources, 1, attached))
    assert once.time is not None
    gap = spectral_gap(adjacency_of(edges, nodes))
    samples, supplied = problem.X0[list(nodes)].sum(), problem.r[list(sources)].sum()
    epochs = int(least_epochs(problem, gap, samples, supplied))
    most = int(epochs_in_time(problem, once.time))
    if epochs > most:
        error = error_of(problem, gap, samples, supplied, max(most, 1))
        return None, float(error) if most else math.inf
    assert once.cost is not None
    error = float(error_of(problem, gap, samples, supplied, epochs))
    plan = dataclasses.replace(
        once, epochs=epochs, cost=epochs * once.cost, error=error, time=epochs * once.time
    )
    return (plan, error) if meets(problem, plan) else (None, math.inf)


def solution(problem: Problem, nodes: Any, edges: Any, sources: Any) -> Solution:
    """A solution known to be one, each I-node at its cheapest L-node; as ``with_least_epochs``."""
    plan, error = with_least_epochs(problem, nodes, edges, sources)
    if plan is None:
        raise AssertionError(f"no plan after all: {nodes}, {edges}, {sources}")
    return Solution(plan, error)


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


def error_formula(xp: Any, problem: Any, gap: Any, samples: Any, rate: Any, epochs: Any) -> Any:
    """The error, in NumPy or JAX (``xp``), from float64 arrays."""
    data, mixing = samples + (epochs + 1) / 2 * rate, gap * epochs
    # Powers as XLA computes them fast. What c1 = 0 makes of no samples is no error.
    estimation = xp.where(problem.c1 > 0, problem.c1 * xp.exp(-problem.beta * xp.log(data)), 0.0)
    optimisation = problem.c2 * xp.exp(-problem.alpha * xp.log(mixing))
    return problem.c0 + estimation + xp.where(mixing > 0, optimisation, xp.inf)


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
