"""The optimum of small problems, by two ways that share the model and nothing else.

``optimum`` looks at every set of L-nodes, every connected graph over it, every set of I-nodes and
every number of epochs. ``milp_optimum`` fixes L-nodes, graph and K, and leaves the choice of
I-nodes to a mixed-integer linear program.

What is linear there, for fixed graph and K: the cost; and the error, which asks for a sum of rates:
``sum r_i x_i >= need``. The time is not: E[max] is a monotone set function of the I-nodes. So the
program is solved without it. If its solution takes too long, so does every set that contains it,
or any subset of it that takes too long already: the cut ``sum_{i in subset} x_i <= |subset| - 1``
loses no plan, and the program is solved again. There are finitely many subsets.
"""

import functools
import heapq
import itertools
import math

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import Bounds, LinearConstraint, milp

from jaxlossy.errors import ConfigError
from jaxlossy.topology.epoch_time import TimeGrid, time_grid
from jaxlossy.topology.evaluate import (
    SLACK,
    Solution,
    epochs_in_time,
    error_of,
    least_epochs,
    no_plan,
    solution,
)
from jaxlossy.topology.graphs import edges_of, spectral_gap
from jaxlossy.topology.model import Problem

MOST_LEARNING, MOST_INFORMATION = 6, 16


def optimum(problem: Problem) -> Solution:
    """The cheapest of all plans.

    Of the graphs over the same L-nodes only those are looked at that no other beats in cost, gap
    and degree at once.

    Raises:
      ConfigError: too many nodes for a search of everything.
    """
    _refuse_large(problem)
    sets = np.arange(2**problem.information)[:, None] >> np.arange(problem.information) & 1 == 1
    supplied = sets @ problem.r
    cheapest, least, plan = math.inf, math.inf, None
    for nodes, grid in _subsets(problem):
        log = grid.log_learning[nodes].sum(axis=0)
        logs = sets.astype(float) @ grid.log_information
        times = np.concatenate(  # in pieces, since a grid has many points
            [grid.expected_maximum(log + piece) for piece in np.array_split(logs, 64)]
        )
        fixed, samples = problem.cL[nodes].sum(), problem.X0[nodes].sum()
        links = problem.cI + problem.cIL[:, nodes].min(axis=1)
        prices = np.where(sets, links, 0.0).sum(axis=1)
        for graph, cost, gap, degree in _graphs(problem, nodes):
            most = epochs_in_time(problem, times + problem.tg * degree)
            epochs = least_epochs(problem, gap, samples, supplied)
            costs = np.where(epochs <= most, epochs * (fixed + cost + prices), np.inf)
            index = int(np.argmin(costs))
            if costs[index] < cheapest:
                cheapest, plan = costs[index], (nodes, graph, sets[index])
            if math.isinf(cheapest):
                errors = error_of(problem, gap, samples, supplied, np.maximum(most, 1))
                least = min(least, float(np.where(most > 0, errors, np.inf).min()))
    if plan is None:
        return no_plan(problem, least)
    nodes, graph, chosen = plan
    return solution(problem, nodes, edges_of(graph, nodes), np.flatnonzero(chosen))


def milp_optimum(problem: Problem) -> Solution:
    """The same optimum from mixed-integer programs, the most promising (L-nodes, graph, K) first.

    A linear relaxation of each bounds its cost; those that can not be better are not solved. No
    least error is known where there is no plan; it is then inf.

    Raises:
      ConfigError: too many L-nodes for a search of all graphs over them.
    """
    if problem.learning > MOST_LEARNING:
        raise ConfigError("X0", f"{problem.learning} L-nodes", f"at most {MOST_LEARNING}")
    tasks = []
    for nodes, grid in _subsets(problem):
        links = problem.cI + problem.cIL[:, nodes].min(axis=1)
        alone = float(grid.expected_maximum(grid.log_learning[nodes].sum(axis=0)))
        for graph, cost, gap, degree in _graphs(problem, nodes):
            rate = problem.cL[nodes].sum() + cost
            for epochs in range(1, int(epochs_in_time(problem, alone + problem.tg * degree)) + 1):
                need = _need(problem, gap, problem.X0[nodes].sum(), epochs)
                bound = epochs * (rate + _fractional(problem.r, links, need))
                if math.isfinite(bound):
                    entry = (bound, len(tasks), nodes, graph, rate, degree, epochs, need, grid)
                    tasks.append(entry)
    heapq.heapify(tasks)
    cheapest, plan = math.inf, None
    while tasks and tasks[0][0] < cheapest * (1 - 1e-9):
        _, _, nodes, graph, rate, degree, epochs, need, grid = heapq.heappop(tasks)
        slack = problem.T_max * (1 + SLACK) / epochs - problem.tg * degree
        chosen = milp_information(problem, grid, nodes, need, slack)
        if chosen is not None:
            links = problem.cI + problem.cIL[:, nodes].min(axis=1)
            cost = epochs * (rate + links[chosen].sum())
            if cost < cheapest:
                cheapest, plan = cost, (nodes, graph, chosen)
    if plan is None:
        return no_plan(problem, math.inf)
    nodes, graph, chosen = plan
    return solution(problem, nodes, edges_of(graph, nodes), np.flatnonzero(chosen))


def milp_information(
    problem: Problem, grid: TimeGrid, nodes: np.ndarray, need: float, longest: float
) -> Bool[np.ndarray, " I"] | None:
    """The cheapest I-nodes that supply enough in time, None where there are none.

    Args:
      problem: the problem.
      grid: for the number of L-nodes.
      nodes: the active L-nodes.
      need: samples an epoch.
      longest: seconds that the slowest node may take in an epoch, on average.
    """
    log = grid.log_learning[nodes].sum(axis=0)

    def late(chosen):
        log_product = log + grid.log_information[chosen].sum(axis=0)
        return float(grid.expected_maximum(log_product)) > longest

    if late(np.zeros(problem.information, bool)):
        return None
    if need <= 0:
        return np.zeros(problem.information, bool)
    prices = problem.cI + problem.cIL[:, nodes].min(axis=1)
    reachable = np.isfinite(prices)
    cuts = [LinearConstraint(problem.r[None], lb=need)]
    cuts.append(LinearConstraint((~reachable).astype(float)[None], ub=0.0))
    while True:
        result = milp(
            np.where(reachable, prices, 0.0),
            integrality=np.ones(problem.information),
            bounds=Bounds(0, 1),
            constraints=cuts,
            options={"mip_rel_gap": 0.0},
        )
        if result.x is None:
            return None
        chosen = result.x > 0.5
        if not late(chosen):
            return chosen
        for node in np.flatnonzero(chosen):  # the fewer nodes in a cut, the more it cuts
            chosen[node] = False
            chosen[node] = not late(chosen)
        most = float(chosen.sum()) - 1
        cuts.append(LinearConstraint(chosen.astype(float)[None], ub=most))


def _refuse_large(problem: Problem) -> None:
    if problem.learning > MOST_LEARNING:
        raise ConfigError("X0", f"{problem.learning} L-nodes", f"at most {MOST_LEARNING}")
    if problem.information > MOST_INFORMATION:
        raise ConfigError("r", f"{problem.information} I-nodes", f"at most {MOST_INFORMATION}")


def _subsets(problem: Problem):
    """Every set of L-nodes, and the grid for as many."""
    for count in range(1, problem.learning + 1):
        grid = time_grid(problem, count)
        for nodes in itertools.combinations(range(problem.learning), count):
            yield np.array(nodes), grid


@functools.cache
def _connected(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every connected graph of this many nodes, with gaps and degrees."""
    pairs = np.array(list(itertools.combinations(range(count), 2)), int).reshape(-1, 2)
    present = np.array(list(itertools.product((False, True), repeat=len(pairs))), bool)
    graphs = np.zeros((len(present), count, count), bool)
    graphs[:, pairs[:, 0], pairs[:, 1]] = present
    graphs |= graphs.transpose(0, 2, 1)
    gaps = spectral_gap(graphs)
    kept = gaps > 0
    return graphs[kept], gaps[kept], graphs[kept].sum(axis=2).max(axis=1)


def _graphs(problem: Problem, nodes: np.ndarray):
    """Connected graphs over these nodes that no other beats: adjacency, cost, gap and degree."""
    graphs, gaps, degrees = _connected(len(nodes))
    links = problem.cLL[np.ix_(nodes, nodes)]
    costs = np.where(graphs, links, 0.0).sum(axis=(1, 2)) / 2
    kept: list[int] = []
    for index in np.lexsort((degrees, -gaps, costs)):
        beaten = any(gaps[k] >= gaps[index] and degrees[k] <= degrees[index] for k in kept)
        if not beaten and math.isfinite(costs[index]):
            kept.append(int(index))
    for k in kept:
        yield graphs[k], float(costs[k]), float(gaps[k]), int(degrees[k])


def _need(problem: Problem, gap: float, samples: float, epochs: int) -> float:
    """Samples an epoch that K epochs need from I-nodes, inf if no number will do."""
    rest = problem.eps_max - problem.c0 - problem.c2 * (gap * epochs) ** -problem.alpha
    if problem.c1 == 0:
        return 0.0 if rest >= 0 else math.inf
    if rest <= 0:
        return math.inf
    total = (rest / problem.c1) ** (-1 / problem.beta)
    return max(total - samples, 0.0) * 2 / (epochs + 1)


def _fractional(
    rates: Float[np.ndarray, " I"], prices: Float[np.ndarray, " I"], need: float
) -> float:
    """The least cost of supplying so much if parts of nodes could be had."""
    usable = np.flatnonzero((rates > 0) & np.isfinite(prices))
    order = usable[np.argsort(prices[usable] / rates[usable])]
    total = np.append(0.0, np.cumsum(rates[order]))
    if need > total[-1]:
        return math.inf
    return float(np.interp(need, total, np.append(0.0, np.cumsum(prices[order]))))
