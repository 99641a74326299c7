"""Other ways to run the benchmark's training in JAX, without evaluation.

Each function takes a group and returns ``advance``, and the seconds that compiling took.
``advance(steps)`` trains all configs of the group on from where they were, waits, and returns their
replicas. Configs are those of the benchmark: plain SGD at a constant learning rate, one local step,
a channel without memory. ``tests/test_rivals.py`` holds all of them to ``train.run``.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlossy import draws, train
from jaxlossy.aggregation import average_arrived
from jaxlossy.config import stack_configs
from jaxlossy.grid import Group


def plain_vmap(group: Group, steps: int) -> tuple[Callable[[int], Any], float]:
    """The training as one would first write it: vmap over configs, masks gathered per parameter.

    Args:
      steps: in a call of the compiled program; ``advance`` takes multiples of it.
    """
    problem, layout = group.problem, group.problem.layout
    packet_of = jnp.arange(layout.num_packets * layout.size) // layout.size

    def step(config, shards, examples, replicas, index):
        batch = draws.draw_batch(config, shards, index)
        _, delivered, _ = draws.draw_delivered(problem, config, (), index)

        def loss_of(flat, x, y):
            one = layout.unpack(flat.reshape(1, layout.num_packets, layout.size))
            params = jax.tree.map(lambda p: p[0], one)
            return problem.loss(problem.model.apply(params, x), y).mean()

        grads = jax.vmap(jax.grad(loss_of))(
            replicas, examples.train_x[batch], examples.train_y[batch]
        )
        replicas = replicas - config.learning_rate * grads
        up, down = delivered.up[:, packet_of], delivered.down[:, packet_of]
        count = up.sum(axis=0, keepdims=True, dtype=replicas.dtype)
        total = jnp.where(up, replicas, 0).sum(axis=0, keepdims=True)
        return jnp.where(down & (count > 0), total / jnp.maximum(count, 1), replicas)

    def start(config, examples):
        return train.init(problem, config, examples).replicas.reshape(config.workers, -1)

    def segment(config, shards, examples, replicas, first):
        with jax.default_matmul_precision(config.matmul_precision):
            return jax.lax.scan(
                lambda r, i: (step(config, shards, examples, r, i), None),
                replicas,
                first + jnp.arange(steps, dtype=jnp.int32),
            )[0]

    configs = stack_configs(group.configs)
    configs, shards, examples = jax.device_put((configs, group.shards, group.examples))
    replicas = jax.jit(jax.vmap(start, in_axes=(0, None)))(configs, examples)
    over_configs = jax.jit(jax.vmap(segment, in_axes=(0, 0, None, 0, None)), donate_argnums=3)
    compiled, compile_seconds = _compile(
        over_configs, configs, shards, examples, replicas, np.int32(0)
    )
    done = 0

    def advance(count: int) -> jax.Array:
        nonlocal replicas, done
        for _ in range(_segments(count, steps)):
            replicas = compiled(configs, shards, examples, replicas, np.int32(done))
            done += steps
        return jax.block_until_ready(replicas)

    return advance, compile_seconds


def one_at_a_time(group: Group, steps: int) -> tuple[Callable[[int], Any], float]:
    """jaxlossy's own steps without the config axis: a call per config and segment.

    Args:
      steps: in a segment; ``advance`` takes multiples of it.
    """
    problem = group.problem

    def segment(config, state, examples, shards):
        return train.advance(problem, config, state, examples, shards, steps)[0]

    configs, shards, examples = _apart(group)
    init = jax.jit(functools.partial(train.init, problem))
    states = [init(config, examples) for config in configs]
    compiled, compile_seconds = _compile(
        jax.jit(segment, donate_argnums=1), configs[0], states[0], examples, shards[0]
    )

    def advance(count: int) -> list[jax.Array]:
        for c, config in enumerate(configs):
            for _ in range(_segments(count, steps)):
                states[c] = compiled(config, states[c], examples, shards[c])
        return jax.block_until_ready([state.replicas for state in states])

    return advance, compile_seconds


def replica_at_a_time(group: Group) -> tuple[Callable[[int], Any], float]:
    """A loop in Python over configs, steps and workers: a call per gradient.

    Only so does a native convolution (a group whose model has them) run on XLA's fast path on CPUs:
    with one kernel, and in no loop body (jax#12868).
    """
    problem, layout = group.problem, group.problem.layout

    def draw(config, shards, index):
        _, delivered, _ = draws.draw_delivered(problem, config, (), index)
        return list(draws.draw_batch(config, shards, index)), delivered

    def update(config, replica, examples, batch):
        def loss_of(params, x, y):
            return problem.loss(problem.model.apply(params, x), y).mean()

        with jax.default_matmul_precision(config.matmul_precision):
            params = jax.tree.map(lambda p: p[0], layout.unpack(replica[None]))
            grads = jax.grad(loss_of)(params, examples.train_x[batch], examples.train_y[batch])
        packets = layout.pack(jax.tree.map(lambda g: g[None], grads))[0]
        return replica - config.learning_rate * packets

    def aggregate(replicas, delivered):
        return list(average_arrived(jnp.stack(replicas), delivered))

    configs, shards, examples = _apart(group)
    init = jax.jit(lambda config, examples: list(train.init(problem, config, examples).replicas))
    models = [init(config, examples) for config in configs]
    draw, draw_seconds = _compile(jax.jit(draw), configs[0], shards[0], np.int32(0))
    batches, delivered = draw(configs[0], shards[0], np.int32(0))
    update, update_seconds = _compile(
        jax.jit(update), configs[0], models[0][0], examples, batches[0]
    )
    aggregate, aggregate_seconds = _compile(jax.jit(aggregate), models[0], delivered)
    done = 0

    def advance(count: int) -> list[list[jax.Array]]:
        nonlocal done
        for c, config in enumerate(configs):
            for index in range(done, done + count):
                batches, delivered = draw(config, shards[c], np.int32(index))
                models[c] = [
                    update(config, replica, examples, batch)
                    for replica, batch in zip(models[c], batches, strict=True)
                ]
                models[c] = aggregate(models[c], delivered)
        done += count
        return jax.block_until_ready(models)

    return advance, draw_seconds + update_seconds + aggregate_seconds


def _apart(group: Group) -> tuple[list[Any], list[Any], Any]:
    """Each config and its shards by themselves, and the examples, on the device."""
    stacked = stack_configs(group.configs)
    configs = [jax.tree.map(lambda leaf, c=c: leaf[c], stacked) for c in range(len(group.configs))]
    return jax.device_put((configs, list(group.shards), group.examples))


def _compile(function: Any, *arguments: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    compiled = function.lower(*arguments).compile()
    return compiled, time.perf_counter() - begin


def _segments(count: int, steps: int) -> int:
    if count % steps:
        raise ValueError(f"{count} steps are no multiple of the {steps} compiled")
    return count // steps
