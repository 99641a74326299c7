"""Normalisation of activations: by groups of channels, or by the worker's batch.

Batch normalisation (Ioffe & Szegedy, 1502.03167) is what the ResNets of papers have. Here every
worker normalises by its own batches, and its running statistics, for evaluation, are its own as
well: they are no parameters, so they are never sent. GroupNorm (Wu & He, 1803.08494) has nothing
of the kind.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import groups
from jaxlossy.kernels.calls import call, if_float32, like

#: Of what running statistics were, the share kept at a step; PyTorch's default.
MOMENTUM = 0.9


def normalize(kind: str, x: jax.Array, *, train: bool, relu: bool = False) -> jax.Array:
    """A normalising layer with a scale and a shift, and ReLU if asked for, inside a module.

    Args:
      kind: 'group': by groups of channels, eight of them where the width allows; 'batch': by the
        batch where `train`, else by the running statistics. Statistics are float32.
      x: (batch, ..., channels).
      relu: whether what is negative becomes 0.
    """
    if kind == "group":
        return GroupNorm(math.gcd(x.shape[-1], 8), relu)(x)
    x = nn.BatchNorm(use_running_average=not train, momentum=MOMENTUM)(x)
    return nn.relu(x) if relu else x


class GroupNorm(nn.Module):
    """The function, parameters and initial weights of ``nn.GroupNorm``; then ReLU, if asked."""

    num_groups: int
    relu: bool = False

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return group_norm(x, scale, bias, self.num_groups, self.relu)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def group_norm(
    x: Float[Array, "batch ... channels"],
    scale: Float[Array, " channels"],
    bias: Float[Array, " channels"],
    num_groups: int,
    relu: bool = False,
) -> Float[Array, "batch ... channels"]:
    """Every image less the mean of a group of its channels, over their deviation; then scaled.

    With `relu` what is negative becomes 0, which saves a pass over the images.

    >>> group_norm(jnp.array([[[1.0], [3.0], [3.0], [1.0]]]), jnp.ones(1), jnp.zeros(1), 1).round(3)
    Array([[[-1.], [ 1.], [ 1.], [-1.]]], dtype=float32)
    """
    return _forward(x, scale, bias, num_groups, relu)[0]


def _forward(x, scale, bias, num_groups, relu):
    def on_cpu(x, scale, bias):
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        statistic = like(x, x.shape[0], num_groups)
        shapes = (like(x, *flat.shape), statistic, statistic, like(x, 2, x.shape[-1]))
        y, mean, inverse, _ = call(groups.normalize, shapes, flat, scale, bias, relu=relu)
        return y.reshape(x.shape), mean, inverse

    in_xla = functools.partial(_in_xla, num_groups, relu)
    y, *statistics = platform_dependent(
        x, scale, bias, cpu=if_float32(on_cpu, in_xla), default=in_xla
    )
    return y, ((x, scale, bias, *statistics), y if relu else None)


def _backward(num_groups, relu, saved, gradient):
    saved, y = saved

    def on_cpu(x, scale, bias, mean, inverse, gradient):
        flat, channels = x.reshape(x.shape[0], -1, x.shape[-1]), x.shape[-1]
        per_channel = like(x, channels)
        shapes = (like(x, *flat.shape), per_channel, per_channel, like(x, 5, channels))
        arguments = flat, gradient.reshape(flat.shape), scale, bias, mean, inverse
        # The kernel computes y again rather than read it.
        of_x, of_scale, of_bias, _ = call(groups.normalize_gradient, shapes, *arguments, relu=relu)
        return of_x.reshape(x.shape), of_scale, of_bias

    def in_xla(x, scale, bias, mean, inverse, gradient):
        if relu:
            gradient = jnp.where(y > 0, gradient, 0)
        return _gradient_in_xla(num_groups, x, scale, mean, inverse, gradient)

    return platform_dependent(*saved, gradient, cpu=if_float32(on_cpu, in_xla), default=in_xla)


group_norm.defvjp(_forward, _backward)


def _in_xla(num_groups, relu, x, scale, bias):
    """The result, and the mean and the inverse deviation of every group of every image."""
    parts = _in_groups(num_groups, x)
    mean = parts.mean(axis=(1, 3))
    variance = jnp.maximum((parts * parts).mean(axis=(1, 3)) - mean * mean, 0)
    inverse = jax.lax.rsqrt(variance + groups.EPSILON)
    scale, bias = (_in_groups(num_groups, a[None, None])[:, 0] for a in (scale, bias))
    slope = inverse[:, :, None] * scale
    y = parts * slope[:, None] + (bias - mean[:, :, None] * slope)[:, None]
    y = jnp.maximum(y, 0) if relu else y
    return y.reshape(x.shape).astype(x.dtype), mean, inverse


def _gradient_in_xla(num_groups, x, scale, mean, inverse, gradient):
    parts, scales = _in_groups(num_groups, x), _in_groups(num_groups, scale[None, None])[:, 0]
    given, mean, inverse = _in_groups(num_groups, gradient), mean[:, :, None], inverse[:, :, None]
    of_bias = given.sum(axis=1)
    of_scale = inverse * ((parts * given).sum(axis=1) - mean * of_bias)
    count = parts.shape[1] * parts.shape[3]
    slope = -inverse * inverse * (scales * of_scale).sum(axis=2, keepdims=True) / count
    start = -inverse * (scales * of_bias).sum(axis=2, keepdims=True) / count - slope * mean
    of_x = slope[:, None] * parts + (inverse * scales)[:, None] * given + start[:, None]
    of_scale, of_bias = (a.sum(axis=0).reshape(-1).astype(x.dtype) for a in (of_scale, of_bias))
    return of_x.reshape(x.shape).astype(x.dtype), of_scale, of_bias


def _in_groups(num_groups, x):
    """(batch, pixels, groups, channels of a group), float32."""
    return x.astype(jnp.float32).reshape(x.shape[0], -1, num_groups, x.shape[-1] // num_groups)
