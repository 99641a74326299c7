"""Algorithms: ratios to the known optimum, constraints, and what must not change a plan."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import jaxlossy
from jaxlossy import topology
from jaxlossy.topology.epoch_time import time_grid
from jaxlossy.topology.exhaustive import milp_information
from jaxlossy.topology.graphs import adjacency_of, spectral_gap

INSTANCES = topology.load(Path(__file__).parent / "data" / "doubleclimb_instances.json")
GOLDEN = INSTANCES[0].problem


def _ratios(algorithm, instances):
    """Costs over the file's optimum; every plan is evaluated anew and held to its constraints."""
    ratios = []
    for instance in instances:
        plan = topology.solve(instance.problem, algorithm).plan
        assert plan is not None, instance.name
        again = topology.evaluate(instance.problem, plan)
        assert again == plan
        assert plan.error <= instance.problem.eps_max
        assert plan.time <= instance.problem.T_max
        assert plan.epochs <= instance.problem.K_max
        assert spectral_gap(adjacency_of(plan.edges, plan.learning_nodes)) > 0
        ratios.append(plan.cost / instance.plans["optimum"].cost)
    return np.array(ratios)


def test_refined_is_near_the_optimum_on_every_reference_instance():
    ratios = _ratios("refined", INSTANCES)
    assert ratios.max() <= 1.12
    assert ratios.mean() <= 1.005


def test_plain_is_what_the_reference_has():
    ratios = _ratios("plain", INSTANCES)
    reference = [i.plans["plain"].cost / i.plans["optimum"].cost for i in INSTANCES]
    assert ratios.mean() <= 1.06
    np.testing.assert_allclose(ratios, reference, rtol=1e-6)


def test_exhaustive_optimum_is_that_of_the_file():
    np.testing.assert_allclose(_ratios("optimum", INSTANCES), 1, atol=1e-6)


def test_mixed_integer_programs_find_the_same_optimum():
    np.testing.assert_allclose(_ratios("milp", INSTANCES[:10]), 1, atol=1e-6)


def test_mixed_integer_program_of_one_graph_agrees_with_trying_every_set():
    rng = np.random.default_rng(0)
    nodes = np.array([0, 1, 3])
    grid = time_grid(GOLDEN, 3)
    sets = np.array([[bool(n >> i & 1) for i in range(5)] for n in range(32)])
    times = grid.expected_maximum(
        grid.log_learning[nodes].sum(axis=0) + sets @ grid.log_information
    )
    prices = sets @ (GOLDEN.cI + GOLDEN.cIL[:, nodes].min(axis=1))
    outcomes = set()
    for _ in range(60):
        need, longest = rng.uniform(0, 100), rng.uniform(times.min() - 0.2, times.max())
        allowed = (sets @ GOLDEN.r >= need) & (times <= longest)
        chosen = milp_information(GOLDEN, grid, nodes, need, longest)
        outcomes.add(chosen is not None)
        assert (chosen is None) == (not allowed.any())
        if chosen is not None:
            best = prices[allowed].min()
            assert chosen @ (GOLDEN.cI + GOLDEN.cIL[:, nodes].min(axis=1)) == pytest.approx(best)
    assert outcomes == {True, False}


def test_the_golden_instance():
    plan = topology.solve(GOLDEN, "optimum").plan
    assert (plan.learning_nodes, plan.information_nodes, plan.epochs) == ((1, 2, 3), (4,), 23)
    assert plan.edges == ((1, 2), (1, 3), (2, 3))
    assert plan.cost == pytest.approx(92.0)
    assert plan.error == pytest.approx(0.05495694, abs=5e-9)
    assert plan.time == pytest.approx(128.88, abs=5e-3)
    assert topology.solve(GOLDEN, "refined").plan == plan
    plain = topology.solve(GOLDEN, "plain").plan
    assert (plain.learning_nodes, plain.information_nodes, plain.epochs) == ((0, 2, 3), (3,), 26)
    assert plain.cost == pytest.approx(96.2)


@pytest.mark.parametrize("algorithm", ["uniform", "genetic", "cheapest_first", "random", "all_on"])
def test_baselines_meet_the_constraints_and_do_not_beat_the_optimum(algorithm):
    for instance in INSTANCES[:3]:
        plan = topology.solve(instance.problem, algorithm).plan
        assert topology.meets(instance.problem, topology.evaluate(instance.problem, plan))
        assert plan.cost >= instance.plans["optimum"].cost * (1 - 1e-6)
        if algorithm == "uniform":
            counts = [plan.attached_to.count(node) for node in plan.learning_nodes]
            assert len(set(counts)) == 1
    if algorithm == "genetic":
        assert plan.cost <= 1.1 * instance.plans["optimum"].cost


def test_names_of_nodes_do_not_matter():
    rng = np.random.default_rng(1)
    for instance in INSTANCES[:6]:
        problem = instance.problem
        a, b = rng.permutation(problem.learning), rng.permutation(problem.information)
        fields = {name: getattr(problem, name)[a] for name in ("X0", "work", "strag", "cL")}
        fields |= {name: getattr(problem, name)[b] for name in ("r", "dmin", "dexp", "cI")}
        fields |= {"cLL": problem.cLL[np.ix_(a, a)], "cIL": problem.cIL[np.ix_(b, a)]}
        renamed = dataclasses.replace(problem, **fields)
        for algorithm in ("optimum", "refined"):
            first, second = (topology.solve(p, algorithm).plan for p in (problem, renamed))
            assert second.cost == pytest.approx(first.cost, rel=1e-9)
        assert {int(b[i]) for i in second.information_nodes} == set(first.information_nodes)


def test_relaxing_a_constraint_never_costs():
    for problem in (GOLDEN, INSTANCES[2].problem, INSTANCES[13].problem):
        for name in ("eps_max", "T_max"):
            costs = []
            for factor in (0.8, 0.95, 1.0, 1.1, 1.4):
                value = getattr(problem, name) * factor
                plan = topology.solve(dataclasses.replace(problem, **{name: value}), "optimum").plan
                costs.append(np.inf if plan is None else plan.cost)
            assert (np.diff([min(c, 1e9) for c in costs]) <= 1e-9).all()
            assert costs[-1] < costs[0]


def test_without_a_plan_the_least_error_and_the_constraint_that_binds_are_said():
    for change, word in (
        ({"T_max": 40.0}, "T_max: in 40 s the error gets down to"),
        ({"T_max": 1.0}, "T_max: 1 s is too short for one epoch"),
        ({"eps_max": 0.0201}, "eps_max: 0.0201 is below"),
    ):
        problem = dataclasses.replace(GOLDEN, **change)
        least = topology.solve(problem, "optimum")
        assert least.plan is None
        for algorithm in ("refined", "plain"):
            found = topology.solve(problem, algorithm)
            assert found.plan is None
            assert found.reason.startswith(word)
            assert found.least_error >= least.least_error * (1 - 1e-9)
        refined = topology.solve(problem, "refined").least_error
        assert refined <= 1.02 * least.least_error or "short" in word
        for algorithm in ("uniform", "genetic", "cheapest_first", "random", "all_on", "milp"):
            assert topology.solve(problem, algorithm).plan is None


def test_links_that_can_not_be_are_not_used():
    problem, _ = topology.edge_network(5, 8, seed=3)
    links = problem.cLL.copy()
    for a, b in ((0, 1), (0, 2), (1, 3), (2, 4)):
        links[a, b] = links[b, a] = np.inf
    sources = problem.cIL.copy()
    sources[:4, 1:] = np.inf
    problem = dataclasses.replace(problem, cLL=links, cIL=sources)
    costs = {}
    for algorithm in topology.ALGORITHMS:
        plan = topology.solve(problem, algorithm).plan
        assert plan is None or np.isfinite(plan.cost)
        costs[algorithm] = np.inf if plan is None else plan.cost
    assert costs["milp"] == pytest.approx(costs["optimum"])
    assert costs["optimum"] * (1 - 1e-9) <= costs["refined"] <= 1.1 * costs["optimum"]


def test_larger_networks_get_plans_no_worse_than_the_genetic_algorithm_finds():
    problem, _ = topology.edge_network(16, 20, seed=0)
    refined, genetic = (topology.solve(problem, name).plan for name in ("refined", "genetic"))
    assert topology.meets(problem, topology.evaluate(problem, refined))
    assert refined.cost <= genetic.cost * 1.01


def test_a_network_without_information_nodes():
    fields = GOLDEN.to_json() | {"r": [], "dmin": [], "dexp": [], "cI": [], "cIL": []}
    problem = topology.Problem.from_json(fields | {"eps_max": 0.08})
    costs = [topology.solve(problem, name).plan.cost for name in ("refined", "optimum", "milp")]
    assert costs[0] == pytest.approx(costs[1]) == pytest.approx(costs[2])


@pytest.mark.parametrize("algorithm", ["optimum", "milp"])
def test_exact_algorithms_refuse_what_is_too_large(algorithm):
    problem, _ = topology.edge_network(9, 4, seed=0)
    with pytest.raises(jaxlossy.ConfigError, match=r"^X0: '9 L-nodes'"):
        topology.solve(problem, algorithm)
    with pytest.raises(jaxlossy.ConfigError, match=r"^algorithms: 'fastest'"):
        topology.solve(problem, "fastest")
