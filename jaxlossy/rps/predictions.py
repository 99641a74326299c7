"""Predictions of the theory beside what training does, on quadratics with known constants.

Each function trains configs and returns a table with the columns `predicted` and `measured`.
"""

from typing import Any

import numpy as np
import pandas as pd

from jaxlossy import theory
from jaxlossy.packets import owners
from jaxlossy.rps.quadratic import Quadratic, clusters, constants, trajectories

Frame = Any  # pandas annotates `frame[name]` as unions whose every use a type checker refuses


def gradient_bounds(
    *, settings: int = 200, seeds: int = 4, steps: int = 200, seed: int = 0
) -> Frame:
    """Mean squared gradient of the mean model, and the bound on it, at random settings.

    Drop probability, servers, learning rate (up to where the bound holds) and label skew are drawn;
    4 or 16 workers, with random or separate servers, take turns.

    Args:
      settings: how many.
      seeds: training runs of each; measured is their mean.
      steps: T.
      seed: of the settings.

    Returns:
      A row a setting: workers, placement, drop_probability, servers, learning_rate,
      dirichlet_alpha, shard_seed, measured, predicted (the bound).
    """
    rng = np.random.default_rng(seed)
    problem = clusters(curvature=np.geomspace(0.1, 1, 8))
    points = []
    for index in range(settings):
        workers, placement = (4, 16)[index % 2], ("random", "separate")[index // 2 % 2]
        p = float(np.exp(rng.uniform(np.log(0.003), np.log(0.6))))
        root = theory.coefficients(placement, workers, p).beta ** 0.5
        largest = min(1.0, (1 - root) / (2 * root))  # 4 (lr L)^2 kappa <= 1, and L is 1
        point = {
            "workers": workers,
            "placement": placement,
            "drop_probability": p,
            "servers": int(rng.integers(1, 5)),
            "learning_rate": float(largest * np.exp(rng.uniform(np.log(0.02), np.log(0.99)))),
            "dirichlet_alpha": float(np.exp(rng.uniform(np.log(0.05), np.log(50)))),
            "shard_seed": index,
        }
        points += [{**point, "seed": s} for s in range(seeds)]
    fields = {"steps": steps, "eval_every": steps, "batch_size": 4, "packet_size": 1}
    rows = []
    for group in trajectories({**fields, "sweep": points}, problem):
        for config, shards, means in zip(
            group.configs, group.shards, group.mean_model, strict=True
        ):
            gradients = problem.curvature * means[:-1] - problem.points[shards].mean(axis=(0, 1))
            bound = theory.gradient_bound(
                theory.coefficients(config.placement, config.workers, config.drop_probability),
                constants(problem, shards, config.batch_size),
                workers=config.workers,
                learning_rate=config.learning_rate,
                steps=steps,
            )
            setting = {name: getattr(config, name) for name in points[0] if name != "seed"}
            measured = (gradients**2).sum(axis=1).mean()
            rows.append({**setting, "measured": measured, "predicted": bound})
    names = [name for name in points[0] if name != "seed"]
    return pd.DataFrame(rows).groupby(names, as_index=False).mean()


def disagreements(
    *,
    drop_probability: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2),
    dirichlet_alpha: tuple[float, ...] = (np.inf, 0.3),
    seeds: int = 4,
    steps: int = 200,
) -> Frame:
    """How far replicas walk apart where the gradients are noise around a constant per worker.

    16 workers that serve one part of the model each, 256 parameters that are lost one by one.

    Args:
      drop_probability, dirichlet_alpha: swept, with both aggregations.
      seeds: training runs of each; measured is their mean.
      steps: T.

    Returns:
      A row for each aggregation, dirichlet_alpha, drop_probability and step, from step 0.
    """
    problem = clusters(parameters=256, examples=1600, distance=0.2, curvature=0.0)
    fields = {"steps": steps, "eval_every": steps, "batch_size": 1, "learning_rate": 0.1}
    network = {"workers": 16, "servers": 16, "packet_size": 1, "loss_unit": "packet"}
    sweep = {
        "aggregation": ("model_averaging", "gradient_averaging"),
        "drop_probability": drop_probability,
        "dirichlet_alpha": dirichlet_alpha,
        "seed": range(seeds),
    }
    tables: list[Frame] = []
    for group in trajectories({**fields, **network, "sweep": sweep}, problem):
        for config, shards, measured in zip(
            group.configs, group.shards, group.disagreement, strict=True
        ):
            known, n = constants(problem, shards, config.batch_size), config.workers
            predicted = theory.disagreement(
                config.aggregation,
                theory.coefficients(config.placement, n, config.drop_probability),
                steps,
                noise=(config.learning_rate * known.sigma) ** 2 * (1 - 1 / n),
                spread=(config.learning_rate * known.zeta) ** 2,
            )
            table = pd.DataFrame({"measured": measured, "predicted": predicted})
            table.insert(0, "step", range(steps + 1))
            for name in ("drop_probability", "dirichlet_alpha", "aggregation"):
                table.insert(0, name, getattr(config, name))
            tables.append(table)
    names = ["aggregation", "dirichlet_alpha", "drop_probability", "step"]
    return pd.concat(tables).groupby(names, as_index=False).mean()


def server_weights(
    *,
    drop_probability: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7),
    learning_rate: tuple[float, ...] = (0.05, 0.5),
    seeds: int = 32,
    steps: int = 600,
) -> Frame:
    """What the serving worker's data weigh in the fixed point of training, times the workers.

    4 workers that serve one part of the model each, with skewed data. The weight is read off the
    gradient of the objective at the mean model, which an unbiased fixed point would make 0,
    averaged over the last two thirds of the steps.

    Args:
      drop_probability, learning_rate: swept, with fixed and random placement.
      seeds: training runs of each. The same seed loses the same packets first at every p, so that
        neighbouring values err together.
      steps: T.

    Returns:
      A row for each placement, learning_rate and drop_probability: measured, its standard error
      over seeds `error`, and predicted.
    """
    problem = clusters(classes=4, parameters=64, noise=0.1, start=0.0)
    fields = {"steps": steps, "eval_every": steps, "batch_size": 8, "dirichlet_alpha": 0.1}
    network = {"workers": 4, "servers": 4, "packet_size": 1, "loss_unit": "packet"}
    sweep = {
        "placement": ("fixed", "random"),
        "drop_probability": drop_probability,
        "learning_rate": learning_rate,
        "seed": range(seeds),
    }
    rows = []
    for group in trajectories({**fields, **network, "sweep": sweep}, problem):
        for config, shards, means in zip(
            group.configs, group.shards, group.mean_model, strict=True
        ):
            excess = _serving_excess(problem, shards, config.servers)
            center = problem.points[shards].mean(axis=(0, 1))
            gradient = problem.curvature * means[steps // 3 :].mean(axis=0) - center
            weight = 1 + (config.workers - 1) * (gradient @ excess) / (excess @ excess)
            predicted = 1.0  # everyone serves equally often
            if config.placement == "fixed":
                n, p, lr = config.workers, config.drop_probability, config.learning_rate
                predicted = theory.server_weight(n, p, step_size=lr)  # the curvature is 1
            rows.append((config.placement, config.learning_rate, config.drop_probability))
            rows[-1] += (weight, predicted)
    names = ["placement", "learning_rate", "drop_probability"]
    table: Frame = pd.DataFrame(rows, columns=[*names, "measured", "predicted"]).groupby(names)
    return table.mean().assign(error=table["measured"].sem()).reset_index()


def _serving_excess(problem: Quadratic, shards: np.ndarray, servers: int) -> np.ndarray:
    """The serving worker's expected gradient minus the mean one, of each parameter (negative)."""
    means = problem.points[shards].mean(axis=1)
    host = np.asarray(owners(means.shape[1], servers))
    return means[host, np.arange(means.shape[1])] - means.mean(axis=0)
