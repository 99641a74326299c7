import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxlossy.pooling import max_pool


def native(x):
    window = tuple(min(2, size) for size in x.shape[1:-1])
    return nn.max_pool(x, window, strides=window)


@pytest.mark.parametrize("shape", [(9, 2), (6, 5, 3), (1, 4, 1), (3, 2, 4, 2)])
def test_values_and_gradients_are_those_of_flax(shape):
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (2, *shape))
    expected, expected_gradient = jax.vjp(native, x)
    pooled, gradient = jax.vjp(max_pool, x)
    np.testing.assert_array_equal(pooled, expected)
    of_pooled = jax.random.normal(keys[1], pooled.shape)
    np.testing.assert_array_equal(gradient(of_pooled)[0], expected_gradient(of_pooled)[0])


def test_of_equal_entries_one_gets_the_gradient():
    x = jax.random.randint(jax.random.key(0), (4, 6, 8, 3), 0, 2).astype(jnp.float32)
    pooled, gradient = jax.vjp(max_pool, x)
    (of_x,) = gradient(jnp.ones_like(pooled))
    shape = (4, 3, 2, 4, 2, 3)
    np.testing.assert_array_equal(of_x.reshape(shape).sum((2, 4)), jnp.ones_like(pooled))
    assert ((of_x == 0) | (x == native(x).repeat(2, 1).repeat(2, 2))).all()


def test_what_is_no_number_stays_so():
    x = jnp.zeros((1, 4, 1)).at[0, 1].set(jnp.nan)
    np.testing.assert_array_equal(max_pool(x), native(x))
