"""The only file that knows about devices: a function of one config, mapped over many."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlossy.errors import ConfigError

#: Working bytes that are worth keeping live at once on a CPU, where more leave the cache.
#: Measured in BUILD_NOTES.md; accelerators take a whole batch at once.
CPU_LIVE_BYTES = 24 * 2**20
#: Share of a device's free memory that a batch may take.
MEMORY_SHARE = 0.8


class Plan(NamedTuple):
    """How the configs of a group run.

    Attributes:
      batch: configs in one call of the program, over all devices; devices * chunks * live.
      live: configs that one device advances together; it takes its chunks one after another.
      num_batches: calls per segment that cover the group, the last one padded.
      estimated_bytes: memory of one device while a batch runs.
    """

    batch: int
    live: int
    num_batches: int
    estimated_bytes: int


class Footprint(NamedTuple):
    """Bytes on a device: per config of the batch, per live config, and once."""

    held: int
    working: int
    shared: int


def max_live(devices: Sequence[Any], footprint: Footprint) -> int | None:
    """Configs worth advancing together on one device; None for as many as fit."""
    if devices[0].platform != "cpu":
        return None
    return max(1, CPU_LIVE_BYTES // footprint.working)


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
    num_configs: int, num_devices: int, footprint: Footprint, *, budget: int, live: int | None
) -> Plan:
    """Equal batches that fit the memory, with as little padding as that allows.

    Args:
      num_configs: in the group.
      num_devices: that share a batch; those that share workers count as one.
      footprint: of one config.
      budget: bytes on each device. One live config per device runs even where it does not fit.
      live: most configs to advance together on a device; None: no limit of its own.

    >>> plan_batches(240, 2, Footprint(10, 20, 0), budget=10_000, live=16)
    Plan(batch=240, live=15, num_batches=1, estimated_bytes=1500)
    >>> plan_batches(240, 2, Footprint(10, 20, 0), budget=1000, live=16)
    Plan(batch=120, live=15, num_batches=2, estimated_bytes=900)
    """
    room = max(0, budget - footprint.shared)
    each = math.ceil(num_configs / num_devices)  # configs of one device, all batches together
    most = max(1, room // (footprint.held + footprint.working))
    live = min(each, most, live or each)
    fit = max(1, (room - live * footprint.working) // (live * footprint.held))  # chunks
    share = math.ceil(each / math.ceil(each / (fit * live)))  # configs of one device in a batch
    # Somewhat fewer live configs where that leaves less to fill up.
    live = min(range(live // 2 + 1, live + 1), key=lambda n: (math.ceil(share / n) * n, -n))
    chunks = math.ceil(share / live)
    batch = num_devices * chunks * live
    estimate = footprint.shared + live * (chunks * footprint.held + footprint.working)
    return Plan(batch, live, math.ceil(num_configs / batch), estimate)


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
        def split(leaf):
            return leaf.reshape(-1, live, *leaf.shape[1:])

        def join(leaf):
            return leaf.reshape(-1, *leaf.shape[2:])

        def chunk(part):
            return jax.vmap(function, in_axes=(None, 0, 0))(shared, *part)

        return jax.tree.map(join, jax.lax.map(chunk, jax.tree.map(split, (state, items))))

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
