"""Trees taken out of packed rows and put back: values, and that nothing else is copied."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import small

from jaxlossy import packed as packed_lib
from jaxlossy import packets, train
from jaxlossy.chunks import map_in_place
from jaxlossy.draws import draw
from jaxlossy.packed import Packed

WORKERS = 4


@pytest.fixture(params=["cpu", "default"])
def form(request, monkeypatch):
    """Both forms, as if the device were another one."""
    monkeypatch.setattr(
        packed_lib, "platform_dependent", lambda *args, **forms: forms[request.param](*args)
    )


def some_trees(dtype=jnp.float32):
    """Trees of all workers, and their packed form with 2 numbers of padding."""
    rng = np.random.default_rng(0)
    shapes = {"a": (2, 3), "b": (), "c": (5,)}
    trees = {
        name: jnp.asarray(rng.normal(size=(WORKERS, *shape)), dtype if name == "a" else jnp.float32)
        for name, shape in shapes.items()
    }
    layout = packets.packet_layout(jax.tree.map(lambda leaf: leaf[0], trees), 7)
    return trees, Packed.of(layout, layout.pack(trees))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(("start", "count"), [(0, 4), (2, 2), (0, 1), (3, 1)])
@pytest.mark.usefixtures("form")
def test_what_is_taken_is_those_workers_trees_and_putting_changes_only_these(start, count, dtype):
    trees, packed = some_trees(dtype)

    @jax.jit
    def run(packed, start):
        part = packed.take(start, count)
        return part, packed.put(jax.tree.map(lambda leaf: 2 * leaf, part), start, count)

    part, changed = run(packed, start)
    here = slice(start, start + count) if count > 1 else start
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[here]), part, trees)
    assert {leaf.dtype for leaf in jax.tree.leaves(part)} == {
        jnp.dtype(dtype),
        jnp.dtype("float32"),
    }
    expected = np.array(packed.packets)
    expected[here] *= 2
    np.testing.assert_array_equal(changed.packets, expected)


@pytest.mark.parametrize("live", [None, 2, 1])
def test_configs_may_be_an_axis_before_the_workers(live):
    trees, packed = some_trees()
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf, 3 * leaf]), (trees, packed))

    @jax.jit
    @jax.vmap
    def run(trees, packed):
        change = functools.partial(jax.tree.map, lambda a, b: a + b)
        return map_in_place(live, lambda tree, more: (change(tree, more), more), packed, trees)

    changed, outputs = run(*several)
    np.testing.assert_array_equal(changed.rows, 2 * np.array(several[1].rows))
    jax.tree.map(np.testing.assert_array_equal, outputs, several[0])


@pytest.mark.parametrize(
    ("live", "aggregation"),
    [(1, "model_averaging"), (2, "model_averaging"), (1, "gradient_averaging")],
)
def test_no_step_copies_all_rows(live, aggregation):
    """On CPUs; XLA copies an array where it can not tell that it is free to write on it."""
    problem, config, examples, shards = small(features=(64,), aggregation=aggregation)
    problem = dataclasses.replace(problem, live_workers=live)
    state = jax.eval_shape(functools.partial(train.init, problem), config, examples)

    def steps(state):
        _, draws = draw(problem, config, state.channel, shards, state.step, 4)
        return jax.lax.scan(
            lambda state, now: train.step(problem, config, state, examples, now), state, draws
        )[0]

    compiled = jax.jit(steps, donate_argnums=0).lower(state).compile().as_text()
    loop = compiled[compiled.index("body") :]
    size = problem.layout.num_packets * problem.layout.size
    rows = rf"f32\[{config.workers},(?:{size}|{problem.layout.num_packets},{problem.layout.size})\]"
    assert re.search(rows, loop)
    assert not re.search(rows + r"\S* copy\(", compiled)
