"""Loss models of the network: which packets arrive.

A channel is an (init, sample) pair of pure functions, made by a factory from its rates, which may
be traced. What a machine sends to itself never touches the network: ``transmit`` sees to that for
every channel.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxlossy import trace as trace_lib
from jaxlossy.config import Config
from jaxlossy.errors import ConfigError, check_name
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
        up, down = _uniform(key, assignment, loss_unit)
        return Delivered(up >= uplink_drop_probability, down >= downlink_drop_probability), state

    return Channel(init, sample)


def _uniform(key: jax.Array, assignment: Assignment, loss_unit: str) -> jax.Array:
    """A number in [0, 1) for every packet, (direction, worker, packet)."""
    uniform = jax.random.uniform(key, (2, *assignment.local.shape), jnp.float32)
    if loss_unit == "message":  # the server's number picks the number that all its packets use
        uniform = uniform[:, :, assignment.server]
    return uniform


def gilbert_elliott(
    uplink_drop_probability: Float[Array, ""] | float,
    downlink_drop_probability: Float[Array, ""] | float,
    uplink_burst_ratio: Float[Array, ""] | float,
    downlink_burst_ratio: Float[Array, ""] | float,
    *,
    loss_unit: str = "message",
) -> Channel:
    """Losses in bursts: a link is good, and loses nothing, or bad, and loses everything.

    What crosses a link finds its state as the one before left it with probability 1 - 1/B, else
    drawn anew: bad with probability p. So a share p is lost, n packets apart correlate as
    (1 - 1/B)^n, and bursts last B / (1-p) packets on average, B times as long as independent losses
    of that rate would (the burst ratio of ITU-T G.107). B = 1 is ``bernoulli``, number by number.
    This is Gilbert's chain with states that can be seen in the losses; the probabilities of loss
    within the states, which Elliott's general form adds, are 0 and 1. In the usual terms, it goes
    from good to bad with probability p/B and back with probability (1-p)/B.

    A link joins a worker and the machine that a server runs on, one way. It keeps its state from
    packet to packet and from step to step, and starts stationary. Channels that differ in p only
    lose the same packets as far as they can.

    Args:
      uplink_drop_probability, downlink_drop_probability: p, in [0, 1]; may be traced.
      uplink_burst_ratio, downlink_burst_ratio: B, at least 1; may be traced.
      loss_unit: what moves the chain on: 'packet', or 'message', whose packets share its state.

    Reference:
      Gilbert, Capacity of a burst-noise channel, 1960; Elliott, Estimates of error rates for codes
      on burst-noise channels, 1963.
    """
    check_name("loss_unit", loss_unit, LOSS_UNITS)
    rates = (
        (uplink_drop_probability, uplink_burst_ratio),
        (downlink_drop_probability, downlink_burst_ratio),
    )

    def init(assignment: Assignment, *, key: jax.Array) -> tuple[jax.Array, ...]:
        workers, num_packets = assignment.local.shape
        links = max(workers, num_packets)  # to a machine that may be a worker or one server of many
        uniform = jax.random.uniform(key, (2, workers, links), jnp.float32)
        return tuple(u < p for u, (p, _) in zip(uniform, rates, strict=True))

    def sample(
        state: tuple[jax.Array, ...], assignment: Assignment, *, key: jax.Array
    ) -> tuple[Delivered, tuple[jax.Array, ...]]:
        uniform = _uniform(key, assignment, loss_unit)
        bad, state = zip(
            *(
                _run_chains(bad, u, p, burst_ratio, assignment)
                for bad, u, (p, burst_ratio) in zip(state, uniform, rates, strict=True)
            ),
            strict=True,
        )
        return Delivered(~bad[0], ~bad[1]), state

    return Channel(init, sample)


def _run_chains(
    bad: Bool[Array, "worker link"],
    uniform: Float[Array, "worker packet"],
    p: Float[Array, ""] | float,
    burst_ratio: Float[Array, ""] | float,
    assignment: Assignment,
) -> tuple[Bool[Array, "worker packet"], Bool[Array, "worker link"]]:
    """Whether each packet finds its link bad, and how the links are left."""
    redrawn_bad = uniform < p / burst_ratio
    # Written so that burst_ratio 1 leaves no number in between, whatever the rounding.
    kept = ~redrawn_bad & (uniform < 1 - (1 - p) / burst_ratio) & (burst_ratio > 1)

    # A server's packets are one run, whose first has its state from the step before.
    server = assignment.server
    link = jnp.where(assignment.host >= 0, assignment.host, server)
    first = jnp.concatenate([jnp.ones(1, bool), server[1:] != server[:-1]])[None]
    redrawn_bad = jnp.where(kept & first, bad[:, link], redrawn_bad)
    kept &= ~first

    # The latest state drawn is at the largest number so far: one cumulative maximum finds them all.
    number = jnp.arange(link.size, dtype=jnp.int32)
    drawn = jnp.where(kept, -1, 2 * number[None] + redrawn_bad.astype(jnp.int32))
    found = jax.lax.cummax(drawn, axis=1) % 2 == 1
    last = jnp.full(bad.shape[1], -1, jnp.int32).at[link].max(number)
    return found, jnp.where(last[None] >= 0, found[:, last], bad)


def recorded(*traces: trace_lib.Trace) -> Callable[[Config], Channel]:
    """What a network delivered once, over again: pass it as the channel of a sweep.

    The traces lie on the device, eight packets a byte, as a part of the program. Step by step one
    of them is played back, `trace_index` of the config saying which, and from its beginning again
    after its last iteration. Every seed sees the same; drop probabilities count for nothing.

    Args:
      traces: of one network's links: the same shapes, servers and placement.

    Returns:
      A factory of channels, which refuses configs with other workers, servers, placement, packets
      or a `trace_index` beyond the traces.

    Raises:
      ConfigError: no traces, or traces that differ in more than what was delivered.

    >>> lossless = jnp.ones((5, 16, 64), bool)  # iteration, worker, packet
    >>> trace = trace_lib.Trace(lossless, lossless, servers=1, placement="fixed")
    >>> channel = recorded(trace)(Config(placement="fixed"))
    >>> recorded(trace)(Config(placement="fixed", servers=2))
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: servers: 2 is not allowed (allowed: 1, as in the recorded trace)
    """
    first = trace_lib.check_alike(traces)
    bits = trace_lib.pack(traces)
    iterations, num_packets = len(first.up), first.num_packets

    def make(config: Config) -> Channel:
        for name in ("workers", "servers", "placement"):
            expected, found = getattr(first, name), getattr(config, name)
            # Inside a program `servers` has no value: it has been checked before.
            if isinstance(found, int | str) and found != expected:
                raise ConfigError(name, found, f"{expected!r}, as in the recorded trace")
        index = config.trace_index
        if isinstance(index, int) and index >= len(traces):
            allowed = f"below {len(traces)}, the number of recorded traces"
            raise ConfigError("trace_index", index, allowed)

        def init(assignment: Assignment, *, key: jax.Array) -> jax.Array:
            del key
            found = assignment.local.shape[1]
            if found != num_packets:
                allowed = f"recorded with {found} packets a model; packet_size changes how many"
                raise ConfigError("trace", f"{num_packets} packets a model", allowed)
            return jnp.zeros((), jnp.int32)

        def sample(
            iteration: jax.Array, assignment: Assignment, *, key: jax.Array
        ) -> tuple[Delivered, jax.Array]:
            del assignment, key
            now = jnp.unpackbits(jnp.asarray(bits)[index, iteration], axis=-1, count=num_packets)
            return Delivered(*now.astype(bool)), (iteration + 1) % iterations

        return Channel(init, sample)

    make.__name__ = f"recorded_{trace_lib.digest(traces)}"  # tells sweeps of other traces apart
    return make


_recorded_once = functools.lru_cache(maxsize=4)(recorded)  # a sweep asks once for every config


def _from_file(config: Config) -> Channel:
    return _recorded_once(*trace_lib.load_traces(config.trace))(config)


LOSS_UNITS = ("message", "packet")

#: Name to factory: how a config becomes a channel.
CHANNELS: dict[str, Callable[[Config], Channel]] = {
    "bernoulli": lambda config: bernoulli(
        config.uplink_drop_probability,  # pyright: ignore[reportArgumentType]  (make_config fills it in)
        config.downlink_drop_probability,  # pyright: ignore[reportArgumentType]
        loss_unit=config.loss_unit,
    ),
    "gilbert_elliott": lambda config: gilbert_elliott(
        config.uplink_drop_probability,  # pyright: ignore[reportArgumentType]
        config.downlink_drop_probability,  # pyright: ignore[reportArgumentType]
        config.burst_ratio,
        config.burst_ratio,
        loss_unit=config.loss_unit,
    ),
    "trace": _from_file,
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
