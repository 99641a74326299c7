"""The I side of DoubleClimb: which information nodes, for given L-nodes and graphs over them.

``greedy`` is the plain climb; ``improve`` and ``lower_error`` refine it by adding, dropping and
exchanging nodes.
``Cover`` bounds from below what any set can cost, and has a first set for every number of epochs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxlossy.topology.epoch_time import TimeGrid
from jaxlossy.topology.evaluate import ROUNDING, SLACK, epochs_in_time, error_of
from jaxlossy.topology.ladder import Learners
from jaxlossy.topology.model import Problem


class Choice(NamedTuple):
    """I-nodes for one rung.

    Attributes:
      information: which.
      cost: of the plan with its least K; inf if there is none.
      error: of the plan, or the least found at the deadline.
    """

    information: Bool[np.ndarray, " I"]
    cost: float
    error: float


class Cover(NamedTuple):
    """What to expect of each rung, from covering the samples that K epochs need at least cost.

    Attributes:
      need: samples an epoch that I-nodes have to supply for K = 1, 2, ...; falls with K.
      bound: no plan costs less; inf where there is surely none.
      first: how many I-nodes, in ``order``, make the cheapest plan of that kind; -1: there is none.
      order: I-nodes by cost a sample.
    """

    need: Float[np.ndarray, "rung K"]
    bound: Float[np.ndarray, " rung"]
    first: Int[np.ndarray, " rung"]
    order: Int[np.ndarray, " I"]


def needed(
    problem: Problem, gap: Float[np.ndarray, " rung"], samples: float, most: int
) -> Float[np.ndarray, "rung K"]:
    """Samples an epoch that K = 1, 2, ... epochs need from I-nodes, inf if no number will do."""
    epochs = np.arange(1, most + 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mixing = problem.c2 * (gap[:, None] * epochs) ** -problem.alpha
        rest = problem.eps_max - problem.c0 - mixing
        total = (np.maximum(rest, 0) / problem.c1) ** (-1 / problem.beta)
        total = np.where(rest >= 0, np.where(problem.c1 == 0, 0.0, total), np.inf)
        return np.maximum(total - samples, 0) * 2 / (epochs + 1)


def cover(problem: Problem, grid: TimeGrid, side: Learners) -> Cover:
    """Bounds and first sets for all rungs at once.

    For fixed K the error asks for so many samples an epoch: a knapsack to be covered. Its
    fractional solution bounds the cost, and its nodes, the last one whole, are a first set.
    """
    alone = float(grid.expected_maximum(side.log_product))
    limit = epochs_in_time(problem, alone + problem.tg * side.degree)
    most = int(limit.max(initial=0))
    need = needed(problem, side.gap, side.samples, most)
    usable = np.flatnonzero((problem.r > 0) & np.isfinite(side.prices))
    order = usable[np.argsort(side.prices[usable] / problem.r[usable], kind="stable")]
    rates = np.append(0.0, np.cumsum(problem.r[order]))
    prices = np.append(0.0, np.cumsum(side.prices[order]))
    epochs = np.arange(1, most + 1)
    fixed = side.rate + side.link_cost[:, None]
    inside = (need <= rates[-1]) & (epochs <= limit[:, None])
    with np.errstate(invalid="ignore"):
        fraction = epochs * (fixed + np.interp(need, rates, prices))
    bounds = np.where(inside, fraction, np.inf)
    first = np.full(len(side.gap), -1)
    if inside.any():
        count = np.where(inside, np.searchsorted(rates, need), 0)
        some = int(count.max()) + 1
        logs = np.cumsum(grid.log_information[order[: some - 1]], axis=0)
        logs = np.concatenate([np.zeros((1, len(grid.weights))), logs])
        times = grid.expected_maximum(side.log_product + logs)
        epoch = times[count] + problem.tg * side.degree[:, None]
        in_time = epochs * epoch <= problem.T_max * (1 + SLACK)
        costs = np.where(inside & in_time, epochs * (fixed + prices[count]), np.inf)
        best = costs.argmin(axis=1)
        rows = np.arange(len(best))
        first = np.where(np.isfinite(costs[rows, best]), count[rows, best], -1)
    return Cover(need, bounds.min(axis=1, initial=np.inf), first, order)


def greedy(problem: Problem, grid: TimeGrid, side: Learners, rung: int) -> Choice:
    """Adds the I-node that lowers the error at the deadline most for its cost, until a plan exists.

    What an error below ``eps_max`` gains beyond it does not count.
    """
    gap, degree = float(side.gap[rung]), int(side.degree[rung])
    chosen = np.zeros(problem.information, bool)
    log_product, supplied = side.log_product, 0.0
    most = epochs_in_time(problem, grid.expected_maximum(log_product) + problem.tg * degree)
    error = float(_deadline_error(problem, gap, side.samples, 0.0, most))
    price = np.maximum(side.prices, 1e-12)
    while error > problem.eps_max:
        ready = grid.information @ (grid.weights * np.exp(log_product))
        epoch = grid.start + grid.weights.sum() - ready + problem.tg * degree
        most = epochs_in_time(problem, epoch)
        errors = _deadline_error(problem, gap, side.samples, supplied + problem.r, most)
        before = min(error, 1e300)  # of no epoch or no samples it is inf
        gain = np.minimum(before - errors, before - problem.eps_max) / price
        gain[chosen | ~np.isfinite(price)] = -np.inf
        node = int(np.argmax(gain)) if len(gain) else 0
        if not len(gain) or not gain[node] > 0:
            return Choice(chosen, np.inf, error)
        chosen[node] = True
        log_product = log_product + grid.log_information[node]
        supplied += problem.r[node]
        error = float(errors[node])
    return Choice(chosen, 0.0, error)


def priced(problem: Problem, side: Learners, rung: int, need: np.ndarray, choice: np.ndarray):
    """The choice of these I-nodes with its least K, which is known to be within the deadline."""
    supplied = problem.r[choice].sum()
    epochs = 1 + int(np.searchsorted(-need, -supplied * (1 + ROUNDING)))
    rate = side.rate + side.link_cost[rung] + side.prices[choice].sum()
    error = error_of(problem, side.gap[rung], side.samples, supplied, epochs)
    return Choice(choice, float(epochs * rate), float(error))


def improve(
    problem: Problem,
    grid: TimeGrid,
    side: Learners,
    rung: int,
    need: Float[np.ndarray, " K"],
    choice: Choice,
) -> Choice:
    """While the cost falls: adds, drops or exchanges one I-node, whatever lowers it most in time.

    Args:
      problem: the problem.
      grid: for the number of L-nodes.
      side: the L-nodes.
      rung: their graph.
      need: of this rung, from ``Cover``.
      choice: a feasible one.
    """
    fixed = side.rate + side.link_cost[rung]
    while True:
        moves = _Moves(problem, grid, side, choice.information)
        epochs = 1 + np.searchsorted(-need, -moves.after(problem.r) * (1 + ROUNDING))
        costs = epochs * (fixed + moves.after(side.prices))
        better = (epochs <= len(need)) & (costs < choice.cost * (1 - ROUNDING))
        rows = np.flatnonzero(better.any(axis=1))
        if not len(rows):
            return choice
        epoch = moves.expected_maximum(rows) + problem.tg * side.degree[rung]
        better[rows] &= epochs[rows] * epoch <= problem.T_max * (1 + SLACK)
        if not better.any():
            return choice
        best = int(np.argmin(np.where(better, costs, np.inf)))
        choice = priced(problem, side, rung, need, moves.made(best))


def lower_error(
    problem: Problem, grid: TimeGrid, side: Learners, rung: int, choice: Choice
) -> Choice:
    """While the error at the deadline falls, and until it is low enough: one such move each time.

    Where greedy additions end, which take what is cheap first, others may still get to a plan.
    """
    gap, degree = float(side.gap[rung]), int(side.degree[rung])
    while choice.error > problem.eps_max:
        moves = _Moves(problem, grid, side, choice.information)
        rows = np.arange(1 + len(moves.outs))
        most = epochs_in_time(problem, moves.expected_maximum(rows) + problem.tg * degree)
        errors = _deadline_error(problem, gap, side.samples, moves.after(problem.r), most)
        best = int(np.argmin(errors))
        if not errors.flat[best] < choice.error * (1 - ROUNDING):
            return choice
        choice = Choice(moves.made(best), np.inf, float(errors.flat[best]))
    return choice._replace(cost=0.0)


class _Moves:
    """All sets of I-nodes that are one addition, drop or exchange away from one, as a matrix.

    Rows take a node out, columns put one in; the first row and the last column do not.
    """

    def __init__(self, problem: Problem, grid: TimeGrid, side: Learners, inside: np.ndarray):
        self.grid, self.side, self.inside = grid, side, inside
        self.outs = np.flatnonzero(inside)
        self.ins = np.flatnonzero(~inside & np.isfinite(side.prices))

    def after(self, values: Float[np.ndarray, " I"]) -> Float[np.ndarray, "out in"]:
        """The sum of these values over each set."""
        less = np.append(0.0, values[self.outs])
        return values[self.outs].sum() - less[:, None] + np.append(values[self.ins], 0.0)

    def expected_maximum(self, rows: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some in"]:
        """E[max] of the sets in these rows: one matrix product."""
        grid, taken = self.grid, self.grid.log_information[self.outs]
        log = self.side.log_product + taken.sum(axis=0)
        without = np.concatenate([np.zeros((1, len(log))), taken])[rows]
        columns = np.concatenate([grid.information[self.ins], np.ones((1, len(log)))])
        ready = (np.exp(log - without) * grid.weights) @ columns.T
        return grid.start + grid.weights.sum() - ready

    def made(self, index: int) -> Bool[np.ndarray, " I"]:
        """The set at this place of the matrix."""
        row, column = divmod(index, len(self.ins) + 1)
        chosen = self.inside.copy()
        if row > 0:
            chosen[self.outs[row - 1]] = False
        if column < len(self.ins):
            chosen[self.ins[column]] = True
        return chosen


def _deadline_error(problem: Problem, gap, samples, supplied, epochs) -> np.ndarray:
    """The error after all epochs that there is time for; inf where there is none."""
    error = error_of(problem, gap, samples, supplied, np.maximum(epochs, 1))
    return np.where(epochs > 0, error, np.inf)
