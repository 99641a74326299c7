"""What a config takes on a device, from shapes alone, before anything is compiled."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax

from jaxlossy import train
from jaxlossy.config import Config
from jaxlossy.devices import Footprint
from jaxlossy.problem import Examples, Problem


def num_bytes(tree: Any) -> int:
    """Bytes of all arrays (or shapes) of a tree.

    >>> import jax.numpy as jnp
    >>> num_bytes({"w": jnp.ones((2, 3)), "b": jnp.zeros(3)})
    36
    """
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def footprint(
    problem: Problem, config: Config, examples: Examples, shards: Any, worker_devices: int = 1
) -> Footprint:
    """Bytes of one config: what a batch holds of it, and what it takes while it is live.

    On each of the devices that share its workers, where there are several.

    Held are its state, once as it comes in and once as it goes out, and its report. Live are its
    batches, a few copies of the replicas, and the larger of what one gradient computes in all (an
    upper bound: the compiler frees some of it early) and the two largest arrays of an evaluation.
    """
    state = jax.eval_shape(functools.partial(train.init, problem), config, examples)
    _, report = jax.eval_shape(
        functools.partial(train.segment, problem), config, state, examples, shards
    )
    params = jax.eval_shape(
        lambda r: jax.tree.map(lambda leaf: leaf[0], problem.layout.unpack(r)), state.replicas
    )
    batch = config.batch_size
    x, y = (
        jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype)
        for leaf in (examples.train_x, examples.train_y)
    )

    def gradient(params, x, y):
        return jax.grad(lambda p: problem.loss(problem.model.apply(p, x), y).mean())(params)

    training = sum(_intermediates(gradient, params, x, y)) + num_bytes((x, y))
    chunk = jax.ShapeDtypeStruct(examples.test_x.shape[1:], examples.test_x.dtype)
    largest = sorted(_intermediates(problem.model.apply, params, chunk))[-2:]
    workers = config.workers // worker_devices
    working = max(workers * training, (workers + 1) * sum(largest))
    held = 2 * num_bytes(state) + num_bytes(shards)
    return Footprint(
        held=held // worker_devices + num_bytes(report),
        working=working + 4 * num_bytes(state.replicas) // worker_devices,
        shared=num_bytes(examples),
    )


def _intermediates(function: Callable, *shapes: Any) -> list[int]:
    """Bytes of every array that a function computes on its way, inside called functions too."""

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            inner = [p.jaxpr for p in eqn.params.values() if hasattr(p, "jaxpr")]
            for called in inner:
                yield from walk(called)
            if not inner:
                yield from (num_bytes(variable.aval) for variable in eqn.outvars)

    return list(walk(jax.make_jaxpr(function)(*shapes).jaxpr))
