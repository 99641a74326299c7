"""The one program of a group of configs: its plan, its compilation, and what enters it."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlossy import devices as devices_lib
from jaxlossy import train
from jaxlossy.config import stack_configs
from jaxlossy.grid import Group


class Program(NamedTuple):
    """A compiled group.

    Attributes:
      run: ``state, report = run(first, state, items)``: one segment of a batch. The state is
        donated; where `first`, it is drawn anew and only its shapes count.
      state: shapes of a batch's state.
      plan: how the group runs.
      mesh: the devices.
      peak_bytes: memory of one device while a batch runs, as the compiler laid it out.
    """

    run: Callable[[bool, Any, Any], tuple[Any, Any]]
    state: Any
    plan: devices_lib.Plan
    mesh: Any
    peak_bytes: int


def compile_group(group: Group, plan: devices_lib.Plan, mesh: Any) -> Program:
    """Compiles a segment, with the initial state drawn at its first call."""
    problem = dataclasses.replace(group.problem, live_workers=plan.live.workers)

    def segment(shared, state, item):
        first, examples = shared
        config, shards = item
        state = jax.lax.cond(first, lambda: train.init(problem, config, examples), lambda: state)
        return train.segment(problem, config, state, examples, shards)

    state, items = batch_shapes(group, plan.batch)
    compiled = devices_lib.compile_over_configs(
        segment, (False, group.examples), state, items, mesh=mesh, live=plan.live.configs
    )
    examples = devices_lib.place(group.examples, mesh, split=False)
    return Program(
        run=lambda first, state, items: compiled((first, examples), state, items),
        state=state,
        plan=plan,
        mesh=mesh,
        peak_bytes=devices_lib.peak_bytes(compiled),
    )


def compile_steps(
    group: Group, live: devices_lib.Live, batch: int, mesh: Any, steps: int
) -> Callable:
    """Compiles training alone, to be timed: ``state = run(count, state, items)``, state donated.

    Args:
      steps: what `count` counts: so many steps, drawn as in a segment of that many.
    """
    problem = dataclasses.replace(group.problem, live_workers=live.workers)

    def train_on(shared, state, item):
        count, examples = shared
        config, shards = item

        def advance(_, state):
            return train.advance(problem, config, state, examples, shards, steps)[0]

        return jax.lax.fori_loop(0, count, advance, state), ()

    compiled = devices_lib.compile_over_configs(
        train_on, (0, group.examples), *batch_shapes(group, batch), mesh=mesh, live=live.configs
    )
    examples = devices_lib.place(group.examples, mesh, split=False)
    return lambda count, state, items: compiled((count, examples), state, items)[0]


def batch_shapes(group: Group, batch: int) -> tuple[Any, Any]:
    """Shapes of the state of that many configs, and of the configs and their shards."""
    config = jax.tree.map(lambda leaf: leaf[0], stack_configs(group.configs[:1]))
    state = jax.eval_shape(functools.partial(train.init, group.problem), config, group.examples)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype),
        (state, (config, group.shards[0])),
    )


def place_items(group: Group, places: Sequence[int] | np.ndarray, mesh: Any) -> Any:
    """The configs at these places of the group, and their shards, on the devices."""
    configs = stack_configs([group.configs[i] for i in places])
    return devices_lib.place((configs, group.shards[np.asarray(places)]), mesh, split=True)
