"""Loss models of the network: which packets arrive.

A channel is an (init, sample) pair of pure functions, made by a factory from its rates, which may
be traced. What a machine sends to itself never touches the network: ``transmit`` sees to that for
every channel.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxlossy.config import Config
from jaxlossy.errors import check_name
from jaxlossy.packets import Assignment


class Delivered(NamedTuple):
    """True where a packet arrived.

    Attributes:
      up: uplink, from the worker to the packet's server (reduce-scatter).
      down: downlink, from the packet's server to the worker (all-gather).
    """

    up: Bool[Array, "worker packet"]
    down: Bool[Array, "worker packet"]


class Channel(NamedTuple):
    """A loss model.

    Attributes:
      init: ``state = init(assignment, key=key)``; whatever the links remember from step to step,
        () for nothing; arrays of numbers. The assignment gives the shapes.
      sample: ``delivered, state = sample(state, assignment, key=key)``; the fate of every packet if
        all of them crossed the network. Pure; uses its key once.
    """

    init: Callable[..., Any]
    sample: Callable[..., tuple[Delivered, Any]]


def bernoulli(
    uplink_drop_probability: Float[Array, ""] | float,
    downlink_drop_probability: Float[Array, ""] | float,
    *,
    loss_unit: str = "message",
) -> Channel:
    """Independent losses with one probability per direction (Yu et al. 2019, arXiv 1810.07766).

    The uniform numbers depend on the key alone: channels that differ in their probabilities only
    lose the same packets as far as they can, so comparisons between them have little noise.

    Args:
      uplink_drop_probability, downlink_drop_probability: in [0, 1]; may be traced.
      loss_unit: 'message': all packets between one worker and one server, one way, share their
        fate (the paper's setting); 'packet': each packet has its own.

    Returns:
      A channel without state.
    """
    check_name("loss_unit", loss_unit, LOSS_UNITS)

    def init(assignment: Assignment, *, key: jax.Array) -> tuple[()]:
        del assignment, key
        return ()

    def sample(
        state: tuple[()], assignment: Assignment, *, key: jax.Array
    ) -> tuple[Delivered, tuple[()]]:
        uniform = jax.random.uniform(key, (2, *assignment.local.shape), jnp.float32)
        if loss_unit == "message":  # the server's number picks the number that all its packets use
            uniform = uniform[:, :, assignment.server]
        up = uniform[0] >= uplink_drop_probability
        down = uniform[1] >= downlink_drop_probability
        return Delivered(up, down), state

    return Channel(init, sample)


LOSS_UNITS = ("message", "packet")

#: Name to factory: how a config becomes a channel.
CHANNELS: dict[str, Callable[[Config], Channel]] = {
    "bernoulli": lambda config: bernoulli(
        config.uplink_drop_probability,  # pyright: ignore[reportArgumentType]  (make_config fills it in)
        config.downlink_drop_probability,  # pyright: ignore[reportArgumentType]
        loss_unit=config.loss_unit,
    ),
}


def transmit(
    channel: Channel, state: Any, assignment: Assignment, *, key: jax.Array
) -> tuple[Delivered, Any]:
    """What arrives in one step, a machine's packets to itself included."""
    delivered, state = channel.sample(state, assignment, key=key)
    return Delivered(delivered.up | assignment.local, delivered.down | assignment.local), state


class Traffic(NamedTuple):
    """Packets of one step that crossed the network, all workers together.

    Attributes:
      sent_up, sent_down: put on the wire, each way.
      delivered_up, delivered_down: of these, the ones that arrived.
      sent_last: of both ways' sent ones, those of the model's last, shorter packet.
    """

    sent_up: jax.Array
    sent_down: jax.Array
    delivered_up: jax.Array
    delivered_down: jax.Array
    sent_last: jax.Array


def traffic(assignment: Assignment, delivered: Delivered) -> Traffic:
    """Counts the packets of one step; a server that received nothing sends nothing."""
    sent_up = ~assignment.local
    sent_down = sent_up & delivered.up.any(axis=0, keepdims=True)

    def count(mask):
        return mask.sum(dtype=jnp.int32)

    return Traffic(
        sent_up=count(sent_up),
        sent_down=count(sent_down),
        delivered_up=count(sent_up & delivered.up),
        delivered_down=count(sent_down & delivered.down),
        sent_last=count(sent_up[:, -1]) + count(sent_down[:, -1]),
    )
