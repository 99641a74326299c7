"""What receivers do with what arrived.

An aggregation is an (init, apply) pair of pure functions over packets, made by a factory, and the
name of what it is applied to: the replicas after their local steps, or the gradients before the
optimizer.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlossy.channel import Delivered
from jaxlossy.config import Config
from jaxlossy.devices import platform_dependent

#: Bytes of all workers' copies of a run of packets, on CPUs; measured in BUILD_NOTES.md.
RUN_BYTES = 768 * 2**10


class Aggregation(NamedTuple):
    """A rule.

    Attributes:
      payload: 'model': workers exchange their replicas, after their local steps; 'gradient': they
        exchange gradients, and each applies what it ends up with to its own replica.
      init: ``state = init(packets)``, from the first payload's shape; () for no memory.
      apply: ``packets, state = apply(state, packets, delivered)``; what every worker holds in the
        end, from what every worker had: Float[Array, "worker packet length"] both.
    """

    payload: str
    init: Callable[..., Any]
    apply: Callable[..., tuple[Any, Any]]


def average_arrived(
    packets: Float[Array, "worker packet length"], delivered: Delivered
) -> Float[Array, "worker packet length"]:
    """RPS: servers average what arrived, workers keep their own where nothing comes back.

    The average divides by the number that arrived, not by N. A server that received nothing (which
    takes separate servers) is silent. (Yu et al. 2019, arXiv 1810.07766, algorithm 1.)

    >>> from jaxlossy.channel import Delivered
    >>> up = jnp.array([[True], [True], [False]])
    >>> down = jnp.array([[True], [False], [True]])
    >>> average_arrived(jnp.array([[[1.0]], [[3.0]], [[8.0]]]), Delivered(up, down)).ravel()
    Array([2., 3., 2.], dtype=float32)
    """
    return platform_dependent(packets, delivered, cpu=_average_run_by_run, default=_average_at_once)


def _average_at_once(packets, delivered):
    # A lost copy is left out by where: a weight of 0 would let a diverged worker's inf through.
    total = jnp.where(delivered.up[:, :, None], packets, 0).sum(axis=0)
    return _receive(packets, total, delivered)


def _average_run_by_run(packets, delivered):
    """The same for XLA's CPU backend, which would write out all that arrived before it sums.

    Workers are added one by one, indexed in a loop: a scan over a batch of configs would transpose
    all replicas first. Runs of packets are so short that the cache still has them at the end.
    """
    workers, num_packets, length = packets.shape
    size = max(1, RUN_BYTES // (workers * length * packets.dtype.itemsize))
    # Never all of them: XLA writes a part of an array in its place, but makes a new one of a whole.
    size = min(size, math.ceil(num_packets / 2))

    def average_run(packets, start, size):
        def part(array):
            return jax.lax.dynamic_slice_in_dim(array, start, size, axis=1)

        masks = Delivered(*map(part, delivered))

        def add(worker, total):
            one = jax.lax.dynamic_slice(packets, (worker, start, 0), (1, size, length))[0]
            here = jax.lax.dynamic_index_in_dim(masks.up, worker, keepdims=False)
            return total + jnp.where(here[:, None], one, 0)

        total = jnp.zeros((size, length), packets.dtype)
        total = jax.lax.fori_loop(0, workers, add, total, unroll=4)
        run = _receive(part(packets), total, masks)
        return jax.lax.dynamic_update_slice_in_dim(packets, run, start, axis=1)

    whole = num_packets // size
    packets = jax.lax.fori_loop(0, whole, lambda i, p: average_run(p, i * size, size), packets)
    left = num_packets - whole * size
    return average_run(packets, whole * size, left) if left else packets


def _receive(packets, total, delivered):
    """What every worker holds, from the sum of what arrived at the servers."""
    count = delivered.up.sum(axis=0, keepdims=True, dtype=packets.dtype)
    average = total[None] / jnp.maximum(count, 1)[:, :, None]
    received = delivered.down & (count > 0)
    return jnp.where(received[:, :, None], average, packets)


def _rps(payload: str) -> Aggregation:
    return Aggregation(
        payload=payload,
        init=lambda packets: (),
        apply=lambda state, packets, delivered: (average_arrived(packets, delivered), state),
    )


def model_averaging() -> Aggregation:
    """The RPS algorithm: local steps, then ``average_arrived`` on the replicas."""
    return _rps("model")


def gradient_averaging() -> Aggregation:
    """The RPS paper's baseline: ``average_arrived`` on the gradients, then the optimizer.

    Each worker applies the average where it arrived and its own gradient elsewhere, to its own
    replica, so what a loss sets apart is never mixed again.
    """
    return _rps("gradient")


#: Name to factory: how a config becomes an aggregation.
AGGREGATIONS: dict[str, Callable[[Config], Aggregation]] = {
    "model_averaging": lambda config: model_averaging(),
    "gradient_averaging": lambda config: gradient_averaging(),
}
