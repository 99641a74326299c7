"""A sweep: many configs, in groups that share a program, in batches that fit the device."""

import dataclasses
import functools
import hashlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tqdm.auto
import xarray as xr

from jaxlossy import data as data_lib
from jaxlossy import devices as devices_lib
from jaxlossy import figures, memory, results, train
from jaxlossy.config import FIELDS, Config, make_config, stack_configs
from jaxlossy.errors import ConfigError, check_name
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
    values = dict(config.to_dict() if hasattr(config, "to_dict") else config)  # pyright: ignore
    sweep = values.pop("sweep", None) or {}
    if isinstance(sweep, Mapping):
        axes = {name: _axis(name, axis) for name, axis in sweep.items() if axis is not None}
        points = [
            dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())
        ]
    else:
        points = [dict(point) for point in sweep]
    swept = list(dict.fromkeys(name for point in points for name in point))
    return [make_config({**values, **point}) for point in points], swept


def _axis(name: str, values: Any) -> list[Any]:
    check_name("sweep axis", name, FIELDS)
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) == 0:
        raise ConfigError(f"sweep.{name}", values, "a sequence of at least one value")
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
    problem: train.Problem
    examples: train.Examples
    shards: np.ndarray


def make_groups(
    configs: Sequence[Config], *, data: data_lib.Data | None, data_dir: str | None, **given: Any
) -> list[Group]:
    """Sorts configs into groups, and refuses what their model or data does not allow.

    Raises:
      ConfigError: see ``train.make_problem``; also a batch larger than a worker's shard.
    """
    places: dict[Any, list[int]] = {}
    for index, config in enumerate(configs):
        # The structure of the pytree is its static fields: what one program has in common.
        places.setdefault(jax.tree.structure(config), []).append(index)
    load = functools.cache(functools.partial(data_lib.load, data_dir=data_dir))
    groups = []
    for indices in places.values():
        members = [configs[i] for i in indices]
        first = members[0]
        source = data if data is not None else load(first.data)
        problem = train.make_problem(first, source, **given)
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
            train.check_servers(config, problem.layout)
            members[i] = dataclasses.replace(config, packet_size=size)
        examples = train.as_examples(source)
        groups.append(Group(np.asarray(indices), members, problem, examples, shards))
    return groups


def _shards(configs: Sequence[Config], data: data_lib.Data) -> np.ndarray:
    @functools.cache
    def make(alpha, seed):
        return make_shards(
            data.train_y, workers=configs[0].workers, dirichlet_alpha=alpha, seed=seed
        )

    return np.stack([make(config.dirichlet_alpha, config.shard_seed) for config in configs])


def sweep(
    config: Mapping[str, Any] | Config,
    *,
    workdir: Any = None,
    model: Any = None,
    loss: Any = None,
    optimizer: Any = None,
    channel: Any = None,
    aggregation: Any = None,
    data: data_lib.Data | None = None,
    data_dir: str | None = None,
    devices: Sequence[jax.Device] | None = None,
    memory_budget: int | None = None,
    verbose: bool = True,
) -> xr.Dataset:
    """Trains every config of a sweep.

    Args:
      config: field values and `sweep` axes, see ``expand`` and ``Config``.
      workdir: where results.nc, summary.csv and figures/ go; None: nothing is written. Started
        again with the same sweep, it goes on where it was interrupted.
      model, loss, optimizer, channel, aggregation: objects of your own in place of the named ones,
        see ``train.make_problem``.
      data: arrays of your own, ``jaxlossy.from_arrays(train, test)``, in place of the named data.
      data_dir: where prepared data sets are; None: where tensorflow-datasets keeps them.
      devices: to run on; None: all local ones.
      memory_budget: bytes of each device that a batch may take; None: most of what is free.
      verbose: print the plan and a progress bar.

    Returns:
      Dims (config, step), every config field a coordinate; see ``results``.

    Raises:
      ConfigError: wrong input; raised before anything is compiled.

    >>> ds = sweep(
    ...     {"steps": 4, "eval_every": 2, "sweep": {"drop_probability": (0.0, 0.2)}}, verbose=False
    ... )
    >>> dict(ds.sizes)
    {'config': 2, 'step': 2}
    """
    started = time.perf_counter()
    say = print if verbose else lambda *_: None
    devices = list(devices or jax.local_devices())
    objects = {
        "model": model,
        "optimizer": optimizer,
        "channel": channel,
        "aggregation": aggregation,
        "data": data,
    }
    configs, swept = expand(config)
    configs, given = _label(configs, swept, objects, loss)
    del objects["data"]
    groups = make_groups(configs, data=data, data_dir=data_dir, loss=loss, **objects)
    for group in groups:
        for index, member in zip(group.indices, group.configs, strict=True):
            configs[index] = member
    attributes = {
        "identity": results.identity(configs, given),
        "swept": json.dumps(swept),
        "given": json.dumps(given),
        "config": json.dumps(_jsonable(config), default=str),
        "compile_seconds": 0.0,
        "train_seconds": 0.0,
        **results.describe_machine(devices),
    }
    directory, earlier = None, None
    if workdir is not None:
        directory, earlier = results.open_workdir(workdir, attributes["identity"])
    ds = results.empty(configs, attributes) if earlier is None else earlier
    done = ds["completed"].values
    say(f"{len(configs)} configs in {len(groups)} group(s) on {attributes['device']}")
    if done.any():
        say(f"going on in {directory}: {done.sum()} configs are done")
    total = sum(c.steps for c, finished in zip(configs, done, strict=True) if not finished)
    with tqdm.auto.tqdm(
        total=total, unit=" config-steps", unit_scale=True, disable=not verbose or total == 0
    ) as bar:
        for number, group in enumerate(groups, 1):
            say_group = functools.partial(_say, bar if verbose else None, f"group {number}")
            _run_group(group, ds, directory, devices, memory_budget, bar, say_group)
    if directory is not None:
        results.save(ds, directory)
        figures.save_all(ds, directory / results.FIGURES)
    say(f"finished in {time.perf_counter() - started:.1f} s")
    return ds


def _label(configs, swept, objects, loss):
    """Configs whose names say what was given from Python in place of the named ones."""
    given = {field: _name(value) for field, value in objects.items() if value is not None}
    for field in given:
        if field in swept:
            raise ConfigError(f"sweep.{field}", given[field], "no axis where an object is given")
    data = objects["data"]
    names = dict(given)
    if loss is not None:
        given["loss"] = _name(loss)
    if data is not None:
        arrays = (data.train_x, data.train_y, data.test_x, data.test_y)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays))
        given["data_digest"] = digest.hexdigest()
    return [dataclasses.replace(config, **names) for config in configs], given


def _name(value: Any) -> str:
    if isinstance(value, data_lib.Data):
        return value.name
    if isinstance(value, tuple):  # an (init, apply) pair
        value = value[-1]
    return getattr(value, "__name__", type(value).__name__)


def _jsonable(config: Any) -> Any:
    if isinstance(config, Config):
        return dataclasses.asdict(config)
    return config.to_dict() if hasattr(config, "to_dict") else dict(config)


def _say(bar, prefix, text):
    if bar is not None:
        bar.write(f"{prefix}: {text}")


def _run_group(group, ds, directory, devices, memory_budget, bar, say):
    """Trains what is left of a group and fills the Dataset, batch by batch."""
    left = np.flatnonzero(~ds["completed"].values[group.indices])
    if left.size == 0:
        return
    config, problem = group.configs[0], group.problem
    layout = problem.layout
    say(
        f"{left.size} configs: {config.model} on {config.data}, {config.workers} workers, "
        f"{layout.num_parameters:,} parameters in {layout.num_packets} packets of {layout.size}"
    )
    footprint = memory.footprint(problem, config, group.examples, group.shards[0])
    budget = memory_budget or devices_lib.memory_budget(devices)
    replica_bytes = 4 * config.workers * layout.num_packets * layout.size
    plan = devices_lib.plan_batches(
        left.size,
        len(devices),
        footprint,
        budget=budget,
        live=devices_lib.max_live(devices, replica_bytes),
    )
    say(
        f"{plan.num_batches} batch(es) of {plan.batch} configs, {plan.live} live on each of "
        f"{len(devices)} device(s); about {_size(plan.estimated_bytes)} of {_size(budget)} each"
    )
    started = time.perf_counter()
    mesh = devices_lib.config_mesh(devices)
    examples = devices_lib.place(group.examples, mesh, split=False)
    program, state_shapes = _compile(group, examples, plan, mesh)
    ds.attrs["compile_seconds"] += (compiled := time.perf_counter()) - started
    say(f"compiled in {compiled - started:.1f} s")
    for chosen in np.split(left, range(plan.batch, left.size, plan.batch)):
        # The last batch is filled up with repeats, so that one program serves all.
        places = np.resize(chosen, plan.batch)
        items = (stack_configs([group.configs[i] for i in places]), group.shards[places])
        items = devices_lib.place(items, mesh, split=True)
        state = devices_lib.zeros(state_shapes, mesh)
        rows, waiting = [], None
        for segment in range(config.steps // config.eval_every):
            state, report = program((segment == 0, examples), state, items)
            if waiting is not None:  # fetched while the device is busy with the next segment
                rows.append(train.metrics(problem, *waiting))
                bar.update(chosen.size * config.eval_every)
            waiting = report
        rows.append(train.metrics(problem, *waiting))
        bar.update(chosen.size * config.eval_every)
        series = {
            name: np.stack([row[name] for row in rows], axis=-1)[: chosen.size] for name in rows[0]
        }
        results.fill(ds, group.indices[chosen], config, series)
        ds.attrs["train_seconds"] += (now := time.perf_counter()) - compiled
        compiled = now
        if directory is not None:
            results.save(ds, directory)


def _compile(group, examples, plan, mesh):
    """The group's one program: a segment, with the initial state drawn at its first call."""
    problem = group.problem

    def function(shared, state, item):
        first, examples = shared
        config, shards = item
        state = jax.lax.cond(
            first, lambda: train.init(problem, config, examples), lambda: state
        )
        return train.segment(problem, config, state, examples, shards)

    def batched(shape):
        return jax.ShapeDtypeStruct((plan.batch, *shape.shape), shape.dtype)

    config, shards = group.configs[0], group.shards[0]
    state = jax.eval_shape(functools.partial(train.init, problem), config, examples)
    scalars = jax.tree.map(lambda leaf: leaf[0], stack_configs([config]))
    state, items = jax.tree.map(batched, (state, (scalars, shards)))
    program = devices_lib.compile_over_configs(
        function, (False, examples), state, items, mesh=mesh, live=plan.live
    )
    return program, state


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"
