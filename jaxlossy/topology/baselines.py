"""What DoubleClimb is compared with. Each gives a solution that meets both constraints, or none."""

import math

import numpy as np
from jaxtyping import Bool, Int

from jaxlossy.topology.evaluate import Solution, no_plan, solution, with_least_epochs
from jaxlossy.topology.graphs import circulant, degrees, edges_of, nearest_offsets, tour
from jaxlossy.topology.model import Plan, Problem
from jaxlossy.topology.scoring import Scorer, Scores, circulants, ring_links

RANDOM_PLANS = 1000
POPULATION, GENERATIONS, MUTATION = 128, 80, 1.5


def all_on(problem: Problem, seed: int = 0) -> Solution:
    """Every node and every link that can be, for the least K."""
    every = np.arange(problem.learning)
    graph = np.isfinite(problem.cLL) & ~np.eye(problem.learning, dtype=bool)
    usable = np.arange(problem.information)
    return _checked(problem, [(every, graph, usable, None)])


def cheapest_first(problem: Problem, seed: int = 0) -> Solution:
    """L-nodes, links and I-nodes in the order of their cost, until that makes a plan.

    For one, two, ... of the cheapest L-nodes on a circulant of each degree, I-nodes are added by
    the cost of each with its cheapest link; the first plan is taken.
    """
    order = np.argsort(problem.cL, kind="stable")
    least = math.inf
    for count in range(1, problem.learning + 1):
        nodes = np.sort(order[:count])
        prices = problem.cI + problem.cIL[:, nodes].min(axis=1)
        cheap = np.argsort(prices, kind="stable")
        cheap = cheap[np.isfinite(prices[cheap])]
        for degree in degrees(count):
            graph = _circulant(problem, nodes, degree)
            options = ((nodes, graph, cheap[:some], None) for some in range(len(cheap) + 1))
            found = _first(problem, options)
            if found.plan is not None:
                return found
            least = min(least, found.least_error)
    return no_plan(problem, least)


def uniform(problem: Problem, seed: int = 0) -> Solution:
    """The best plan with one degree and the same number of I-nodes at every L-node.

    L-nodes are taken by their cost, I-nodes by their cost a sample, each at the cheapest L-node
    that has fewer than its share.
    """
    order = np.argsort(problem.cL, kind="stable")
    options = []
    for count in range(1, problem.learning + 1):
        nodes = np.sort(order[:count])
        for share in range(problem.information // count + 1):
            sources, attached = _shared(problem, nodes, share)
            for degree in degrees(count):
                options.append((nodes, _circulant(problem, nodes, degree), sources, attached))
    return _checked(problem, options)


def random(problem: Problem, seed: int = 0) -> Solution:
    """The cheapest of 1,000 plans with random nodes, ring and degree."""
    rng = np.random.default_rng(seed)
    people = _Population.draw(problem, RANDOM_PLANS, rng)
    return people.best(people.score(Scorer(problem)))


def genetic(problem: Problem, seed: int = 0) -> Solution:
    """A genetic algorithm over L-nodes, I-nodes and the degree, on one tour through all L-nodes.

    Tournaments of two, uniform crossover, 1.5 mutations on average, the best of parents and
    children survive. What violates constraints is ranked after every plan, by how much it does.
    """
    rng = np.random.default_rng(seed)
    scorer = Scorer(problem)
    people = _Population.draw(problem, POPULATION, rng)
    scores = people.score(scorer)
    for _ in range(GENERATIONS):
        children = people.breed(_penalized(problem, scores), rng)
        both = people.joined(children)
        joint = Scores(
            *(np.concatenate(pair) for pair in zip(scores, children.score(scorer), strict=True))
        )
        kept = np.argsort(_penalized(problem, joint), kind="stable")[:POPULATION]
        people, scores = both.take(kept), Scores(*(field[kept] for field in joint))
    return people.best(scores)


def _penalized(problem: Problem, scores: Scores) -> np.ndarray:
    """The cost of plans; beyond any cost where the error at the deadline is too large."""
    error = np.minimum(scores.error, 1e6) / problem.eps_max
    return np.where(scores.feasible, scores.cost, 1e12 * np.maximum(error, 1.0))


class _Population:
    """Plans as arrays: active L-nodes, active I-nodes, a wish for the degree in [0, 1]."""

    def __init__(self, problem: Problem, order, learning, information, wish):
        self.problem, self.order = problem, order
        self.learning: Bool[np.ndarray, "plan L"] = learning
        self.information: Bool[np.ndarray, "plan I"] = information
        self.wish = wish

    @classmethod
    def draw(cls, problem: Problem, count: int, rng: np.random.Generator) -> "_Population":
        learning = rng.random((count, problem.learning)) < rng.random((count, 1))
        learning[np.arange(count), rng.integers(problem.learning, size=count)] = True
        information = rng.random((count, problem.information)) < rng.random((count, 1))
        return cls(problem, tour(problem.cLL), learning, information, rng.random(count))

    def take(self, which: Int[np.ndarray, " some"]) -> "_Population":
        arrays = (self.learning[which], self.information[which], self.wish[which])
        return _Population(self.problem, self.order, *arrays)

    def joined(self, other: "_Population") -> "_Population":
        pairs = ((getattr(self, n), getattr(other, n)) for n in ("learning", "information", "wish"))
        return _Population(self.problem, self.order, *(np.concatenate(pair) for pair in pairs))

    def breed(self, merit: np.ndarray, rng: np.random.Generator) -> "_Population":
        count = len(merit)
        rivals = rng.integers(count, size=(2, 2, count))
        winners = np.where(merit[rivals[0]] <= merit[rivals[1]], rivals[0], rivals[1])
        mother, father = (self.take(which) for which in winners)

        def cross(one, two):
            mixed = np.where(rng.random(one.shape) < 0.5, one, two)
            return mixed ^ (rng.random(one.shape) < MUTATION / 2 / max(one.shape[1], 1))

        learning = cross(mother.learning, father.learning)
        empty = ~learning.any(axis=1)
        learning[empty] = mother.learning[empty]
        information = cross(mother.information, father.information)
        wish = np.where(rng.random(count) < 0.1, rng.random(count), mother.wish)
        return _Population(self.problem, self.order, learning, information, wish)

    def degrees(self) -> Int[np.ndarray, " plan"]:
        known = [np.array(degrees(count)) for count in range(1, self.problem.learning + 1)]
        sizes = np.array([len(some) for some in known])
        table = np.array([np.resize(some, sizes.max()) for some in known])
        count = self.learning.sum(axis=1) - 1
        return table[count, (self.wish * sizes[count]).astype(int)]

    def score(self, scorer: Scorer) -> Scores:
        graphs = circulants(self.problem, self.order, self.learning, self.degrees())
        return scorer(graphs, self.information)

    def best(self, scores: Scores) -> Solution:
        if not scores.feasible.any():
            return no_plan(self.problem, float(scores.error.min()))
        plan = int(np.argmin(np.where(scores.feasible, scores.cost, np.inf)))
        learning, degree = self.learning[plan : plan + 1], self.degrees()[plan : plan + 1]
        (adjacency,) = ring_links(self.problem, self.order, learning, degree)
        nodes = np.flatnonzero(self.learning[plan])
        edges = edges_of(adjacency[np.ix_(nodes, nodes)], nodes)
        return solution(self.problem, nodes, edges, np.flatnonzero(self.information[plan]))


def _circulant(problem: Problem, nodes: np.ndarray, degree: int) -> np.ndarray:
    """A circulant on a cheap tour, without links that can not be; rows as in ``nodes``."""
    links = problem.cLL[np.ix_(nodes, nodes)]
    back = np.argsort(tour(links))
    graph = circulant(len(nodes), nearest_offsets(len(nodes), degree))
    return graph[np.ix_(back, back)] & np.isfinite(links)


def _shared(problem: Problem, nodes: np.ndarray, share: int) -> tuple[np.ndarray, np.ndarray]:
    """So many I-nodes for each L-node, and at which each of them is."""
    links = problem.cIL[:, nodes]
    prices = problem.cI + links.min(axis=1)
    order = np.argsort(prices / np.maximum(problem.r, 1e-300), kind="stable")
    room = np.full(len(nodes), share)
    sources, attached = [], []
    for source in order:
        place = int(np.argmin(np.where(room > 0, links[source], np.inf)))
        if room[place] and np.isfinite(links[source, place]):
            room[place] -= 1
            sources.append(source)
            attached.append(nodes[place])
    return np.array(sources, int), np.array(attached, int)


def _outcome(problem: Problem, option) -> tuple[Plan | None, float]:
    """The plan of (L-nodes, graph, I-nodes, attached) with its least K, and its error."""
    nodes, graph, sources, attached = option
    return with_least_epochs(problem, nodes, edges_of(graph, nodes), sources, attached)


def _first(problem: Problem, options) -> Solution:
    """The first plan among the options."""
    least = math.inf
    for option in options:
        plan, error = _outcome(problem, option)
        if plan is not None:
            return Solution(plan, error)
        least = min(least, error)
    return no_plan(problem, least)


def _checked(problem: Problem, options) -> Solution:
    """The cheapest plan among the options."""
    outcomes = [_outcome(problem, option) for option in options]
    plans = [plan for plan, _ in outcomes if plan is not None]
    if not plans:
        return no_plan(problem, min(error for _, error in outcomes))
    best = min(plans, key=lambda plan: plan.cost or 0.0)
    assert best.error is not None
    return Solution(best, best.error)
