"""What receivers do with what arrived.

An aggregation is an (init, apply) pair of pure functions over packets, made by a factory, and the
name of what it is applied to: the replicas after their local steps, or the gradients before the
optimizer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlossy.channel import Delivered
from jaxlossy.config import Config
from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import averages
from jaxlossy.kernels.calls import call, like


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

    def on_cpu(packets, up, down):
        # As rows, as which the workers' trees were put there: in another shape XLA would copy them.
        rows = packets.reshape(len(packets), -1)
        shapes = like(rows, *rows.shape), like(rows, 4 * len(rows))
        rows, _ = call(averages.average, shapes, rows, up, down, in_place=True)
        return rows.reshape(packets.shape)

    def in_xla(packets, up, down):
        # A lost copy is left out by where: a weight of 0 would let a diverged worker's inf through.
        total = jnp.where(up[:, :, None], packets, 0).sum(axis=0, keepdims=True)
        count = up.sum(axis=0, keepdims=True, dtype=packets.dtype)
        average = total / jnp.maximum(count, 1)[:, :, None]
        return jnp.where((down & (count > 0))[:, :, None], average, packets)

    cpu = on_cpu if packets.dtype == jnp.float32 else in_xla
    return platform_dependent(packets, *delivered, cpu=cpu, default=in_xla)


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
