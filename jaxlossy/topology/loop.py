"""Closing the loop: error model fitted, plans chosen with it, trained, and held to their word.

For a task: train a grid of graphs and amounts of data, fit the error model, put it into a family of
problems, choose a plan for each with DoubleClimb, train the plans with other seeds, and compare
error and time with what was predicted.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jaxlossy.errors import ConfigError
from jaxlossy.topology import graphs
from jaxlossy.topology.climb import doubleclimb
from jaxlossy.topology.error_model import Constants, Fit, fit_error_model, predict
from jaxlossy.topology.evaluate import evaluate, least_epochs
from jaxlossy.topology.instances import edge_network
from jaxlossy.topology.model import Plan, Problem
from jaxlossy.topology.networks import as_network
from jaxlossy.topology.tasks import Task
from jaxlossy.topology.training import at_end, train_plans

Frame = Any  # pandas', whose types say too little


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is trained.

    Attributes:
      learners: numbers of L-nodes in the grid that the model is fitted to; problems have as many
        L-nodes as the largest, and as many I-nodes.
      samples: of all L-nodes of a grid point before training; problems hold as many as the largest.
      growth: what these grow by over all epochs, as a factor, in half of the grid.
      first_epoch, epochs: the model is fitted from the one to the other, and plans take at most the
        latter.
      plans: how many to choose and train.
      seeds: of each plan, and others of each grid point.
    """

    learners: tuple[int, ...]
    samples: tuple[int, ...]
    growth: float
    first_epoch: int
    epochs: int
    plans: int = 24
    seeds: int = 8

    def quick(self) -> "Scale":
        """A small part of it, a matter of seconds, whose numbers mean little."""
        return dataclasses.replace(
            self, learners=self.learners[1:3], epochs=4 * self.first_epoch, plans=4, seeds=2
        )


#: By the task's name: a few minutes on two CPU cores, both together.
SCALES = {
    "digits": Scale((1, 2, 4, 8), (60, 150, 360), 2.0, first_epoch=10, epochs=100, seeds=12),
    "diabetes": Scale((1, 2, 4, 8), (24, 60, 150), 2.0, first_epoch=2, epochs=120, seeds=24),
}


class Loop(NamedTuple):
    """What closing the loop found.

    Attributes:
      task: its name.
      fit: the error model.
      grid: the points that it was fitted to.
      plans: a row for each chosen plan (`graph` is 'chosen'), and for what it is on a ring
        ('ring'), predicted and measured, with standard errors over seeds.
      infeasible: problems on the way that had no plan, or none that could be trained.
    """

    task: str
    fit: Fit
    grid: Frame
    plans: Frame
    infeasible: int


def train_grid(task: Task, scale: Scale, seeds: Sequence[int]) -> Frame:
    """Errors over (graph, data, epochs): one run for each graph and amount of data.

    Graphs are circulants of degree 2, 4, 8, ... and the clique. Half of the runs keep the samples
    that they start with, half get more every epoch.

    Returns:
      Columns run, learners, gap, epochs, samples (mean over the epochs), error, error_se.
    """
    chosen, gaps = [], []
    for n in scale.learners:
        for degree in sorted({d for d in (2, 4, 8, 16, 32) if d < n} | {n - 1}):
            adjacency = graphs.circulant(n, graphs.nearest_offsets(n, degree))
            edges = graphs.edges_of(adjacency, range(n))
            plan = Plan(tuple(range(n)), edges, tuple(range(n)), scale.epochs, tuple(range(n)))
            for samples in scale.samples:
                for growth in (1.0, scale.growth):
                    supply = samples * (growth - 1) / scale.epochs / n
                    chosen.append((_only_data(n, samples / n, supply), plan))
                    gaps.append(float(graphs.spectral_gap(adjacency)))
    ds = train_plans(task, chosen, seeds=seeds)
    epochs = np.unique(np.geomspace(scale.first_epoch, scale.epochs, 12).round().astype(int))
    some = ds["error"].sel(epoch=epochs)
    count = len(epochs)
    held, supply = (np.array([getattr(p, f).sum() for p, _ in chosen]) for f in ("X0", "r"))
    mean_samples = held[:, None] + (epochs + 1) / 2 * supply[:, None]
    return pd.DataFrame(
        {
            "run": np.repeat(np.arange(len(chosen)), count),
            "learners": np.repeat([p.learning for p, _ in chosen], count),
            "gap": np.repeat(gaps, count),
            "epochs": np.tile(epochs, len(chosen)),
            "samples": mean_samples.ravel(),
            "error": some.mean("seed").to_numpy().ravel(),
            "error_se": _standard_error(some).to_numpy().ravel(),
        }
    )


def targets(constants: Constants, scale: Scale) -> tuple[float, float]:
    """A range of targets that are within reach, and that no plan outside of the grid meets.

    Outside: with fewer epochs than the grid's first, or fewer samples than its least.
    """
    least, most = min(scale.samples), max(scale.samples)
    ends = ((scale.epochs, most), (scale.first_epoch, most), (scale.epochs, least))
    lowest, early, poor = (float(predict(constants, 1.0, *end)) for end in ends)
    highest = min(early, poor)
    return lowest + 0.2 * (highest - lowest), highest


def family(
    constants: Constants, scale: Scale, spread: tuple[float, float], *, seed: int
) -> Problem:
    """An edge network around the task, with a target and a deadline drawn at random.

    Args:
      constants: of the task's error model.
      scale: gives numbers of nodes and samples.
      spread: of the targets, uniform between these.
      seed: of everything.
    """
    nodes = max(scale.learners)
    network, _ = edge_network(nodes, nodes, seed=seed)
    rng = np.random.default_rng((seed, 1))
    each = max(scale.samples) / nodes
    held = each * rng.uniform(0.3, 0.7, nodes)
    supply = each * (scale.growth - 1) * rng.uniform(0.3, 1.0, nodes)
    quick = network.work.mean() / nodes + network.strag.mean() + network.dmin.mean()
    return dataclasses.replace(
        network,
        **constants._asdict(),
        X0=held,
        r=supply / scale.epochs,
        eps_max=rng.uniform(*spread),
        T_max=quick * scale.epochs * rng.uniform(0.5, 2.0),
        K_max=scale.epochs,
    )


def close_loop(task: Task, scale: Scale, *, seed: int = 0) -> Loop:
    """Fits, chooses, trains and compares.

    Plans are chosen with c0 raised by the fit's margin, so that some 9 in 10 should meet their
    target; predictions are without it. The best graph is often a clique, which says little about
    the gap: so the same nodes are trained on a ring too, for the epochs that the model then wants.

    Args:
      task: what is learnt.
      scale: how much is trained.
      seed: of the problems, and the first one of training.

    Raises:
      ConfigError: too few problems have a plan, or one for which the task has the samples.
    """
    grid = train_grid(task, scale, range(seed, seed + scale.seeds))
    columns = (grid[name] for name in ("gap", "epochs", "samples", "error"))
    fit = fit_error_model(*columns, run=grid["run"])
    constants = fit.constants._replace(c0=fit.constants.c0 + fit.margin)
    spread = targets(constants, scale)
    chosen, tried = [], 0
    while len(chosen) < scale.plans:
        if tried == 4 * scale.plans:
            raise ConfigError("plans", scale.plans, f"at most {len(chosen)}, so many have a plan")
        problem = family(constants, scale, spread, seed=seed + tried)
        plan = doubleclimb(problem).plan
        tried += 1
        if plan is not None and _can_train(problem, plan, task):
            chosen.append((problem, plan))
    rings = [(p, ring) for p, plan in chosen if (ring := on_ring(p, plan)) is not None]
    rings = [pair for pair in rings if _can_train(*pair, task)]
    trained = chosen + rings
    fresh = range(seed + 1000, seed + 1000 + scale.seeds)
    ends = at_end(train_plans(task, trained, seeds=fresh))
    rows = [plan_row(problem, plan, fit.constants) for problem, plan in trained]
    measured = {}
    for name in ("error", "time"):
        measured[f"measured_{name}"] = ends[name].mean("seed").to_numpy()
        measured[f"measured_{name}_se"] = _standard_error(ends[name]).to_numpy()
    names = ["chosen"] * len(chosen) + ["ring"] * len(rings)
    plans = pd.DataFrame(rows).assign(**measured)
    plans.insert(0, "graph", names)
    return Loop(task.name, fit, grid, plans, tried - len(chosen))


def on_ring(problem: Problem, plan: Plan) -> Plan | None:
    """The plan with its L-nodes on a ring, for the least epochs that meet the target.

    None where that is the graph that it has, or takes more than K_max. It may take too long.
    """
    nodes, sources = plan.learning_nodes, plan.information_nodes
    edges = graphs.edges_of(graphs.circulant(len(nodes), (1,)), nodes)
    if len(nodes) < 4 or set(edges) == {(min(e), max(e)) for e in plan.edges}:
        return None
    gap = graphs.spectral_gap(graphs.adjacency_of(edges, nodes))
    held, supply = problem.X0[list(nodes)].sum(), problem.r[list(sources)].sum()
    epochs = int(least_epochs(problem, gap, held, supply))
    if epochs > problem.K_max:
        return None
    ring = dataclasses.replace(plan, edges=edges, epochs=epochs)
    return evaluate(problem, ring)


def plan_row(problem: Problem, plan: Plan, constants: Constants) -> dict[str, Any]:
    """What is known of a plan before it is trained; the error predicted with these constants."""
    nodes, sources = list(plan.learning_nodes), list(plan.information_nodes)
    adjacency = graphs.adjacency_of(plan.edges, nodes)
    gap = float(graphs.spectral_gap(adjacency))
    samples = problem.X0[nodes].sum() + (plan.epochs + 1) / 2 * problem.r[sources].sum()
    return {
        "learning_nodes": len(nodes),
        "degree": int(adjacency.sum(axis=1).max()),
        "information_nodes": len(sources),
        "epochs": plan.epochs,
        "gap": gap,
        "samples": samples,
        "cost": plan.cost,
        "eps_max": problem.eps_max,
        "predicted_error": float(predict(constants, gap, plan.epochs, samples)),
        "T_max": problem.T_max,
        "predicted_time": plan.time,
    }


def _can_train(problem: Problem, plan: Plan, task: Task) -> bool:
    """Whether the task has the samples that every L-node needs."""
    try:
        as_network(problem, plan, task, seed=0)
    except ConfigError:
        return False
    return True


def _only_data(learners: int, held: float, supply: float) -> Problem:
    """A problem of L-nodes with an I-node each, where nothing but the data matters."""
    ones, links = np.ones(learners), np.ones((learners, learners))
    return Problem(
        X0=held * ones,
        work=ones,
        strag=ones,
        cL=ones,
        cLL=links,
        r=supply * ones,
        dmin=ones,
        dexp=ones,
        cI=ones,
        cIL=links,
        tg=1.0,
        c0=0.0,
        c1=1.0,
        c2=1.0,
        alpha=1.0,
        beta=1.0,
        eps_max=1.0,
        T_max=1.0,
        K_max=1,
    )


def _standard_error(values: Any) -> Any:
    return values.std("seed", ddof=1) / values.sizes["seed"] ** 0.5
