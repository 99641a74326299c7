"""Functions mapped over a leading axis, chunk by chunk, in the place of what they change.

That axis is the configs of a batch, or the workers of a config. What is live at once is small
enough for a cache or for the memory; the rest waits where it lies, and no second copy is made.
"""

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


class View(abc.ABC):
    """A pytree that is seen as other leaves than it has; its own ones have the leading axis too."""

    @abc.abstractmethod
    def take(self, start: Any, count: int) -> Any:
        """So many places from the start on; a single one without the leading axis."""

    @abc.abstractmethod
    def put(self, part: Any, start: Any, count: int) -> "View":
        """The same with a part in the place where ``take`` found it."""


def map_in_place(
    live: int | None,
    function: Callable[[Any, Any], tuple[Any, Any]],
    states: Any,
    args: Any,
) -> tuple[Any, Any]:
    """Maps ``states, outputs = function(states, args)`` over the leading axis of all of these.

    Args:
      live: how many places at a time, a divisor of their number; None for all.
      function: of one place.
      states, args: pytrees; either may be empty, and both may have views in them.

    >>> total, doubled = map_in_place(
    ...     2, lambda total, x: (total + x, 2 * x), jnp.ones(4), jnp.arange(4.0)
    ... )
    >>> total, doubled
    (Array([1., 2., 3., 4.], dtype=float32), Array([0., 2., 4., 6.], dtype=float32))
    """
    length = jax.tree.leaves((states, args))[0].shape[0]
    count = live or length
    # A batch of one is not the same as none: its operations would be batched, which is slower.
    several = function if count == 1 else jax.vmap(function)

    def advance(states, start):
        part, outputs = several(_take(states, start, count), _take(args, start, count))
        return _put(states, part, start, count), outputs

    # Unsigned, as JAX would else see to negative ones with an operation of its own.
    starts = jnp.arange(0, length, count, jnp.uint32)
    if count == length > 1:
        return advance(states, starts[0])
    states, outputs = jax.lax.scan(advance, states, starts)
    if count > 1:
        outputs = jax.tree.map(lambda leaf: leaf.reshape(length, *leaf.shape[2:]), outputs)
    return states, outputs


def _is_view(leaf: Any) -> bool:
    return isinstance(leaf, View)


def _take(tree: Any, start: Any, count: int) -> Any:
    def take(leaf):
        if _is_view(leaf):
            return leaf.take(start, count)
        if count == len(leaf) > 1:
            return leaf
        if count == 1:
            return jax.lax.dynamic_index_in_dim(leaf, start, keepdims=False)
        return jax.lax.dynamic_slice_in_dim(leaf, start, count)

    return jax.tree.map(take, tree, is_leaf=_is_view)


def _put(tree: Any, part: Any, start: Any, count: int) -> Any:
    def put(leaf, new):
        if _is_view(leaf):
            return leaf.put(new, start, count)
        if count == len(leaf) > 1:
            return new
        update = jax.lax.dynamic_update_slice_in_dim
        if count == 1:
            update = jax.lax.dynamic_update_index_in_dim
        return update(leaf, new, start, 0)

    return jax.tree.map(put, tree, part, is_leaf=_is_view)
