"""What chance decides about training: keys, batches, and what the network delivers.

None of it depends on the replicas, so it is drawn for several steps at once, before these steps: a
step would else have dozens of tiny operations for it.
"""

import enum
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxlossy import channel as channel_lib
from jaxlossy import generator, packets
from jaxlossy.config import Config
from jaxlossy.problem import Problem

#: Bytes of what is drawn of a config at once: many steps of a small model, in an outer cache.
AHEAD_BYTES = 64 * 2**10


class Purpose(enum.IntEnum):
    """What a random key is for; the numbers are part of every result, so they never change."""

    INIT = 0
    BATCH = 1
    PLACEMENT = 2
    LOSS = 3
    CHANNEL_INIT = 4


def derive_key(seed: Int[Array, ""] | int, purpose: Purpose, step: Int[Array, ""] | int = 0):
    """The key for one purpose at one step: the same wherever the config runs."""
    return jax.random.fold_in(jax.random.fold_in(generator.key(seed), purpose), step)


class Draws(NamedTuple):
    """What chance decides about a step.

    Attributes:
      batches: indices in the training set, of every optimizer step.
      delivered: which packets arrive.
      traffic: how many packets cross the network.
    """

    batches: Int[Array, "local_step worker batch"]
    delivered: channel_lib.Delivered
    traffic: channel_lib.Traffic


def assign(problem: Problem, config: Config, step: Int[Array, ""]) -> packets.Assignment:
    return packets.assign(
        config.placement,
        num_packets=problem.layout.num_packets,
        workers=config.workers,
        servers=config.servers,
        key=derive_key(config.seed, Purpose.PLACEMENT, step),
    )


def draw_batch(
    config: Config, shards: Int[Array, "worker examples"], step: Int[Array, ""]
) -> Int[Array, "worker batch"]:
    """Indices of every worker's batch in the training set, drawn with replacement from its shard.

    Args:
      step: optimizer steps taken so far (local steps count).
    """
    key = derive_key(config.seed, Purpose.BATCH, step)
    shape = (config.workers, config.batch_size)
    place = jax.random.randint(key, shape, 0, shards.shape[1], jnp.int32)
    return jnp.take_along_axis(shards, place, axis=1)


def draw_delivered(
    problem: Problem, config: Config, state: Any, step: Int[Array, ""]
) -> tuple[packets.Assignment, channel_lib.Delivered, Any]:
    """Who serves what in a step, what arrives, and the channel's next state."""
    assignment = assign(problem, config, step)
    key = derive_key(config.seed, Purpose.LOSS, step)
    delivered, state = channel_lib.transmit(problem.channel(config), state, assignment, key=key)
    return assignment, delivered, state


def drawn_together(problem: Problem, config: Config, count: int) -> int:
    """How many of `count` steps are drawn at once: a divisor of it, within AHEAD_BYTES."""
    masks = 2 * config.workers * problem.layout.num_packets
    batches = 4 * config.local_steps * config.workers * config.batch_size
    most = min(count, max(1, AHEAD_BYTES // (masks + batches)))
    return max(n for n in range(1, most + 1) if count % n == 0)


def draw(
    problem: Problem,
    config: Config,
    channel_state: Any,
    shards: Int[Array, "worker examples"],
    first: Int[Array, ""],
    count: int,
) -> tuple[Any, Draws]:
    """What chance decides about `count` steps from the first on.

    The same as ``draw_batch`` and ``draw_delivered`` draw step by step, in fewer operations.

    Returns:
      The channel's state after them, and the draws, with a leading step axis.
    """

    def deliver(channel_state, step):
        assignment, delivered, channel_state = draw_delivered(problem, config, channel_state, step)
        return channel_state, (delivered, channel_lib.traffic(assignment, delivered))

    steps = first + jnp.arange(count, dtype=jnp.int32)
    if jax.tree.leaves(channel_state):
        channel_state, drawn = jax.lax.scan(deliver, channel_state, steps)
    else:  # nothing that a step could leave to the next one
        channel_state, drawn = jax.vmap(deliver, (None, 0), (None, 0))(channel_state, steps)
    local = first * config.local_steps
    indices = local + jnp.arange(count * config.local_steps, dtype=jnp.int32)
    batches = jax.vmap(functools.partial(draw_batch, config, shards))(indices)
    batches = batches.reshape(count, config.local_steps, *batches.shape[1:])
    return channel_state, Draws(batches, *drawn)
