"""Residual networks in their CIFAR form (He et al. 2015, 1512.03385, section 4.2)."""

import math

import jax.numpy as jnp
from flax import linen as nn

from jaxlossy.convolution import Conv


class Block(nn.Module):
    """Two 3-wide convolutions around a shortcut without parameters (the paper's option A)."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x):
        y = nn.relu(_norm(Conv(self.features, self.stride, use_bias=False)(x)))
        y = _norm(Conv(self.features, use_bias=False)(y))
        x = x[:, *(slice(None, None, self.stride),) * (x.ndim - 2)]
        more = self.features - x.shape[-1]
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(more // 2, more - more // 2)])
        return nn.relu(x + y)


class ResNet(nn.Module):
    """6 n + 2 layers: a convolution, three stages of n blocks (16, 32, 64 wide), a dense layer.

    GroupNorm (Wu & He, 1803.08494) stands where the paper has batch normalisation.

    Attributes:
      depth: 6 n + 2.
      outputs: classes.
      remat: compute every block again in the backward pass, to store less.
    """

    depth: int
    outputs: int
    remat: bool = False

    @nn.compact
    def __call__(self, x):
        block = nn.remat(Block) if self.remat else Block
        x = nn.relu(_norm(Conv(16, use_bias=False)(x)))
        for stage, features in enumerate((16, 32, 64)):
            for index in range((self.depth - 2) // 6):
                stride = 2 if stage and not index else 1
                x = block(features, stride, name=f"Block_{stage}_{index}")(x)
        return nn.Dense(self.outputs)(x.mean(axis=range(1, x.ndim - 1)))


def _norm(x):
    return nn.GroupNorm(num_groups=math.gcd(x.shape[-1], 8))(x)
