"""A study of the algorithms on generated networks: what costs what, and how near the optimum."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from ml_collections import ConfigDict

from jaxlossy.errors import ConfigError, check_name
from jaxlossy.files import replacing, writable_directory
from jaxlossy.topology.instances import edge_network
from jaxlossy.topology.model import Instance, Plan, Problem, save
from jaxlossy.topology.solve import ALGORITHMS, solve, table

OPTIMAL = "optimum"  # what ratios are to


def default_config() -> ConfigDict:
    """The fields of a study, with what they are by default.

    learning, information: nodes of the small networks, on which the optimum is found.
    seeds: of the small networks; constraints are swept on the first.
    relax_eps_max, relax_T_max: what the generated constraint is multiplied with in the sweeps.
    algorithms: what is compared; needs ``optimum``.
    drawn: L-nodes and I-nodes of the larger network that is drawn with its plan.
    """
    config = ConfigDict()
    config.learning, config.information = 5, 10
    config.seeds = tuple(range(12))
    config.relax_eps_max = (0.7, 0.75, 0.8, 0.85, 0.9, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0)
    config.relax_T_max = (0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0)
    config.algorithms = tuple(name for name in ALGORITHMS if name != "milp")
    config.drawn = (24, 40)
    return config


class Study(NamedTuple):
    """What a study found.

    Attributes:
      sweeps: a row for each constraint ("eps_max" or "T_max"), its value and algorithm.
      ratios: a row for each small network and algorithm; "ratio" is that to the optimal cost.
      problem, positions, plan: the larger network, where its nodes are, and the refined plan.
    """

    sweeps: Any
    ratios: Any
    problem: Problem
    positions: Float[np.ndarray, "node 2"]
    plan: Plan | None


def study(config: Any, workdir: str | os.PathLike[str] | None = None) -> Study:
    """Solves what the config asks for, and writes tables, networks and figures.

    Args:
      config: fields of ``default_config``; what is missing is as there.
      workdir: gets ``sweeps.csv``, ``ratios.csv``, ``networks.json`` and ``figures/``.

    Raises:
      ConfigError: a field is unknown or has a value that is not allowed; the workdir can not be
        written to.
    """
    config = _checked(config)
    directory = None if workdir is None else writable_directory("workdir", workdir)
    small = [Instance(f"network-{seed}", _network(config, seed)[0], {}) for seed in config["seeds"]]
    ratios = table(small, config["algorithms"])
    best = ratios[ratios["algorithm"] == OPTIMAL].set_index("name")["cost"]
    ratios["ratio"] = ratios["cost"] / ratios["name"].map(best)

    sweeps = []
    for constraint in ("eps_max", "T_max"):
        given = getattr(small[0].problem, constraint)
        values = [given * float(factor) for factor in config[f"relax_{constraint}"]]
        problems = [dataclasses.replace(small[0].problem, **{constraint: x}) for x in values]
        named = [Instance(repr(x), p, {}) for x, p in zip(values, problems, strict=True)]
        rows = table(named, config["algorithms"])
        sweeps.append(rows.assign(constraint=constraint, value=rows["name"].astype(float)))

    problem, positions = edge_network(*config["drawn"], seed=config["seeds"][0])
    found = solve(problem, "refined")
    result = Study(pd.concat(sweeps, ignore_index=True), ratios, problem, positions, found.plan)
    if directory is not None:
        _write(directory, result, [*small, Instance("drawn", problem, {"refined": found.plan})])
    return result


def _network(config: Mapping[str, Any], seed: int) -> tuple[Problem, np.ndarray]:
    return edge_network(config["learning"], config["information"], seed=seed)


def _checked(config: Any) -> dict[str, Any]:
    given, known = dict(config), default_config().to_dict()
    for name in given:
        check_name("config", name, known)
    config = known | given
    for name in ("seeds", "relax_eps_max", "relax_T_max", "algorithms", "drawn"):
        if not isinstance(config[name], tuple | list) or not len(config[name]):
            raise ConfigError(name, config[name], "a tuple that is not empty")
    for name in config["algorithms"]:
        check_name("algorithms", name, ALGORITHMS)
    if OPTIMAL not in config["algorithms"]:
        raise ConfigError("algorithms", config["algorithms"], f"with {OPTIMAL!r} among them")
    counts = {name: config[name] for name in ("learning", "information")}
    counts |= {f"drawn[{index}]": size for index, size in enumerate(config["drawn"])}
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(name, count, "an integer >= 1")
    if len(config["drawn"]) != 2:
        raise ConfigError("drawn", config["drawn"], "numbers of L-nodes and of I-nodes")
    for name in ("relax_eps_max", "relax_T_max"):
        for factor in config[name]:
            if not isinstance(factor, int | float) or not 0 < factor < float("inf"):
                raise ConfigError(name, factor, "numbers > 0")
    return config


def _write(directory: Path, result: Study, networks: list[Instance]) -> None:
    from jaxlossy.topology import figures  # brings matplotlib, which a study need not

    for name in ("sweeps", "ratios"):
        with replacing(directory / f"{name}.csv") as path:
            getattr(result, name).to_csv(path, index=False)
    save(directory / "networks.json", networks, about="Networks of a study.")
    figures.save_all(result, directory / "figures")
