"""The library's keys draw what JAX's own do, in both forms, whatever is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlossy import generator

SEEDS = jnp.array([0, 7, 2**31 - 1])


def draws(keys):
    """Of many kinds, sizes and widths, by keys with an axis."""
    step = jnp.arange(5) * 2**30  # beyond an integer of 31 bits, too

    def some(key, step):
        key = jax.random.fold_in(key, step)
        first, second = jax.random.split(key)
        return (
            jax.random.key_data(key),
            jax.random.key_data(jax.random.split(second, (3, 7))),
            jax.random.uniform(first, (2, 3, 17)),
            jax.random.randint(first, (33,), 0, 117),
            jax.random.normal(second, ()),
            jax.random.bits(second, (19,), "uint8"),
            jax.random.permutation(second, 16),
        )

    each = jax.vmap(jax.vmap(some, (None, 0)), (0, None))(keys, step.astype(jnp.uint32))
    return each, jax.random.uniform(keys[0], (1000,))


def check():
    found, expected = (
        jax.jit(lambda make=make: draws(jax.vmap(make)(SEEDS)))()
        for make in (generator.key, jax.random.key)
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("form", ["cpu", "default"])
def test_draws_are_those_of_jax(monkeypatch, form):
    monkeypatch.setattr(generator, "platform_dependent", lambda *args, **forms: forms[form](*args))
    check()


def test_draws_are_those_of_jax_where_it_numbers_them_otherwise():
    with jax.threefry_partitionable(False):
        check()
