"""The one program of a group of configs: its plan, its compilation, and what enters it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlossy import devices as devices_lib
from jaxlossy import memory, train
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
    """

    run: Callable[[bool, Any, Any], tuple[Any, Any]]
    state: Any
    plan: devices_lib.Plan
    mesh: Any


def plan_group(
    group: Group,
    num_configs: int,
    devices: Sequence[Any],
    budget: int,
    worker_devices: int = 1,
) -> devices_lib.Plan:
    """Batches of that many configs of the group within `budget` bytes of each device."""
    cost = memory.footprint(
        group.problem, group.configs[0], group.examples, group.shards[0], worker_devices
    )
    live = devices_lib.max_live(devices, cost)
    rows = len(devices) // worker_devices
    return devices_lib.plan_batches(num_configs, rows, cost, budget=budget, live=live)


def compile_group(group: Group, plan: devices_lib.Plan, mesh: Any) -> Program:
    """Compiles a segment, with the initial state drawn at its first call."""
    problem = group.problem

    def segment(shared, state, item):
        first, examples = shared
        config, shards = item
        state = jax.lax.cond(first, lambda: train.init(problem, config, examples), lambda: state)
        return train.segment(problem, config, state, examples, shards)

    def batched(shape):
        return jax.ShapeDtypeStruct((plan.batch, *shape.shape), shape.dtype)

    scalars = jax.tree.map(lambda leaf: leaf[0], stack_configs(group.configs[:1]))
    state = jax.eval_shape(functools.partial(train.init, problem), scalars, group.examples)
    state, items = jax.tree.map(batched, (state, (scalars, group.shards[0])))
    compiled = devices_lib.compile_over_configs(
        segment, (False, group.examples), state, items, mesh=mesh, live=plan.live
    )
    examples = devices_lib.place(group.examples, mesh, split=False)
    return Program(
        lambda first, state, items: compiled((first, examples), state, items), state, plan, mesh
    )


def place_items(group: Group, places: np.ndarray, mesh: Any) -> Any:
    """The configs at these places of the group, and their shards, on the devices."""
    configs = stack_configs([group.configs[i] for i in places])
    return devices_lib.place((configs, group.shards[places]), mesh, split=True)
