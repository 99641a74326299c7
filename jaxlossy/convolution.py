"""Convolutions for kernels that differ from replica to replica, in the form that suits the device.

Under vmap such convolutions become a grouped one, which is slow everywhere; and XLA's fast path on
CPUs is not taken inside a loop (jax#12868), where training always is. So on CPUs they are kernels
of our own. Elsewhere a convolution is one matrix product over shifted copies.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import convolutions
from jaxlossy.kernels.calls import call, if_float32, like

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
    return _choose(_window_by_window, _product, stride, x, kernel)


def _forward(x, kernel, stride):
    return conv(x, kernel, stride), (x, kernel)


def _backward(stride, saved, gradient):
    return _choose(_window_by_window_gradient, _product_gradient, stride, *saved, gradient)


conv.defvjp(_forward, _backward)


def _choose(kernels, product, stride, x, *arguments):
    """The kernels for CPUs know up to two spatial axes."""
    product = functools.partial(product, stride)
    on_cpu = if_float32(functools.partial(kernels, stride), product)
    return platform_dependent(
        x, *arguments, cpu=on_cpu if x.ndim <= 4 else product, default=product
    )


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


def _window_by_window(stride, x, kernel):
    size = [math.ceil(length / stride) for length in x.shape[1:-1]]
    return _convolve(x, kernel, size, stride=stride)


def _window_by_window_gradient(stride, x, kernel, gradient):
    turned = jnp.flip(kernel, range(kernel.ndim - 2)).swapaxes(-1, -2)
    of_x = _convolve(gradient, turned, x.shape[1:-1], spread=stride)
    shape, (x, gradient), kernel = kernel.shape, map(_as_images, (x, gradient)), _as_taps(kernel)
    shapes = like(kernel, *kernel.shape), _room(x, kernel, gradient.shape[1:-1], stride, 1)
    of_kernel, _ = call(convolutions.convolve_gradient, shapes, x, gradient, stride=stride)
    return of_x, of_kernel.reshape(shape)


def _convolve(x, kernel, size: Sequence[int], *, stride: int = 1, spread: int = 1):
    """Windows `stride` apart, over an input whose pixels are `spread` apart."""
    shape = (x.shape[0], *size, kernel.shape[-1])
    x, kernel = _as_images(x), _as_taps(kernel)
    size = (1, *size) if len(size) == 1 else size
    shapes = (
        like(x, x.shape[0], *size, kernel.shape[-1]),
        _room(x, kernel, size, stride, spread),
    )
    y, _ = call(convolutions.convolve, shapes, x, kernel, spread=spread, stride=stride)
    return y.reshape(shape)


def _as_images(x):
    """A signal along a line is an image of one row, and its kernel has one row of taps."""
    return x[:, None] if x.ndim == 3 else x


def _as_taps(kernel):
    return kernel[None] if kernel.ndim == 3 else kernel


def _room(x, kernel, size, stride, spread):
    """Shape of an image with its margins, which windows stay inside of."""
    taps = kernel.shape[:2]
    seen = [(count - 1) * stride + tap for count, tap in zip(size, taps, strict=True)]
    filled = [(n - 1) * spread + 1 + tap // 2 for n, tap in zip(x.shape[1:3], taps, strict=True)]
    return like(x, *map(max, seen, filled), x.shape[-1])
