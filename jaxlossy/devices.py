"""The only file that knows about devices: a function of one config, mapped over many."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlossy.chunks import map_in_place
from jaxlossy.errors import ConfigError

#: Share of a device's free memory that a batch may take.
MEMORY_SHARE = 0.8


class Live(NamedTuple):
    """What a device advances together; the rest of its share of a batch comes after it.

    Attributes:
      configs: that many.
      workers: of a config, those whose gradients are computed together; all of them where several
        configs are live.
    """

    configs: int
    workers: int


class Plan(NamedTuple):
    """How the configs of a group run.

    Attributes:
      batch: configs in one call of the program, over all devices; devices * chunks * live.configs.
      live: what a device advances together.
      num_batches: calls per segment that cover the group, the last one padded.
      estimated_bytes: memory of one device while a batch runs.
    """

    batch: int
    live: Live
    num_batches: int
    estimated_bytes: int


class Footprint(NamedTuple):
    """Bytes on a device: per config of a batch, per live config, per live replica, and once."""

    held: int
    config: int
    replica: int
    shared: int

    def working(self, live: Live) -> int:
        """Bytes of what is live."""
        return live.configs * (self.config + live.workers * self.replica)

    def total(self, live: Live, configs: int) -> int:
        """Bytes of a device with that many configs of a batch."""
        return self.shared + configs * self.held + self.working(live)


def memory_budget(devices: Sequence[Any]) -> int:
    """Bytes that a batch may take on each device of this process."""
    here = [device for device in devices if device.process_index == jax.process_index()]
    stats = [device.memory_stats() for device in here]
    if all(stats):
        free = min(s["bytes_limit"] - s["bytes_in_use"] for s in stats if s)
    else:  # half of the host's memory, shared by CPU devices that may all be on this host
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (2 * len(devices))
    return int(MEMORY_SHARE * free)


def plan_batches(
    num_configs: int, num_devices: int, footprint: Footprint, *, budget: int, live: Live
) -> Plan:
    """Equal batches that fit the memory, with as little padding as that allows.

    Args:
      num_configs: in the group.
      num_devices: that share a batch; those that share workers count as one.
      footprint: of one config.
      budget: bytes on each device. One live config per device runs even where it does not fit.
      live: most to advance together on a device.

    >>> plan = plan_batches(240, 2, Footprint(10, 4, 1, 0), budget=10_000, live=Live(16, 16))
    >>> plan.batch, plan.live.configs, plan.num_batches, plan.estimated_bytes
    (240, 15, 1, 1500)
    >>> plan = plan_batches(240, 2, Footprint(10, 4, 1, 0), budget=1000, live=Live(16, 16))
    >>> plan.batch, plan.live.configs, plan.num_batches, plan.estimated_bytes
    (120, 15, 2, 900)
    """
    room = max(0, budget - footprint.shared)
    one = footprint.working(live._replace(configs=1))
    each = math.ceil(num_configs / num_devices)  # configs of one device, all batches together
    most = max(1, room // (footprint.held + one))
    together = min(each, most, live.configs)
    fit = max(1, (room - together * one) // (together * footprint.held))  # chunks
    share = math.ceil(each / math.ceil(each / (fit * together)))  # of one device in a batch
    # Somewhat fewer live configs where that leaves less to fill up.
    together = min(
        range(together // 2 + 1, together + 1), key=lambda n: (math.ceil(share / n) * n, -n)
    )
    live = live._replace(configs=together)
    share = math.ceil(share / together) * together
    batch = num_devices * share
    num_batches = math.ceil(num_configs / batch)
    return Plan(batch, live, num_batches, footprint.total(live, share))


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that a device's memory did not suffice.

    It may be raised by compiling, by a call, or where the call's result is fetched.
    """
    return "RESOURCE_EXHAUSTED" in str(error)


def check_worker_devices(worker_devices: int, num_devices: int, workers: int) -> None:
    """Refuses a number of devices per config that does not divide the devices and the workers."""
    if worker_devices < 1 or num_devices % worker_devices or workers % worker_devices:
        allowed = f"a divisor of {num_devices} devices and of workers={workers}"
        raise ConfigError("worker_devices", worker_devices, allowed)


def useful(devices: Sequence[Any], num_configs: int, worker_devices: int) -> list[Any]:
    """The devices that so many configs can keep busy; no process is left without one."""
    if jax.process_count() > 1:
        return list(devices)
    return list(devices[: num_configs * worker_devices])


def config_mesh(devices: Sequence[Any], worker_devices: int = 1) -> Mesh:
    """A mesh of a config axis and a worker axis: so many devices share the workers of a config."""
    return Mesh(np.asarray(devices).reshape(-1, worker_devices), ("config", "worker"))


def _split(mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
    """The config axis over the devices, and the axis behind it, where there is one that divides.

    That is the worker axis of every array that has one. It may be another axis of what a channel
    or an aggregation remembers: where numbers lie never changes what they are.
    """
    inner = ("worker",) if len(shape) > 1 and shape[1] % mesh.shape["worker"] == 0 else ()
    return NamedSharding(mesh, P("config", *inner))


def place(tree: Any, mesh: Mesh, *, split: bool) -> Any:
    """Puts arrays on the mesh: split over the devices, or whole on each.

    Args:
      tree: arrays on the host, the same in every process.
    """

    def put(leaf):
        sharding = _split(mesh, leaf.shape) if split else NamedSharding(mesh, P())
        return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])

    return jax.tree.map(put, tree)


def zeros(shapes: Any, mesh: Mesh) -> Any:
    """Arrays of zeros of the given shapes, split over the devices."""
    return jax.tree.map(
        lambda s: jax.numpy.zeros(s.shape, s.dtype, device=_split(mesh, s.shape)),
        shapes,
    )


def compile_over_configs(
    function: Callable[[Any, Any, Any], Any],
    shared: Any,
    state: Any,
    items: Any,
    *,
    mesh: Mesh,
    live: int,
) -> Callable[[Any, Any, Any], Any]:
    """One program that applies ``function(shared, state, item)`` to every config of a batch.

    Each device takes its share of the leading axis in chunks of `live` configs, one chunk after
    another: on a CPU a chunk then stays in the cache for all its steps. Devices along the mesh's
    worker axis share the workers of a config; what they then have to tell each other is worked
    out by the compiler, from where state and items lie.

    Args:
      function: of one config; returns (state, report).
      shared: shapes of what all configs see.
      state: shapes with a leading config axis, a multiple of what the mesh's is long * live;
        donated.
      items: likewise; what else one config needs.

    Returns:
      The compiled program; it takes exactly these shapes, placed by ``place`` and ``zeros``, and
      can not compile again. Its report is readable in every process.
    """

    def on_device(shared, state, items):
        return map_in_place(live, functools.partial(function, shared), state, items)

    mapped = jax.shard_map(
        on_device,
        mesh=mesh,
        axis_names={"config"},
        in_specs=(P(), P("config"), P("config")),
        out_specs=P("config"),
        check_vma=False,  # nothing is communicated over it, so there is nothing to check
    )
    lie = jax.tree.map(lambda shape: _split(mesh, shape.shape), (state, items))
    report = NamedSharding(mesh, P() if mesh.is_multi_process else P("config"))
    return (
        jax.jit(
            mapped,
            donate_argnums=1,
            in_shardings=(NamedSharding(mesh, P()), *lie),
            out_shardings=(lie[0], report),
        )
        .lower(shared, state, items)
        .compile()
    )


def peak_bytes(compiled: Any) -> int:
    """Memory of one device while a program runs: what goes in and out, and what is in between."""
    found = compiled.memory_analysis()
    once = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return once + found.temp_size_in_bytes


def platform_dependent(*args: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """``jax.lax.platform_dependent`` for forms that take workers one by one on CPUs.

    Devices that share the workers of a config would all need all of them for that.
    """
    if jax.sharding.get_abstract_mesh().shape.get("worker", 1) > 1:
        return default(*args)
    return jax.lax.platform_dependent(*args, cpu=cpu, default=default)
