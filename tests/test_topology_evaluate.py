"""Time, error, gap and cost of plans: known values, other ways to compute them, their shape."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate

from jaxlossy import topology
from jaxlossy.topology.epoch_time import expected_maximum, time_grid
from jaxlossy.topology.evaluate import error_of, least_epochs, with_least_epochs
from jaxlossy.topology.graphs import (
    adjacency_of,
    circulant,
    circulant_gap,
    degrees,
    edges_of,
    metropolis,
    mixing_offsets,
    nearest_offsets,
    spanning_tree,
    spectral_gap,
    tour,
)
from jaxlossy.topology.scoring import Graphs, Scorer, circulants, describe, ring_links

FILE = Path(__file__).parent / "data" / "doubleclimb_instances.json"
INSTANCES = topology.load(FILE)
GOLDEN = INSTANCES[0].problem
TRIANGLE = ((0, 1), (0, 2), (1, 2))


def test_the_golden_plan():
    plan = topology.evaluate(GOLDEN, topology.Plan((0, 1, 2), TRIANGLE, (0, 3), 10))
    assert spectral_gap(adjacency_of(TRIANGLE, (0, 1, 2))) == pytest.approx(1)
    assert plan.cost == pytest.approx(10 * 5.1)
    assert plan.time / 10 == pytest.approx(5.6378, abs=5e-5)
    assert plan.error == pytest.approx(0.06664063, abs=5e-9)
    assert plan.attached_to == (0, 1)
    assert int(GOLDEN.T_max // (plan.time / 10)) == 26
    assert least_epochs(GOLDEN, 1.0, 1200.0, 38.0) == 21


def test_plans_of_the_file_have_their_cost_error_and_time():
    for instance in INSTANCES:
        for plan in instance.plans.values():
            again = topology.evaluate(instance.problem, plan)
            assert again.cost == pytest.approx(plan.cost, rel=1e-6)
            assert again.error == pytest.approx(plan.error, abs=1e-8)
            assert again.time == pytest.approx(plan.time, rel=2e-4)  # its grid is coarse
            assert topology.meets(instance.problem, again)


@pytest.mark.parametrize("count", [1, 2, 7, 100, 500])
def test_expected_maximum_of_exponentials_is_a_harmonic_number(count):
    harmonic = (1 / np.arange(1, count + 1)).sum()
    assert expected_maximum(np.zeros(count), np.ones(count)) == pytest.approx(harmonic, rel=1e-11)


def _random_sets(problem, rng, trials):
    for _ in range(trials):
        count = int(rng.integers(1, problem.learning + 1))
        nodes = np.sort(rng.choice(problem.learning, count, replace=False))
        yield nodes, np.flatnonzero(rng.random(problem.information) < rng.random())


def _distributions(problem, nodes, sources):
    shift = np.append(problem.work[nodes] / len(nodes), problem.dmin[sources])
    return shift, np.append(problem.strag[nodes], problem.dexp[sources])


def test_both_quadratures_agree_with_each_other_and_with_scipy():
    rng = np.random.default_rng(0)
    wide = dataclasses.replace(
        GOLDEN, strag=np.array([0, 1e-3, 5, 0.2]), dexp=GOLDEN.dexp * [0, 1e-2, 1, 10, 1]
    )
    still = dataclasses.replace(GOLDEN, strag=np.zeros(4), dexp=np.zeros(5))
    large, _ = topology.edge_network(60, 60, seed=0)
    for problem in (GOLDEN, wide, still, large):
        for nodes, sources in _random_sets(problem, rng, 12):
            grid = time_grid(problem, len(nodes))
            log = grid.log_learning[nodes].sum(axis=0) + grid.log_information[sources].sum(axis=0)
            shift, mean = _distributions(problem, nodes, sources)
            exact = expected_maximum(shift, mean)
            assert float(grid.expected_maximum(log)) == pytest.approx(exact, rel=1e-9)
    shift, mean = _distributions(GOLDEN, np.array([0, 1, 2]), np.array([0, 3]))

    def late(t):
        return 1 - np.prod(-np.expm1(-(t - shift) / mean))

    tail, _ = scipy.integrate.quad(late, shift.max(), shift.max() + 40, epsabs=1e-12, limit=200)
    assert expected_maximum(shift, mean) == pytest.approx(shift.max() + tail, rel=1e-10)


def test_monte_carlo_of_an_epoch_agrees_with_its_time():
    rng = np.random.default_rng(1)
    problem = INSTANCES[3].problem
    nodes, sources = np.arange(problem.learning), np.array([0, 2, 5])
    shift, mean = _distributions(problem, nodes, sources)
    draws = (shift + mean * rng.exponential(size=(200_000, len(mean)))).max(axis=1)
    edges = tuple((a, b) for a in nodes.tolist() for b in nodes.tolist() if a < b)
    plan = topology.Plan(tuple(nodes.tolist()), edges, tuple(sources.tolist()), 1)
    epoch = topology.evaluate(problem, plan).time - problem.tg * (problem.learning - 1)
    assert abs(draws.mean() - epoch) < 4 * draws.std() / len(draws) ** 0.5


def test_time_and_error_reduction_are_monotone_and_submodular():
    rng = np.random.default_rng(2)
    checked = 0
    while checked < 2000:
        problem = INSTANCES[int(rng.integers(len(INSTANCES)))].problem
        grid = time_grid(problem, problem.learning)
        every = grid.log_learning.sum(axis=0)
        larger = rng.random((100, problem.information)) < 0.6
        smaller = larger & (rng.random(larger.shape) < 0.5)
        extra = rng.integers(problem.information, size=100)
        kept = ~larger[np.arange(100), extra]
        larger, smaller, extra = larger[kept], smaller[kept], extra[kept]
        epochs, gap = int(rng.integers(1, 60)), rng.uniform(0.05, 1)
        gains = []
        for base in (smaller, larger):
            more = base.copy()
            more[np.arange(len(base)), extra] = True
            times, errors = [], []
            for sets in (base, more):
                times.append(grid.expected_maximum(every + sets @ grid.log_information))
                supplied = sets @ problem.r
                errors.append(error_of(problem, gap, problem.X0.sum(), supplied, epochs))
            gains.append((times[1] - times[0], errors[0] - errors[1]))
        for first, second in zip(*gains, strict=True):
            assert (second >= -1e-12).all()
            assert (first >= second - 1e-12).all()
        checked += len(extra)


def test_gaps_of_cliques_and_rings_and_of_parts():
    for n in (1, 2, 5, 9):
        assert spectral_gap(~np.eye(n, dtype=bool)) == pytest.approx(1)
    for n in (3, 4, 7, 10):
        waves = (1 + 2 * np.cos(2 * np.pi * np.arange(1, n) / n)) / 3
        assert spectral_gap(circulant(n, (1,))) == pytest.approx(1 - np.abs(waves).max())
    parts = np.kron(np.eye(2, dtype=bool), ~np.eye(2, dtype=bool))
    assert spectral_gap(parts) == 0
    assert circulant_gap(10, nearest_offsets(10, 5)) == pytest.approx(0.6273, abs=5e-5)
    assert circulant_gap(10, nearest_offsets(10, 6)) == pytest.approx(0.6260, abs=5e-5)
    mixing = metropolis(adjacency_of(((0, 1), (1, 2)), (0, 1, 2)))
    np.testing.assert_allclose(
        mixing, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]
    )


def test_circulants_have_their_degree_and_gap_and_offsets_may_improve_it():
    better = 0
    for n in range(2, 15):
        for degree in degrees(n):
            near, mixing = nearest_offsets(n, degree), mixing_offsets(n)[degree]
            for offsets in (near, mixing):
                graph = circulant(n, offsets)
                assert (graph.sum(axis=1) == degree).all()
                assert circulant_gap(n, offsets) == pytest.approx(spectral_gap(graph))
            better += circulant_gap(n, mixing) > circulant_gap(n, near) + 1e-6
    assert better > 10


def test_tours_and_trees_are_cheap():
    rng = np.random.default_rng(3)
    places = rng.random((12, 2))
    cost = np.linalg.norm(places[:, None] - places, axis=-1)
    order = tour(cost)
    length = cost[order, np.roll(order, -1)].sum()
    others = (rng.permutation(12) for _ in range(2000))
    assert sorted(order) == list(range(12))
    assert length <= min(cost[o, np.roll(o, -1)].sum() for o in others)
    tree = spanning_tree(cost)
    reference = scipy.sparse.csgraph.minimum_spanning_tree(cost).sum()
    assert spectral_gap(tree) > 0
    assert cost[np.triu(tree)].sum() == pytest.approx(reference)
    cost[:6, 6:] = cost[6:, :6] = np.inf
    assert spanning_tree(cost) is None


def test_batches_are_scored_as_single_plans_are():
    rng = np.random.default_rng(4)
    base, _ = topology.edge_network(6, 7, seed=1)
    gaps = base.cLL.copy()
    gaps[0, 3] = gaps[3, 0] = np.inf
    for problem in (base, dataclasses.replace(base, cLL=gaps)):
        learning = rng.random((60, 6)) < 0.6
        learning[:, 2] = True
        information = rng.random((60, 7)) < 0.5
        known = [degrees(int(count)) for count in learning.sum(axis=1)]
        degree = np.array([rng.choice(some) for some in known])
        order = tour(problem.cLL)
        graphs = circulants(problem, order, learning, degree)
        adjacency = ring_links(problem, order, learning, degree)
        described = describe(problem, learning, adjacency)
        for one, two in zip(graphs, described, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-12)
        scores = Scorer(problem)(Graphs(*graphs), information)
        assert 0 < scores.feasible.sum() < 60
        for index in range(60):
            nodes = np.flatnonzero(learning[index])
            edges = edges_of(adjacency[index][np.ix_(nodes, nodes)], nodes)
            sources = np.flatnonzero(information[index])
            plan, error = with_least_epochs(problem, nodes, edges, sources)
            assert scores.feasible[index] == (plan is not None)
            assert scores.error[index] == pytest.approx(error, rel=1e-10)
            if plan is not None:
                assert scores.epochs[index] == plan.epochs
                assert scores.cost[index] == pytest.approx(plan.cost, rel=1e-12)
                assert scores.time[index] == pytest.approx(plan.time, rel=1e-9)
