"""Convolutions for kernels that differ from replica to replica, in the form that suits the device.
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
from jaxlossy.kernels import taps, xla

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
        x, kernel, cpu=functools.partial(_kernels, stride), default=functools.partial(_product, stride)
    )


def _forward(x, kernel, stride):
    return conv(x, kernel, stride), (x, kernel)


def _backward(stride, saved, gradient):
    return platform_dependent(
        *saved,
        gradient,
        cpu=functools.partial(_kernels_gradient, stride),
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



def _kernels(stride, x, kernel):
    if x.ndim > 4 or x.dtype != jnp.float32:
        return _product(stride, x, kernel)
    size = [math.ceil(s / stride) for s in x.shape[1:-1]]
    return _convolve(x, kernel, size, stride=stride)


def _kernels_gradient(stride, x, kernel, gradient):
    if x.ndim > 4 or x.dtype != jnp.float32:
        return _product_gradient(stride, x, kernel, gradient)
    turned = jnp.flip(kernel, range(kernel.ndim - 2)).swapaxes(-1, -2)
    of_x = _convolve(gradient, turned, x.shape[1:-1], spread=stride)
    flat = x.ndim == 3
    if flat:
        x, gradient, kernel = x[:, None], gradient[:, None], kernel[None]
    n = kernel.shape[0]
    room = [(gradient.shape[1] - 1) * stride + n, (gradient.shape[2] - 1) * stride + 3]
    room = [max(room[0], x.shape[1] + (n - 1) // 2), max(room[1], x.shape[2] + 1)]
    shapes = (xla.Shape(kernel.shape, x.dtype), xla.Shape((*room, x.shape[-1]), x.dtype))
    of_kernel, _ = xla.call(taps.convolve_gradient, shapes, x, gradient, stride=stride)
    return of_x, of_kernel[0] if flat else of_kernel


def _convolve(x, kernel, size, stride=1, spread=1):
    flat = x.ndim == 3
    if flat:
        x, kernel, size = x[:, None], kernel[None], (1, *size)
    n = kernel.shape[0]
    room = [
        max((size[0] - 1) * stride + n, (x.shape[1] - 1) * spread + 1 + (n - 1) // 2),
        max((size[1] - 1) * stride + 3, (x.shape[2] - 1) * spread + 2),
    ]
    shapes = (
        xla.Shape((x.shape[0], *size, kernel.shape[-1]), x.dtype),
        xla.Shape((*room, x.shape[-1]), x.dtype),
    )
    y, _ = xla.call(taps.convolve, shapes, x, kernel, spread=spread, stride=stride)
    return y[:, 0] if flat else y
