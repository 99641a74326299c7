"""Residual networks in their CIFAR form (He et al. 2015, 1512.03385, section 4.2)."""

import jax.numpy as jnp
from flax import linen as nn

from jaxlossy.convolution import Conv
from jaxlossy.dense import Dense
from jaxlossy.normalization import normalize


class Block(nn.Module):
    """Two 3-wide convolutions around a shortcut without parameters (the paper's option A)."""

    features: int
    stride: int
    normalization: str
    train: bool

    @nn.compact
    def __call__(self, x):
        y = Conv(self.features, self.stride, use_bias=False)(x)
        y = normalize(self.normalization, y, train=self.train, relu=True)
        y = Conv(self.features, use_bias=False)(y)
        y = normalize(self.normalization, y, train=self.train)
        x = x[:, *(slice(None, None, self.stride),) * (x.ndim - 2)]
        more = self.features - x.shape[-1]
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(more // 2, more - more // 2)])
        return nn.relu(x + y)


class ResNet(nn.Module):
    """6 n + 2 layers: a convolution, three stages of n blocks (16, 32, 64 wide), a dense layer.

    The paper's have batch normalisation.

    Attributes:
      depth: 6 n + 2.
      outputs: classes.
      remat: compute every block again in the backward pass, to store less.
      normalization: 'group' or 'batch'.
    """

    depth: int
    outputs: int
    remat: bool = False
    normalization: str = "group"

    @nn.compact
    def __call__(self, x, train=False):
        block = nn.remat(Block) if self.remat else Block
        x = Conv(16, use_bias=False)(x)
        x = normalize(self.normalization, x, train=train, relu=True)
        for stage, features in enumerate((16, 32, 64)):
            for index in range((self.depth - 2) // 6):
                stride = 2 if stage and not index else 1
                name = f"Block_{stage}_{index}"
                x = block(features, stride, self.normalization, train, name=name)(x)
        return Dense(self.outputs)(x.mean(axis=range(1, x.ndim - 1)))
