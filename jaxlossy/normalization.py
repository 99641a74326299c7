"""Normalisation of activations: by groups of channels, or by the worker's batch.

Batch normalisation (Ioffe & Szegedy, 1502.03167) is what the ResNets of papers have. Here every
worker normalises by its own batches, and its running statistics, for evaluation, are its own as
well: they are no parameters, so they are never sent. GroupNorm (Wu & He, 1803.08494) has nothing
of the kind.
"""

import math

import jax
from flax import linen as nn

#: Of what running statistics were, the share kept at a step; PyTorch's default.
MOMENTUM = 0.9


def normalize(kind: str, x: jax.Array, *, train: bool) -> jax.Array:
    """A normalising layer with a scale and a shift, inside a module.

    Args:
      kind: 'group': by groups of channels, eight of them where the width allows; 'batch': by the
        batch where `train`, else by the running statistics. Statistics are float32.
      x: (batch, ..., channels).
    """
    if kind == "group":
        return nn.GroupNorm(num_groups=math.gcd(x.shape[-1], 8))(x)
    return nn.BatchNorm(use_running_average=not train, momentum=MOMENTUM)(x)
