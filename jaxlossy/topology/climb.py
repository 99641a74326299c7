"""DoubleClimb: grow the set of L-nodes; over each set climb graphs, over each graph I-nodes.

After Malandrino, Chiasserini, Molner, de la Oliva (arXiv 2102.03394); the steps are our formulation
of it. The plain form stops at the first set of I-nodes that makes a plan and is shaped like the
paper's; to refine adds more graphs, and adds, drops and exchanges I-nodes while that helps.

With few L-nodes every one is a start and every one a candidate to grow by. With more, the starts
are the best single L-nodes and the candidates those that an estimate favours, so that the time
grows no faster than with the cube of the number of nodes. A graph is passed over where a lower
bound says that no plan on it can be cheaper than one at hand, which loses nothing.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from jaxlossy.topology.climb_information import (
    Choice,
    Cover,
    cover,
    greedy,
    improve,
    lower_error,
    needed,
    priced,
)
from jaxlossy.topology.epoch_time import TimeGrid, time_grid
from jaxlossy.topology.evaluate import Solution, epochs_in_time, error_of, no_plan, solution
from jaxlossy.topology.graphs import circulant_gap, degrees, mixing_offsets
from jaxlossy.topology.ladder import Learners, learners
from jaxlossy.topology.model import Problem

FEW = 8  # L-nodes up to which everything is tried
STARTS = 4  # beyond: first L-nodes,
CANDIDATES = 6  # L-nodes to grow by,
SAMPLED = 12  # degrees for the estimate
GREEDY = 6  # climbs from nothing on graphs of one set of L-nodes; of many sets: FALLBACK
FALLBACK = 2
PATIENCE = 6  # L-nodes, besides an eighth of the set, to add without a cheaper plan


class Found(NamedTuple):
    """The best plan over one set of L-nodes.

    Attributes:
      side: the L-nodes.
      rung: which graph.
      choice: the I-nodes.
    """

    side: Learners
    rung: int
    choice: Choice

    @property
    def merit(self) -> tuple[float, float]:
        """Less is better: the cost, and the error where there is no plan."""
        cost = self.choice.cost
        return cost, self.choice.error if math.isinf(cost) else 0.0


def doubleclimb(problem: Problem, *, refine: bool = True) -> Solution:
    """Solves the problem.

    Args:
      problem: the problem.
      refine: the refined form.

    >>> from jaxlossy.topology.instances import edge_network
    >>> problem, _ = edge_network(4, 6, seed=0)
    >>> plain, refined = (doubleclimb(problem, refine=refine).plan for refine in (False, True))
    >>> refined.cost <= plain.cost, refined.error <= problem.eps_max
    (True, True)
    """
    grid = time_grid(problem, 1)
    singles = [
        best_of(problem, grid, [np.array([node])], refine) for node in range(problem.learning)
    ]
    singles.sort(key=lambda found: found.merit)
    paths = singles if problem.learning <= FEW else singles[:STARTS]
    best, improved = paths[0], 1
    for count in range(2, problem.learning + 1):
        grid, grown = time_grid(problem, count), {}
        for path in paths:
            if _superset_bound(problem, path.side) >= best.choice.cost:
                continue
            sets = _grown(problem, grid, path)
            found = best_of(problem, grid, sets, refine, path.choice.information)
            grown[tuple(found.side.nodes)] = found
        paths = list(grown.values())
        cheapest = min(paths, key=lambda found: found.merit, default=best)
        if cheapest.merit < best.merit:
            best, improved = cheapest, count
        if not paths or (problem.learning > FEW and count - improved > PATIENCE + count // 8):
            break
    if refine and (problem.learning <= FEW or math.isfinite(best.choice.cost)):
        best = _exchange(problem, best)
    elif refine:
        best = _last_resort(problem, best)
    if math.isinf(best.choice.cost):
        return no_plan(problem, best.choice.error)
    side, rung, choice = best
    return solution(problem, side.nodes, side.edges(rung), np.flatnonzero(choice.information))


def best_of(
    problem: Problem,
    grid: TimeGrid,
    sets: list[np.ndarray],
    refine: bool,
    chosen: Bool[np.ndarray, " I"] | None = None,
) -> Found:
    """The cheapest plan over any of these sets of L-nodes; without one, the least error.

    Args:
      problem: the problem.
      grid: for the number of L-nodes.
      sets: of as many L-nodes each.
      refine: the refined form.
      chosen: I-nodes that serve such sets well, to tell which graphs have a small error.
    """
    sides = [learners(problem, grid, nodes, refine=refine) for nodes in sets]
    covers = [cover(problem, grid, side) for side in sides]
    tried = sorted(
        (bound, index, rung)
        for index, expected in enumerate(covers)
        for rung, bound in enumerate(expected.bound)
        if math.isfinite(bound)
    )
    best, failed = None, [0] * len(sides)
    for bound, index, rung in tried:
        if best is not None and bound >= best.choice.cost * (1 - 1e-12):
            break
        if failed[index] < GREEDY or covers[index].first[rung] >= 0:
            choice = _climb(problem, grid, sides[index], rung, covers[index], refine)
            failed[index] += math.isinf(choice.cost)
            if best is None or choice.cost < best.choice.cost:
                best = Found(sides[index], rung, choice)
    if best is not None and math.isfinite(best.choice.cost):
        return best
    pairs = [(index, rung) for index, side in enumerate(sides) for rung in range(len(side.gap))]
    few = GREEDY * len(sides) if problem.learning <= FEW else FALLBACK
    if len(pairs) > few:
        if chosen is None:
            chosen = greedy(problem, grid, sides[0], len(sides[0].gap) - 1).information
        errors = np.concatenate(_errors(problem, grid, sides, chosen))
        pairs = [pairs[index] for index in np.argsort(errors, kind="stable")[:few]]
    found = [best] if best is not None else []
    for index, rung in pairs:
        one = Found(sides[index], rung, greedy(problem, grid, sides[index], rung))
        deep = refine and problem.learning <= FEW
        found.append(_lowered(problem, grid, one, covers[index]) if deep else one)
    return min(found, key=lambda one: one.merit)


def _lowered(problem: Problem, grid: TimeGrid, found: Found, expected: Cover) -> Found:
    """Takes the error down from where the greedy climb ended; a plan if that is enough."""
    side, rung, choice = found
    choice = lower_error(problem, grid, side, rung, choice)
    if math.isfinite(choice.cost):
        need = expected.need[rung]
        choice = priced(problem, side, rung, need, choice.information)
        choice = improve(problem, grid, side, rung, need, choice)
    return Found(side, rung, choice)


def _last_resort(problem: Problem, best: Found) -> Found:
    grid = time_grid(problem, len(best.side.nodes))
    return _lowered(problem, grid, best, cover(problem, grid, best.side))


def _grown(problem: Problem, grid: TimeGrid, path: Found) -> list[np.ndarray]:
    """Sets with one more L-node; where there are many, those that promise most."""
    nodes = path.side.nodes
    candidates = np.setdiff1d(np.arange(problem.learning), nodes)
    if problem.learning > FEW and len(candidates) > CANDIDATES:
        estimate = _estimate(problem, grid, path, candidates)
        candidates = candidates[np.argsort(estimate, kind="stable")[:CANDIDATES]]
    return [np.sort(np.append(nodes, node)) for node in candidates]


def _exchange(problem: Problem, best: Found) -> Found:
    """While the plan gets cheaper: adds, drops or exchanges one L-node."""
    while True:
        nodes = best.side.nodes
        count = len(nodes)
        found = [best]
        if count < problem.learning:
            grid = time_grid(problem, count + 1)
            found.append(best_of(problem, grid, _grown(problem, grid, best), True))
        if count > 1:
            grid = time_grid(problem, count - 1)
            less = [best_of(problem, grid, [np.delete(nodes, i)], True) for i in range(count)]
            less.sort(key=lambda one: one.merit)
            found.append(less[0])
            grid = time_grid(problem, count)
            kept = less if problem.learning <= FEW else less[:CANDIDATES]
            sets = {tuple(grown) for path in kept for grown in _grown(problem, grid, path)}
            sets = [np.array(one) for one in sorted(sets - {tuple(nodes)})]
            found += [best_of(problem, grid, sets, True)] if sets else []
        cheapest = min(found, key=lambda one: one.merit)
        if cheapest is best:
            return best
        best = cheapest


def _climb(
    problem: Problem, grid: TimeGrid, side: Learners, rung: int, expected: Cover, refine: bool
) -> Choice:
    need, first = expected.need[rung], int(expected.first[rung])
    if refine and first >= 0:
        chosen = np.zeros(problem.information, bool)
        chosen[expected.order[:first]] = True
    else:
        choice = greedy(problem, grid, side, rung)
        if math.isinf(choice.cost):
            return choice
        chosen = choice.information
    choice = priced(problem, side, rung, need, chosen)
    return improve(problem, grid, side, rung, need, choice) if refine else choice


def _errors(
    problem: Problem, grid: TimeGrid, sides: list[Learners], chosen: Bool[np.ndarray, " I"]
) -> list[np.ndarray]:
    """The error at the deadline on each rung, with these I-nodes."""
    extra = grid.log_information[chosen].sum(axis=0)
    supplied = problem.r[chosen].sum()
    errors = []
    for side in sides:
        epoch = grid.expected_maximum(side.log_product + extra) + problem.tg * side.degree
        most = epochs_in_time(problem, epoch)
        error = error_of(problem, side.gap, side.samples, supplied, np.maximum(most, 1))
        errors.append(np.where(most > 0, error, np.inf))
    return errors


def _superset_bound(problem: Problem, side: Learners) -> float:
    """What any plan costs at least whose L-nodes contain these."""
    prices = problem.cI + problem.cIL.min(axis=1)
    usable = np.flatnonzero(problem.r > 0)
    order = usable[np.argsort(prices[usable] / problem.r[usable])]
    rates = np.append(0.0, np.cumsum(problem.r[order]))
    costs = np.append(0.0, np.cumsum(prices[order]))
    fastest = np.min(problem.work) / problem.learning
    most = int(epochs_in_time(problem, max(fastest, 1e-300)))
    need = needed(problem, np.ones(1), float(problem.X0.sum()), most)[0]
    total = np.arange(1, most + 1) * (side.rate + np.interp(need, rates, costs))
    return float(np.min(total[need <= rates[-1]], initial=np.inf))


def _estimate(problem: Problem, grid: TimeGrid, path: Found, candidates: np.ndarray) -> np.ndarray:
    """About what the best plan costs with each of these L-nodes added; without one, its error.

    Link costs are estimated: a further node takes its cheapest links, and those that it takes the
    place of go. Errors are those with the I-nodes of the path.
    """
    side = path.side
    count = len(side.nodes) + 1
    known = np.array(degrees(count))
    sample = known[np.unique(np.linspace(0, len(known) - 1, SAMPLED).astype(int))]
    gaps = np.array([circulant_gap(count, mixing_offsets(count)[d]) for d in sample])
    links = problem.cLL[np.ix_(candidates, side.nodes)]
    links = np.where(np.isfinite(links), links, 1e6 * (1 + side.rate))
    links = np.cumsum(np.sort(links, axis=1), axis=1)[:, sample - 1]
    rungs = np.argsort(side.degree, kind="stable")
    before = np.interp(sample, side.degree[rungs], side.link_cost[rungs])
    links = links + before * (1 - 1 / (count - 1))

    log = grid.log_learning[side.nodes].sum(axis=0) + grid.log_learning[candidates]
    most = epochs_in_time(problem, grid.expected_maximum(log)[:, None] + problem.tg * sample)
    epochs = np.arange(1, int(most.max()) + 1)
    costs = np.full(len(candidates), np.inf)
    for index, node in enumerate(candidates):
        prices = np.minimum(side.prices, problem.cI + problem.cIL[:, node])
        usable = np.flatnonzero((problem.r > 0) & np.isfinite(prices))
        order = usable[np.argsort(prices[usable] / problem.r[usable])]
        rates = np.append(0.0, np.cumsum(problem.r[order]))
        sums = np.append(0.0, np.cumsum(prices[order]))
        need = needed(problem, gaps, float(side.samples + problem.X0[node]), len(epochs))
        inside = (need <= rates[-1]) & (epochs <= most[index][:, None])
        fixed = side.rate + problem.cL[node] + links[index][:, None]
        with np.errstate(invalid="ignore"):
            total = epochs * (fixed + np.interp(need, rates, sums))
        costs[index] = np.min(total[inside], initial=np.inf)
    if np.isfinite(costs).any():
        return costs
    chosen = path.choice.information
    log = log + grid.log_information[chosen].sum(axis=0)
    most = epochs_in_time(problem, grid.expected_maximum(log)[:, None] + problem.tg * sample)
    samples = side.samples + problem.X0[candidates]
    supplied = problem.r[chosen].sum()
    error = error_of(problem, gaps, samples[:, None], supplied, np.maximum(most, 1))
    return np.where(most > 0, error, np.inf).min(axis=1)
