"""Convolutions as matrix products, for kernels that differ from replica to replica.

A native convolution of replicas with kernels of their own is a grouped one, and XLA's CPU backend
is slow at those and at any convolution inside a loop body (jax#12868), where training always is.
BUILD_NOTES.md has the measurements.
"""

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

Signal = Float[Array, "batch ... channels"]
Kernel = Float[Array, "taps_channels features"]


class Conv(nn.Module):
    """A 3-wide convolution with zero padding 1 along every spatial axis, channels last.

    The same function and initial weights' distribution as ``nn.Conv``, the leading axes of its
    kernel flattened.
    """

    features: int
    stride: int = 1
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        shape = (3 ** (x.ndim - 2) * x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        x = conv(x, kernel, self.stride)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, shape[1:])
            x = x + bias.reshape((1,) * (x.ndim - 1) + bias.shape)
        return x


def conv(x: Signal, kernel: Kernel, stride: int = 1) -> Signal:
    """A 3-wide convolution with zero padding 1 along every spatial axis, channels last.

    A product of copies of the input for all taps with the kernel; or, where that is less to copy
    (as many channels as features, and more than one spatial axis), ``_conv_by_rows``.

    Args:
      x: the input.
      kernel: as of ``nn.Conv``, its leading axes flattened.
      stride: along every spatial axis.

    >>> conv(jnp.ones((1, 3, 4, 1)), jnp.ones((9, 1)))[0, :, :, 0]
    Array([[4., 6., 6., 4.],
           [6., 9., 9., 6.],
           [4., 6., 6., 4.]], dtype=float32)
    """
    if stride == 1 and x.ndim > 3 and x.shape[-1] >= kernel.shape[1]:
        return _conv_by_rows(x, kernel)
    return _unfold(x, range(1, x.ndim - 1), stride=stride) @ kernel


@jax.custom_vjp
def _conv_by_rows(x, kernel):
    """The product is of three copies of the input, shifted along the last spatial axis only, and
    gives what every tap along the other axes adds to the output. Narrow matrices become wider. The
    gradient has the same form, which automatic differentiation would not find.
    """
    *others, last = range(1, x.ndim - 1)
    return _fold(_unfold(x, [last]) @ _wide(kernel, len(others)), others)


def _forward(x, kernel):
    return _conv_by_rows(x, kernel), (x, kernel)


def _backward(saved, gradient):
    x, kernel = saved
    *others, last = range(1, x.ndim - 1)
    # Folding is the transpose of unfolding, and the other way round, with the shifts reversed.
    copies, gradients = _unfold(x, [last]), _unfold(gradient, others, reverse=True)
    of_x = _fold(gradients @ _wide(kernel, len(others)).T, [last], reverse=True)
    summed = tuple(range(x.ndim - 1))
    of_wide = jnp.tensordot(copies, gradients, (summed, summed))
    taps = of_wide.reshape(of_wide.shape[0], -1, kernel.shape[1]).swapaxes(0, 1)
    of_kernel = taps.reshape(kernel.shape)
    return of_x, of_kernel


_conv_by_rows.defvjp(_forward, _backward)


def _shifts(x: Signal, axes: Sequence[int], stride: int = 1) -> list[Signal]:
    """Its values one before, at and one after each place along some axes, all combinations."""
    padded = jnp.pad(x, [(1, 1) if axis in axes else (0, 0) for axis in range(x.ndim)])
    copies = []
    for corner in itertools.product(range(3), repeat=len(axes)):
        start = dict(zip(axes, corner, strict=True))
        copies.append(
            padded[
                tuple(
                    slice(start[axis], start[axis] + x.shape[axis], stride)
                    if axis in start
                    else slice(None)
                    for axis in range(x.ndim)
                )
            ]
        )
    return copies


def _unfold(x: Signal, axes: Sequence[int], *, stride: int = 1, reverse: bool = False) -> Signal:
    """All shifted copies side by side as channels."""
    copies = _shifts(x, axes, stride)
    return jnp.concatenate(copies[::-1] if reverse else copies, axis=-1)


def _fold(x: Signal, axes: Sequence[int], *, reverse: bool = False) -> Signal:
    """The sum of equal parts of the channels, each shifted its own way."""
    copies = _shifts(x, axes)
    width = x.shape[-1] // len(copies)
    copies = copies[::-1] if reverse else copies
    parts = [copy[..., i * width : (i + 1) * width] for i, copy in enumerate(copies)]
    return functools.reduce(jnp.add, parts)


def _wide(kernel: Kernel, others: int) -> Float[Array, "rows columns"]:
    """The kernel with the taps along the first `others` spatial axes among the outputs."""
    taps = kernel.reshape(3**others, -1, kernel.shape[1])
    return taps.swapaxes(0, 1).reshape(taps.shape[1], -1)
