"""A sweep: many configs, in groups that share a program, in batches that fit the device."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from tqdm import tqdm

from jaxlossy import checkpoint, memory, processes, program, results, trace, train, tuning
from jaxlossy import data as data_lib
from jaxlossy import devices as devices_lib
from jaxlossy.config import FIELDS, Config
from jaxlossy.errors import ConfigError
from jaxlossy.grid import Group, expand, make_groups

CHECKPOINT = "checkpoint.npz"


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
    devices: Sequence[Any] | None = None,
    worker_devices: int = 1,
    memory_budget: int | None = None,
    verbose: bool = True,
) -> xr.Dataset:
    """Trains every config of a sweep.

    Where ``jax.distributed.initialize`` has joined several processes, all of them call this with
    the same arguments; the first alone writes and prints.

    Args:
      config: field values and `sweep` axes, see ``expand`` and ``Config``.
      workdir: where results.nc, summary.csv and figures/ go; None: nothing is written. Started
        again with the same sweep, it goes on where it was interrupted.
      model, loss, optimizer, channel, aggregation: objects of your own in place of the named ones,
        see ``problem.make_problem``.
      data: arrays of your own, ``jaxlossy.from_arrays(train, test)``, in place of the named data.
      data_dir: where prepared data sets are; None: where tensorflow-datasets keeps them.
      devices: to run on; None: all, those of other processes too.
      worker_devices: how many devices share the workers of a config, for models whose replicas
        need more than one device's memory; changes no result.
      memory_budget: bytes of each device that a batch may take; None: most of what is free.
      verbose: print the plan and a progress bar.

    Returns:
      Dims (config, step), every config field a coordinate; see ``results``.

    Raises:
      ConfigError: wrong input; raised before anything is compiled.
      MemoryError: a device has too little memory for even one config at a time.

    >>> ds = sweep(
    ...     {"steps": 4, "eval_every": 2, "sweep": {"drop_probability": (0.0, 0.2)}}, verbose=False
    ... )
    >>> dict(ds.sizes)
    {'config': 2, 'step': 2}
    """
    started = time.perf_counter()
    devices = list(devices or jax.devices())
    processes.check_devices(devices)
    objects = {
        "model": model,
        "loss": loss,
        "optimizer": optimizer,
        "channel": channel,
        "aggregation": aggregation,
        "data": data,
    }
    configs, groups, attributes = processes.in_all(
        _prepare, config, objects, data_dir, devices, worker_devices, memory_budget
    )
    identity = attributes["identity"]
    processes.check_same("sweep", (identity, worker_devices, memory_budget, workdir is not None))
    directory, earlier = None, None
    if workdir is not None:
        directory, earlier = processes.in_first(results.open_workdir, workdir, identity)
    ds = results.empty(configs, attributes) if earlier is None else earlier
    if directory is not None and earlier is None:
        processes.in_first(results.save, ds, directory)  # from here on it is this sweep's
    done = ds["completed"].values
    steps = sum(c.steps for c, finished in zip(configs, done, strict=True) if not finished)
    with tqdm(
        total=steps,
        unit=" config-steps",
        unit_scale=True,
        disable=not (verbose and processes.is_first()),
        mininterval=0.5,
    ) as bar:
        run = _Run(ds, directory, devices, worker_devices, memory_budget, bar)
        run.say(f"{len(configs)} configs in {len(groups)} group(s) on {attributes['device']}")
        if done.any():
            run.say(f"going on in {directory}: {done.sum()} configs are done")
        for group in groups:
            _run_group(run, group)
        if directory is not None:
            processes.in_first(_finish, ds, directory)
        run.say(f"finished in {time.perf_counter() - started:.1f} s")
    return processes.in_first(lambda: ds)  # times measured differ between processes


def _prepare(
    config: Any,
    objects: dict[str, Any],
    data_dir: str | None,
    devices: list[Any],
    worker_devices: int,
    memory_budget: int | None,
) -> tuple[list[Config], list[Group], dict[str, Any]]:
    """The configs and their groups, all of them checked, and the attributes of their results."""
    if memory_budget is not None and not memory_budget > 0:
        raise ConfigError("memory_budget", memory_budget, "a number of bytes > 0")
    configs, swept = expand(config)
    for workers in sorted({config.workers for config in configs}):
        devices_lib.check_worker_devices(worker_devices, len(devices), workers)
    given = {field: _name(value) for field, value in objects.items() if value is not None}
    named = {field: name for field, name in given.items() if field in FIELDS}
    for field in named:
        if field in swept:
            raise ConfigError(f"sweep.{field}", given[field], "no axis where an object is given")
    configs = [dataclasses.replace(config, **named) for config in configs]
    groups = make_groups(configs, data_dir=data_dir, **objects)
    for group in groups:  # their configs have the packet size filled in
        for index, member in zip(group.indices, group.configs, strict=True):
            configs[index] = member
    if objects["data"] is not None:
        given["data_digest"] = _digest(objects["data"])
    for file in sorted({config.trace for config in configs if config.channel == "trace"}):
        given[f"digest of {file}"] = trace.digest(trace.load_traces(file))
    attributes = {
        "identity": results.identity(configs, given, [group.problem.layout for group in groups]),
        "swept": json.dumps(swept),
        "given": json.dumps(given),
        "config": json.dumps(_as_dict(config), default=str),
        "compile_seconds": 0.0,
        "train_seconds": 0.0,
        **results.describe_machine(devices),
    }
    return configs, groups, attributes


def _finish(ds: xr.Dataset, directory: Path) -> None:
    from jaxlossy import figures  # brings matplotlib, which importing jaxlossy need not

    figures.save_all(ds, directory / results.FIGURES)
    (directory / CHECKPOINT).unlink(missing_ok=True)


def _name(value: Any) -> str:
    if isinstance(value, data_lib.Data):
        return value.name
    if isinstance(value, tuple):  # an (init, apply) pair, or a Model, which begins with one
        value = value[:2][-1]
    return getattr(value, "__name__", type(value).__name__)


def _digest(data: data_lib.Data) -> str:
    arrays = (data.train_x, data.train_y, data.test_x, data.test_y)
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


class _Run(NamedTuple):
    """What stays the same from group to group."""

    ds: xr.Dataset
    directory: Path | None
    devices: list[Any]
    worker_devices: int
    memory_budget: int | None
    bar: tqdm

    def say(self, text: str) -> None:
        """Prints a line without breaking the progress bar."""
        if not self.bar.disable:
            self.bar.write(text)


def _run_group(run: _Run, group: Group) -> None:
    """Trains what is left of a group, batch by batch, and saves each batch as it ends."""
    left = np.flatnonzero(~run.ds["completed"].values[group.indices])
    if left.size == 0:
        return
    config, layout = group.configs[0], group.problem.layout
    devices = devices_lib.useful(run.devices, len(group.configs), run.worker_devices)
    budget = run.memory_budget or min(processes.gather(devices_lib.memory_budget(devices)))
    run.say(
        f"{left.size} configs: {config.model} on {config.data}, {config.aggregation}, "
        f"{config.workers} workers; {layout.num_parameters:,} parameters in "
        f"{layout.num_packets} packets of {layout.size}"
    )
    cost = memory.footprint(
        group.problem, config, group.examples, group.shards[0], run.worker_devices
    )
    start = time.perf_counter()
    live = processes.in_first(tuning.choose_live, group, devices, cost, budget, run.worker_devices)
    if (seconds := time.perf_counter() - start) > 1:
        run.say(f"  measured what to advance together in {seconds:.1f} s")
    # Planned for the whole group, so that a resumed sweep cuts the same batches.
    rows = len(devices) // run.worker_devices
    plan = devices_lib.plan_batches(len(group.configs), rows, cost, budget=budget, live=live)
    where = f"{len(devices)} device(s)"
    if run.worker_devices > 1:
        where = f"{rows} times {run.worker_devices} devices"
    run.say(
        f"  batches of {plan.batch} configs, {plan.live.configs} x {plan.live.workers} replicas "
        f"live on each of {where}; about {_size(plan.estimated_bytes)} of {_size(budget)} each"
        + (", which may not be enough" if plan.estimated_bytes > budget else "")
    )
    mesh = devices_lib.config_mesh(devices, run.worker_devices)
    while trouble := _run_batches(run, group, plan, mesh):
        smaller = tuning.halve_plan(len(group.configs), rows, cost, plan)
        if smaller is None:
            raise MemoryError(
                f"out of memory with one config at a time on each device: model {config.model!r} "
                f"with {layout.num_parameters:,} parameters, {config.workers} workers and "
                f"batch_size {config.batch_size}, about {_size(plan.estimated_bytes)} of "
                f"{_size(budget)} each; {trouble}"
            )
        plan = smaller
        run.say(
            f"  out of memory; going on with batches of {plan.batch} configs, "
            f"{plan.live.configs} x {plan.live.workers} replicas live on each device, "
            f"about {_size(plan.estimated_bytes)} each"
        )


def _run_batches(run: _Run, group: Group, plan: devices_lib.Plan, mesh: Any) -> str:
    """Compiles the group, trains what is left of it; says what stopped it if memory ran out."""
    left = np.flatnonzero(~run.ds["completed"].values[group.indices])
    progress = run.bar.n
    try:
        start = time.perf_counter()
        compiled = processes.in_all(program.compile_group, group, plan, mesh)
        now = time.perf_counter()
        run.ds.attrs["compile_seconds"] += now - start
        run.say(f"  compiled in {now - start:.1f} s")
        for chosen in np.split(left, range(plan.batch, left.size, plan.batch)):
            start, progress = time.perf_counter(), run.bar.n
            series = _train_batch(run, group, compiled, chosen)
            results.fill(run.ds, group.indices[chosen], group.configs[0], series)
            run.ds.attrs["train_seconds"] += time.perf_counter() - start
            if run.directory is not None:
                processes.in_first(results.save, run.ds, run.directory)
    except jax.errors.JaxRuntimeError as error:
        # Other processes may have enough, and would wait for this one to take its part.
        if not devices_lib.is_out_of_memory(error) or jax.process_count() > 1:
            raise
        run.bar.update(progress - run.bar.n)  # the batch's state was donated: it starts again
        # Only text leaves: the error's frames hold what has to be freed before the next attempt.
        return str(error).strip().splitlines()[0]
    return ""


def _train_batch(
    run: _Run, group: Group, compiled: program.Program, chosen: np.ndarray
) -> dict[str, np.ndarray]:
    """All segments of one batch; the metrics of its configs, (config, segment)."""
    # The last batch is filled up with repeats, so that one program serves all.
    places = np.resize(chosen, compiled.plan.batch)
    items = program.place_items(group, places, compiled.mesh)
    config, count = group.configs[0], chosen.size
    path, found, identity = None, None, run.ds.attrs["identity"]
    if run.directory is not None:
        path = run.directory / CHECKPOINT
        found = processes.in_first(
            checkpoint.load, path, identity, group.indices[places], compiled.state
        )
    if found is None:
        state, rows = devices_lib.zeros(compiled.state, compiled.mesh), []
    else:
        state, rows = devices_lib.place(found[0], compiled.mesh, split=True), found[1]
        run.say(f"  going on after {len(rows) * config.eval_every} steps of a batch")
        run.bar.update(count * config.eval_every * len(rows))

    waiting, saved = [], processes.in_first(time.perf_counter)

    def fetch():
        while waiting:
            rows.append(train.metrics(group.problem, *waiting.pop()))
            run.bar.update(count * config.eval_every)

    for segment in range(len(rows), config.steps // config.eval_every):
        # All go by one clock, or some would wait for others.
        if (
            path is not None
            and segment
            and processes.in_first(time.perf_counter) - saved > checkpoint.INTERVAL
        ):
            fetch()
            whole = processes.fetch(state)
            processes.in_first(checkpoint.save, path, identity, group.indices[places], whole, rows)
            saved = processes.in_first(time.perf_counter)
        state, report = compiled.run(segment == 0, state, items)
        fetch()  # the one before, while the device is busy with this one
        waiting.append(report)
    fetch()
    return {name: np.stack([row[name] for row in rows], axis=-1)[:count] for name in rows[0]}


def _as_dict(config: Any) -> dict[str, Any]:
    if isinstance(config, Config):
        return dataclasses.asdict(config)
    return config.to_dict() if hasattr(config, "to_dict") else dict(config)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
