"""Convolutions for kernels that differ from replica to replica, in the form that suits the device.

Under vmap such convolutions become a grouped one, which is slow everywhere. On CPUs a loop over the
replicas takes its place, and the gradient is written as convolutions with the axes in the order
that XLA has a fast kernel for: inside a loop, where training always is, XLA does not reorder them
(jax#12868), and its other kernel is some fifty times slower. Elsewhere a convolution is one matrix
product over shifted copies. BUILD_NOTES.md has the measurements.
"""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jaxlossy.devices import platform_dependent

Signal = Float[Array, "batch ... channels"]
Kernel = Float[Array, "*taps channels features"]


class Conv(nn.Module):
    """A 3-wide convolution with zero padding 1 along every spatial axis, channels last.

    The same function, parameters and initial weights as ``nn.Conv``.
    """

    features: int
    stride: int = 1
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        shape = (*[3] * (x.ndim - 2), x.shape[-1], self.features)
        kernel = self.param("kernel", _draw_kernel, shape)
        y: Any = conv(x, kernel, self.stride)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            y = y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)
        return y


def _draw_kernel(key, shape):
    # As a matrix, which is the same numbers: a random draw along four axes takes XLA's CPU backend
    # seconds to compile, and a network has many.
    matrix = (math.prod(shape[:-1]), shape[-1])
    return nn.initializers.lecun_normal()(key, matrix).reshape(shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def conv(x: Signal, kernel: Kernel, stride: int = 1) -> Signal:
    """A 3-wide convolution with zero padding 1 along every spatial axis, channels last.

    Args:
      x: the input.
      kernel: three taps along every spatial axis.
      stride: along every spatial axis.

    >>> conv(jnp.ones((1, 3, 4, 1)), jnp.ones((3, 3, 1, 1)))[0, :, :, 0]
    Array([[4., 6., 6., 4.],
           [6., 9., 9., 6.],
           [4., 6., 6., 4.]], dtype=float32)
    """
    return platform_dependent(
        x, kernel, cpu=_one_by_one(_native, stride), default=functools.partial(_product, stride)
    )


def _forward(x, kernel, stride):
    return conv(x, kernel, stride), (x, kernel)


def _backward(stride, saved, gradient):
    return platform_dependent(
        *saved,
        gradient,
        cpu=_one_by_one(_native_gradient, stride),
        default=functools.partial(_product_gradient, stride),
    )


conv.defvjp(_forward, _backward)


def _product(stride, x, kernel):
    """One matrix product over the copies of the input that the taps see."""
    space = x.shape[1:-1]
    padded = jnp.pad(x, [(0, 0), *[(1, 1)] * len(space), (0, 0)])
    copies = []
    for corner in itertools.product(range(3), repeat=len(space)):
        window = zip(corner, space, strict=True)
        copies.append(padded[:, *(slice(at, at + size, stride) for at, size in window)])
    return jnp.concatenate(copies, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])


def _product_gradient(stride, x, kernel, gradient):
    """The copies are made again, so that nothing but the input is kept for the gradient."""
    return jax.vjp(functools.partial(_product, stride), x, kernel)[1](gradient)


def _one_by_one(function, stride):
    """Under vmap, a loop: no group of convolutions."""
    return jax.custom_batching.sequential_vmap(functools.partial(function, stride))


def _native(stride, x, kernel):
    return _convolve(x, kernel, [(1, 1)] * (x.ndim - 2), stride=stride)


def _native_gradient(stride, x, kernel, gradient):
    """Gradients with respect to the input and the kernel."""
    axes = range(1, x.ndim - 1)
    # How far the windows' places go beyond the input, less the padding of one.
    beyond = [(gradient.shape[a] - 1) * stride + 1 - x.shape[a] for a in axes]
    turned = jnp.flip(kernel, range(kernel.ndim - 2)).swapaxes(-1, -2)
    of_x = _convolve(gradient, turned, [(1, 1 - b) for b in beyond], spread=stride)
    # The examples are what is summed over, so they take the place of the channels: in two moves,
    # as one would read every number from another cache line.
    inputs, outputs = (jnp.moveaxis(a, 0, -2) for a in (x, gradient))
    inputs = jnp.moveaxis(jax.lax.optimization_barrier(inputs), -1, 0)
    of_kernel = _convolve(inputs, outputs, [(1, 1 + b) for b in beyond], kernel_spread=stride)
    return of_x, jnp.moveaxis(of_kernel, 0, -2)


def _convolve(x, kernel, padding, *, stride=1, spread=1, kernel_spread=1):
    """XLA's own, in the order of axes that it is fast for: channels last, kernels taps first."""
    axes = tuple(range(x.ndim - 2))
    signal = (0, x.ndim - 1, *(a + 1 for a in axes))
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        [stride] * len(axes),
        padding,
        lhs_dilation=[spread] * len(axes),
        rhs_dilation=[kernel_spread] * len(axes),
        dimension_numbers=jax.lax.ConvDimensionNumbers(
            signal, (x.ndim - 1, x.ndim - 2, *axes), signal
        ),
    )
