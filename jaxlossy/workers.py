"""The worker axis: one worker's parameters, and functions mapped over all workers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlossy.packets import PacketLayout


def unpack_one(layout: PacketLayout, replica: Float[Array, "packet length"]) -> Any:
    """The parameters of one worker."""
    return jax.tree.map(lambda leaf: leaf[0], layout.unpack(replica[None]))


def pack_one(layout: PacketLayout, params: Any) -> Float[Array, "packet length"]:
    """The packets of one worker; inverse of ``unpack_one``."""
    return layout.pack(jax.tree.map(lambda leaf: leaf[None], params))[0]


def over_workers(
    live: int | None,
    function: Callable[[Any, Any], tuple[Any, Any]],
    states: Any,
    args: Any,
) -> tuple[Any, Any]:
    """Maps ``states, outputs = function(states, args)`` over the leading axis of all of these.

    Args:
      live: how many workers at a time, a divisor of their number; None for all. If not all, they
        advance in the states' place, so that no second copy of these is made.
      function: of one worker.
      states, args: pytrees; either may be empty.

    >>> total, doubled = over_workers(
    ...     2, lambda total, x: (total + x, 2 * x), jnp.ones(4), jnp.arange(4.0)
    ... )
    >>> total, doubled
    (Array([1., 2., 3., 4.], dtype=float32), Array([0., 2., 4., 6.], dtype=float32))
    """
    workers = jax.tree.leaves((states, args))[0].shape[0]
    if live in (None, workers):
        return jax.vmap(function)(states, args)
    if live == 1:
        # A batch of one is not the same as none: its operations would be batched, which is slower.
        several, index, put = (
            function,
            lambda leaf, start: jax.lax.dynamic_index_in_dim(leaf, start, keepdims=False),
            jax.lax.dynamic_update_index_in_dim,
        )
    else:
        several, index, put = (
            jax.vmap(function),
            lambda leaf, start: jax.lax.dynamic_slice_in_dim(leaf, start, live),
            jax.lax.dynamic_update_slice_in_dim,
        )

    def advance(states, start):
        part, args_here = jax.tree.map(lambda leaf: index(leaf, start), (states, args))
        part, outputs = several(part, args_here)
        return jax.tree.map(lambda leaf, new: put(leaf, new, start, 0), states, part), outputs

    states, outputs = jax.lax.scan(advance, states, jnp.arange(0, workers, live))
    if live > 1:
        outputs = jax.tree.map(lambda leaf: leaf.reshape(workers, *leaf.shape[2:]), outputs)
    return states, outputs
