"""What a config takes on a device, from shapes alone, before anything is compiled."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax

from jaxlossy import draws, train
from jaxlossy.config import Config
from jaxlossy.devices import Footprint
from jaxlossy.problem import Examples, Problem

#: What a gradient takes in fact: XLA copies some arrays into other layouts (see BUILD_NOTES.md).
COPIES = 1.15
#: What drawing takes, times what is drawn: random numbers are of four bytes, masks of one.
DRAWING = 5


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

    Held are its state, which changes in place, and its report. Live are its batches, a few copies
    of its replicas, and what is drawn at once; and for every live replica the most that a gradient
    or an evaluation has at once, operation after operation (the compiler merges some of them).
    """
    state = jax.eval_shape(functools.partial(train.init, problem), config, examples)
    _, report = jax.eval_shape(
        functools.partial(train.segment, problem), config, state, examples, shards
    )
    count = draws.drawn_together(problem, config, config.eval_every)
    draw = functools.partial(draws.draw, problem, config, count=count)
    _, drawn = jax.eval_shape(draw, state.channel, shards, state.step)
    gradient, shapes = _gradient(problem, config, examples)
    chunk = jax.ShapeDtypeStruct(examples.test_x.shape[1:], examples.test_x.dtype)
    evaluation = most_at_once(jax.make_jaxpr(problem.model.apply)(shapes[0], chunk, shapes[1]))
    replica = int(COPIES * max(most_at_once(jax.make_jaxpr(gradient)(*shapes)), evaluation))
    held = num_bytes(state) + num_bytes(shards)
    working = config.workers * num_bytes(shapes[2:]) + 4 * num_bytes(state.replicas)
    working += DRAWING * num_bytes(drawn)
    return Footprint(
        held=held // worker_devices + num_bytes(report),
        config=working // worker_devices,
        replica=replica // worker_devices,
        shared=num_bytes(examples),
    )


def gradient_flops(problem: Problem, config: Config, examples: Examples) -> float:
    """Floating-point operations of one worker's gradient, as XLA counts them before compiling."""
    gradient, shapes = _gradient(problem, config, examples)
    # As for another device: XLA can not look into the kernels that CPUs have.
    lowered = jax.jit(gradient).trace(*shapes).lower(lowering_platforms=("tpu",))
    cost: Any = lowered.cost_analysis()
    return cost["flops"]


def _gradient(problem: Problem, config: Config, examples: Examples) -> tuple[Callable, Any]:
    """The gradient of one worker; the shapes of its parameters, statistics, inputs and labels."""

    def gradient(params, statistics, x, y):
        def loss(params):
            outputs, changed = problem.model.train(params, x, statistics)
            return problem.loss(outputs, y).mean(), changed

        return jax.grad(loss, has_aux=True)(params)

    x, y = (
        jax.ShapeDtypeStruct((config.batch_size, *leaf.shape[1:]), leaf.dtype)
        for leaf in (examples.train_x, examples.train_y)
    )
    params = jax.eval_shape(problem.model.init, jax.random.key(0), x)
    return gradient, (params, jax.eval_shape(problem.model.start, x), x, y)


def most_at_once(jaxpr: Any) -> int:
    """The most bytes that a jaxpr has computed and still needs, one operation after another.

    Args:
      jaxpr: from ``jax.make_jaxpr``; its arguments are not counted.

    >>> import jax.numpy as jnp
    >>> most_at_once(jax.make_jaxpr(lambda x: jnp.sin(jnp.cos(jnp.exp(x))))(jnp.zeros(100)))
    800
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    last = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if not hasattr(v, "val")}
    last |= dict.fromkeys((v for v in jaxpr.outvars if not hasattr(v, "val")), len(jaxpr.eqns))
    alive, most = {}, 0
    for place, eqn in enumerate(jaxpr.eqns):
        sizes = {variable: num_bytes(variable.aval) for variable in eqn.outvars}
        called = [p for p in jax.tree.leaves(_parameters(eqn)) if _is_jaxpr(p)]
        inside = max(map(most_at_once, called), default=0)
        most = max(most, sum(alive.values()) + max(inside, sum(sizes.values())))
        alive |= sizes
        alive = {v: size for v, size in alive.items() if last.get(v, -1) > place}
    return most


def _parameters(eqn: Any) -> list[Any]:
    """Of an operation; where it depends on the platform, its form for the one at hand."""
    platforms = eqn.params.get("branches_platforms")
    if not platforms:
        return list(eqn.params.values())
    here = [names is None or jax.default_backend() in names for names in platforms]
    return [eqn.params["branches"][here.index(True)]]


def _is_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
