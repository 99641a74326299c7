"""Averaging with neighbours: a fixed mixing matrix, over links that may lose packets."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxlossy.aggregation import Aggregation
from jaxlossy.channel import Channel
from jaxlossy.packets import Assignment


def gossip(mixing: Float[Array, "worker worker"]) -> Aggregation:
    """The rule that every worker takes its row's weighted mean of its neighbours' replicas.

    A packet that did not arrive is replaced by the receiver's own (Soft-DSGD, Ye et al., arXiv
    2108.02397). Rows then still sum to 1, and in expectation columns do too, so that the mean
    model is kept on average; without losses it is kept exactly.

    Args:
      mixing: doubly stochastic, entry (receiver, sender).

    Returns:
      A rule for replicas, without memory. What it takes as `delivered` is Bool[Array, "receiver
      sender packet"], or None where everything arrives; a worker's own packets need no link.

    >>> rule = gossip(jnp.array([[0.5, 0.5], [0.5, 0.5]]))
    >>> arrived = jnp.array([[[True], [False]], [[True], [True]]])  # the first hears nothing
    >>> rule.apply((), jnp.array([[[1.0]], [[3.0]]]), arrived)[0].ravel()
    Array([1., 2.], dtype=float32)
    """

    def apply(
        state: Any,
        packets: Float[Array, "worker packet length"],
        delivered: Bool[Array, "receiver sender packet"] | None,
    ):
        if delivered is None:
            return jnp.einsum("rs,spl->rpl", mixing, packets), state
        weights = jnp.where(delivered, mixing[:, :, None], 0)
        weights = weights - jnp.eye(len(mixing))[:, :, None] * weights  # its own comes from `kept`
        kept = 1 - weights.sum(axis=1)
        return jnp.einsum("rsp,spl->rpl", weights, packets) + kept[:, :, None] * packets, state

    return Aggregation("model", lambda packets: (), apply)


def init_links(channel: Channel, workers: int, num_packets: int, *, key: jax.Array) -> Any:
    """What the links between all pairs of workers remember at first."""
    start = lambda key: channel.init(_one_link(num_packets), key=key)  # noqa: E731
    return jax.vmap(jax.vmap(start))(_link_keys(key, workers))


def transmit(
    channel: Channel, state: Any, workers: int, num_packets: int, *, key: jax.Array
) -> tuple[Bool[Array, "receiver sender packet"], Any]:
    """What arrives in one exchange, each directed link a channel of its own.

    A link's losses depend on its two ends and the key, not on how many workers there are.
    """

    def send(state, key):
        delivered, state = channel.sample(state, _one_link(num_packets), key=key)
        return delivered.up[0], state

    return jax.vmap(jax.vmap(send))(state, _link_keys(key, workers))


def _one_link(num_packets: int) -> Assignment:
    """To a channel, a link is a worker whose packets all go to one server on another machine."""
    server = jnp.zeros(num_packets, jnp.int32)
    return Assignment(server, server - 1, jnp.zeros((1, num_packets), bool))


def _link_keys(key: jax.Array, workers: int) -> jax.Array:
    places = jnp.arange(workers)
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(fold, in_axes=(0, None))(fold(key, places), places)
