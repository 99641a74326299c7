"""The only file that knows about devices: a function of one config, mapped over many."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

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
    """Bytes that a batch may take on each device."""
    stats = [device.memory_stats() for device in devices]
    if all(stats):
        free = min(s["bytes_limit"] - s["bytes_in_use"] for s in stats if s)
    else:  # half of the host's memory, shared by its CPU devices
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (2 * len(devices))
    return int(MEMORY_SHARE * free)


def plan_batches(
    num_configs: int, num_devices: int, footprint: Footprint, *, budget: int, live: Live
) -> Plan:
    """Equal batches that fit the memory, with as little padding as that allows.

    Args:
      num_configs: in the group.
      num_devices: that share a batch.
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


def config_mesh(devices: Sequence[Any]) -> Mesh:
    """A mesh whose only axis is the config axis."""
    return Mesh(np.asarray(devices), ("config",))


def place(tree: Any, mesh: Mesh, *, split: bool) -> Any:
    """Puts arrays on the mesh: their leading axis split over the devices, or whole on each."""
    return jax.device_put(tree, NamedSharding(mesh, P("config") if split else P()))


def zeros(shapes: Any, mesh: Mesh) -> Any:
    """Arrays of zeros of the given shapes, split over the devices."""
    sharding = NamedSharding(mesh, P("config"))
    return jax.tree.map(
        lambda s: jax.numpy.zeros(s.shape, s.dtype, device=sharding),
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
    another: on a CPU a chunk then stays in the cache for all its steps.

    Args:
      function: of one config; returns (state, report).
      shared: shapes of what all configs see.
      state: shapes with a leading config axis, a multiple of devices * live; donated.
      items: likewise; what else one config needs.

    Returns:
      The compiled program; it takes exactly these shapes and can not compile again.
    """

    def on_device(shared, state, items):
        # A batch of one is not the same as none: its products would be batched, which is slower.
        batch_size = live if live > 1 else None
        return jax.lax.map(
            lambda part: function(shared, *part), (state, items), batch_size=batch_size
        )

    mapped = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(P(), P("config"), P("config")),
        out_specs=P("config"),
        check_vma=False,  # nothing is communicated, so there is nothing to check
    )
    return jax.jit(mapped, donate_argnums=1).lower(shared, state, items).compile()


def peak_bytes(compiled: Any) -> int:
    """Memory of one device while a program runs: what goes in and out, and what is in between."""
    found = compiled.memory_analysis()
    once = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return once + found.temp_size_in_bytes
