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


def footprint(problem: Problem, config: Config, examples: Examples, shards: Any) -> Footprint:
    """Bytes of one config: what a batch holds of it, and what it takes while it is live.

    Held are its state, once as it comes in and once as it goes out, and its report. Live are its
    batches and a few copies of its replicas; and for every live replica the larger of what a
    gradient computes in all (an upper bound: the compiler frees some of it early) and the two
    largest arrays of an evaluation.
    """
    state = jax.eval_shape(functools.partial(train.init, problem), config, examples)
    _, report = jax.eval_shape(
        functools.partial(train.segment, problem), config, state, examples, shards
    )
    gradient, shapes = _gradient(problem, config, examples)
    training = sum(_intermediates(gradient, *shapes))
    chunk = jax.ShapeDtypeStruct(examples.test_x.shape[1:], examples.test_x.dtype)
    largest = sorted(_intermediates(problem.model.apply, shapes[0], chunk))[-2:]
    return Footprint(
        held=2 * num_bytes(state) + num_bytes(report) + num_bytes(shards),
        config=config.workers * num_bytes(shapes[1:]) + 4 * num_bytes(state.replicas),
        replica=max(training, sum(largest)),
        shared=num_bytes(examples),
    )


def gradient_flops(problem: Problem, config: Config, examples: Examples) -> float:
    """Floating-point operations of one worker's gradient, as XLA counts them before compiling."""
    gradient, shapes = _gradient(problem, config, examples)
    cost: Any = jax.jit(gradient).lower(*shapes).cost_analysis()
    return cost["flops"]


def _gradient(problem: Problem, config: Config, examples: Examples) -> tuple[Callable, Any]:
    """The gradient of one worker, and the shapes of its parameters, inputs and labels."""

    def gradient(params, x, y):
        return jax.grad(lambda p: problem.loss(problem.model.apply(p, x), y).mean())(params)

    x, y = (
        jax.ShapeDtypeStruct((config.batch_size, *leaf.shape[1:]), leaf.dtype)
        for leaf in (examples.train_x, examples.train_y)
    )
    return gradient, (jax.eval_shape(problem.model.init, jax.random.key(0), x), x, y)


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
