"""Speed of choosing topologies: batched scoring, and how solving grows with the network.

python scripts/doubleclimb_benchmark.py
python scripts/doubleclimb_benchmark.py --nodes=20,50 --seeds=3

Networks are generated, with as many I-nodes as L-nodes. Scoring finds a plan's least K, cost, error
and time: one plan after the other in NumPy against all at once in JAX. Run nothing beside it.
"""

import sys
import time

import numpy as np
from absl import app, flags, logging

import jaxlossy
from jaxlossy import topology
from jaxlossy.topology.evaluate import with_least_epochs
from jaxlossy.topology.graphs import degrees, edges_of, tour
from jaxlossy.topology.scoring import circulants, ring_links

_NODES = flags.DEFINE_list("nodes", ["20", "50", "100", "250"], "L-nodes of the networks to solve.")
_SCORED = flags.DEFINE_list("scored", ["5", "20"], "L-nodes of the networks to score plans of.")
_PLANS = flags.DEFINE_integer("plans", 16384, "Plans in a batch.", 1)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Networks of each size.", 1)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    try:
        for nodes in map(_number, _SCORED.value):
            _score(nodes)
        _solve([_number(nodes) for nodes in _NODES.value])
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise jaxlossy.ConfigError("nodes", text, "integers >= 1")
    return int(text)


def _score(nodes: int) -> None:
    rng = np.random.default_rng(0)
    problem, _ = topology.edge_network(nodes, nodes, seed=0)
    learning = rng.random((_PLANS.value, nodes)) < 0.4
    learning[~learning.any(axis=1), 0] = True
    information = rng.random((_PLANS.value, nodes)) < 0.4
    degree = np.array([rng.choice(degrees(int(count))) for count in learning.sum(axis=1)])
    order, scorer = tour(problem.cLL), topology.Scorer(problem)

    def batched():
        scorer(circulants(problem, order, learning, degree), information)

    adjacency = ring_links(problem, order, learning[:200], degree[:200])
    plans = []
    for graph, active, sources in zip(adjacency, learning, information, strict=False):
        chosen = np.flatnonzero(active)
        edges = edges_of(graph[np.ix_(chosen, chosen)], chosen)
        plans.append((chosen, edges, np.flatnonzero(sources)))

    def one_by_one():
        for plan in plans:
            with_least_epochs(problem, *plan)

    together, alone = (_seconds(f) for f in (batched, one_by_one))
    together, alone = together / _PLANS.value, alone / len(plans)
    print(
        f"scoring, {nodes} + {nodes} nodes: {1e6 * alone:.0f} us a plan one by one, "
        f"{1e6 * together:.1f} us in a batch of {_PLANS.value}: {alone / together:.0f} times"
    )


def _solve(sizes: list[int]) -> None:
    seconds = []
    for nodes in sizes:
        taken = []
        for seed in range(_SEEDS.value):
            problem, _ = topology.edge_network(nodes, nodes, seed=seed)
            start = time.perf_counter()
            plan = topology.solve(problem, "refined").plan
            taken.append(time.perf_counter() - start)
            what = "no plan"
            if plan is not None:
                what = (
                    f"{len(plan.learning_nodes)} L-nodes, {len(plan.edges)} links, "
                    f"{len(plan.information_nodes)} I-nodes, cost {plan.cost:.6g}"
                )
            print(f"refined, {nodes} + {nodes} nodes: {taken[-1]:.2f} s; {what}", flush=True)
        seconds.append(np.mean(taken))
    if len(set(sizes)) > 1:
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        print(f"seconds grow with the nodes to the power of {exponent:.2f}")


def _seconds(run) -> float:
    """The median of five, after one to compile."""
    run()
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


if __name__ == "__main__":
    app.run(main)
