"""JAX's default generator of random numbers, in the form that suits the device; the same numbers.

XLA's form on CPUs is a loop of many small operations, and a step needs several hundred numbers for
every worker. So there it is a kernel of our own.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import random
from jaxtyping import Array, Int

from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import threefry
from jaxlossy.kernels.calls import call, like

_JAX = random.threefry_prng_impl


def _blocks(key, first, count):
    return call(threefry.blocks, like(key, 2, count), key, first)


def _has_kernel(shape):
    # Without this setting, JAX's numbers depend on how many there are.
    settings: Any = jax.config
    return settings.jax_threefry_partitionable and 0 < math.prod(shape) < 2**31


def _random_bits(key, bit_width, shape):
    def in_xla(key):
        return _JAX.random_bits(key, bit_width, shape)

    def on_cpu(key):
        words = _blocks(key, jnp.uint32(0), math.prod(shape))
        return (words[0] ^ words[1]).reshape(shape)

    if bit_width != 32 or not _has_kernel(shape):
        return in_xla(key)
    return platform_dependent(key, cpu=on_cpu, default=in_xla)


def _split(key, shape):
    def in_xla(key):
        return _JAX.split(key, shape)

    def on_cpu(key):
        return _blocks(key, jnp.uint32(0), math.prod(shape)).T.reshape(*shape, 2)

    if not _has_kernel(shape):
        return in_xla(key)
    return platform_dependent(key, cpu=on_cpu, default=in_xla)


def _fold_in(key, data):
    def on_cpu(key, data):
        return _blocks(key, data.astype(jnp.uint32), 1)[:, 0]

    return platform_dependent(key, data, cpu=on_cpu, default=_JAX.fold_in)


_GENERATOR = random.define_prng_impl(
    key_shape=_JAX.key_shape,
    seed=_JAX.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="jaxlossy",
    tag="jaxlossy",
)


def key(seed: Int[Array, ""] | int) -> jax.Array:
    """The key of a seed: whatever is drawn with it is what ``jax.random.key(seed)`` gives.

    >>> bool(jax.random.uniform(key(7)) == jax.random.uniform(jax.random.key(7)))
    True
    """
    return jax.random.key(seed, impl=_GENERATOR)
