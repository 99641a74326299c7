"""Dense layers with weights that differ from replica to replica, in the form that suits the device.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import product, xla


class Dense(nn.Module):
    """A dense layer: the same function, parameters and initial weights as ``nn.Dense``."""

    features: int

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return dense(x, kernel, bias)


@jax.custom_vjp
def dense(x, kernel, bias):
    """``x @ kernel + bias`` for a single matrix x."""

    def on_cpu(x, kernel, bias):
        return xla.call(product.dense, xla.Shape((x.shape[0], kernel.shape[1]), x.dtype), x, kernel, bias)

    return platform_dependent(x, kernel, bias, cpu=on_cpu, default=lambda x, kernel, bias: x @ kernel + bias)


def _forward(x, kernel, bias):
    return dense(x, kernel, bias), (x, kernel)


def _backward(saved, g):
    x, kernel = saved

    def on_cpu(x, kernel, g):
        shapes = (xla.Shape(kernel.shape, x.dtype), xla.Shape((kernel.shape[1],), x.dtype))
        dw, db = xla.call(product.dense_weights, shapes, x, g)
        return dw, db
    dw, db = platform_dependent(x, kernel, g, cpu=on_cpu, default=lambda x, kernel, g: (x.T @ g, g.sum(0)))
    def dx_cpu(kernel, g):
        return xla.call(product.product, xla.Shape((g.shape[0], kernel.shape[0]), g.dtype), g, kernel.T)
    dx = platform_dependent(kernel, g, cpu=dx_cpu, default=lambda k, g: g @ k.T)
    return dx, dw, db

dense.defvjp(_forward, _backward)
