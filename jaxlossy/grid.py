"""Which configs a sweep has, and which of them share a program."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlossy import data as data_lib
from jaxlossy.config import FIELDS, Config, check_fields, make_config
from jaxlossy.errors import ConfigError, check_name
from jaxlossy.problem import Examples, Problem, as_examples, check_servers, make_problem
from jaxlossy.shards import make_shards


def expand(config: Mapping[str, Any] | Config) -> tuple[list[Config], list[str]]:
    """All configs of a sweep, and the names of the fields that it varies.

    Args:
      config: a single ``Config``; or a mapping (also an ``ml_collections.ConfigDict``) of field
        values whose `sweep` is a mapping of field names to values, for their grid (the last one
        varies fastest), or a sequence of mappings, one a config.

    Raises:
      ConfigError: as ``make_config``; also an empty axis or list.

    >>> configs, swept = expand({"steps": 50, "sweep": {"servers": (1, 2), "seed": range(3)}})
    >>> len(configs), swept, configs[-1].servers, configs[-1].seed
    (6, ['servers', 'seed'], 2, 2)
    >>> len(expand({"sweep": [{"drop_probability": 0.1}, {"servers": 2, "seed": 7}]})[0])
    2
    """
    if isinstance(config, Config):
        return [make_config(dataclasses.asdict(config))], []
    values = config.to_dict() if hasattr(config, "to_dict") else config  # pyright: ignore
    if not isinstance(values, Mapping):
        raise ConfigError("config", config, "a Config, a mapping of fields or a ConfigDict")
    values = dict(values)
    sweep = values.pop("sweep", None)
    sweep = {} if sweep is None else sweep
    check_fields(values)  # also those that an axis replaces
    if isinstance(sweep, Mapping):
        axes = {name: _axis(name, axis) for name, axis in sweep.items() if axis is not None}
        points = [
            dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())
        ]
    else:
        points = list(sweep) if isinstance(sweep, list | tuple) else []
        for point in points or [sweep]:
            if not isinstance(point, Mapping):
                allowed = "a mapping of axes, or a sequence of at least one config"
                raise ConfigError("sweep", point, allowed)
    swept = list(dict.fromkeys(name for point in points for name in point))
    configs = [make_config({**values, **point}) for point in points]
    directions = ("uplink_drop_probability", "downlink_drop_probability")
    if "drop_probability" in swept and all(values.get(name) is not None for name in directions):
        raise ConfigError("sweep.drop_probability", sweep, "no axis where both directions are set")
    seen: dict[Config, int] = {}
    for index, config in enumerate(configs):
        # Two equal configs would count as two seeds. An axis that has no effect makes them too.
        if seen.setdefault(config, index) != index:
            allowed = f"different from {points[seen[config]]}, which makes the same config"
            raise ConfigError("sweep", points[index], allowed)
    return configs, swept


def _axis(name: str, values: Any) -> list[Any]:
    check_name("sweep axis", name, FIELDS)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, list | tuple | range) or len(values) == 0:
        hint = "; as a flag, inf is written 1e999" if isinstance(values, str) else ""
        raise ConfigError(f"sweep.{name}", values, f"a sequence of at least one value{hint}")
    return list(values)


class Group(NamedTuple):
    """Configs that share one compiled program.

    Attributes:
      indices: their places in the sweep.
      configs: the configs.
      problem, examples: what they share.
      shards: of each config, Int[config worker examples].
    """

    indices: np.ndarray
    configs: list[Config]
    problem: Problem
    examples: Examples
    shards: np.ndarray


def make_groups(
    configs: Sequence[Config], *, data: data_lib.Data | None, data_dir: str | None, **given: Any
) -> list[Group]:
    """Sorts configs into groups, and refuses what their model or data does not allow.

    Raises:
      ConfigError: see ``problem.make_problem``; also a batch larger than a worker's shard.
    """
    places: dict[Any, list[int]] = {}
    for index, config in enumerate(configs):
        # The structure of the pytree is its static fields: what one program has in common.
        places.setdefault(jax.tree.structure(config), []).append(index)
    load = functools.cache(functools.partial(data_lib.load, data_dir=data_dir))
    examples_of = functools.cache(as_examples)  # groups of the same data share its arrays
    groups = []
    for indices in places.values():
        members = [configs[i] for i in indices]
        first = members[0]
        source = data if data is not None else load(first.data)
        if not isinstance(source, data_lib.Data):
            raise ConfigError("data", source, "what jaxlossy.from_arrays(train, test) returns")
        problem = make_problem(first, source, **given)
        shards = _shards(members, source)
        if first.batch_size > shards.shape[-1]:
            raise ConfigError(
                "batch_size",
                first.batch_size,
                f"at most {shards.shape[-1]}, the examples of {source.name} in a worker's shard "
                f"with workers={first.workers}",
            )
        size = problem.layout.size
        for i, config in enumerate(members):
            check_servers(config, problem.layout)
            problem.channel(config)  # which may not take the traced fields of every config
            members[i] = dataclasses.replace(config, packet_size=size)
        groups.append(Group(np.asarray(indices), members, problem, examples_of(source), shards))
    return groups


def _shards(configs: Sequence[Config], data: data_lib.Data) -> np.ndarray:
    @functools.cache
    def make(alpha, seed):
        return make_shards(
            data.train_labels, workers=configs[0].workers, dirichlet_alpha=alpha, seed=seed
        )

    return np.stack([make(config.dirichlet_alpha, config.shard_seed) for config in configs])
