"""Dense layers with weights that differ from replica to replica, in the form that suits the device.

On CPUs a kernel of our own, which is faster than XLA's batched products.
"""

import jax
from flax import linen as nn
from jaxtyping import Array, Float

from jaxlossy.devices import platform_dependent
from jaxlossy.kernels import products
from jaxlossy.kernels.calls import call, if_float32, like

Matrix = Float[Array, "rows columns"]


class Dense(nn.Module):
    """A dense layer over the last axis.

    The same function, parameters and initial weights as ``nn.Dense``.
    """

    features: int

    @nn.compact
    def __call__(self, x):
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        bias = self.param("bias", nn.initializers.zeros, shape[1:])
        y = dense(x.reshape(-1, shape[0]), kernel, bias)
        return y.reshape(*x.shape[:-1], self.features)


@jax.custom_vjp
def dense(x: Matrix, kernel: Matrix, bias: Float[Array, " columns"]) -> Matrix:
    """``x @ kernel + bias``.

    >>> import jax.numpy as jnp
    >>> dense(jnp.ones((1, 3)), jnp.ones((3, 2)), jnp.array([1.0, 2.0]))
    Array([[4., 5.]], dtype=float32)
    """

    def in_xla(x, kernel, bias):
        return x @ kernel + bias[None]

    def on_cpu(x, kernel, bias):
        shape = like(x, len(x), len(bias))
        return call(products.dense, shape, x, kernel, bias)

    return platform_dependent(x, kernel, bias, cpu=if_float32(on_cpu, in_xla), default=in_xla)


def _forward(x, kernel, bias):
    return dense(x, kernel, bias), (x, kernel)


def _backward(saved, gradient):
    # Apart, as the first layer needs no gradient of its input.
    of_x = platform_dependent(
        gradient,
        saved[1],
        cpu=if_float32(_input_gradient, _input_gradient_in_xla),
        default=_input_gradient_in_xla,
    )
    of_kernel, of_bias = platform_dependent(
        saved[0],
        gradient,
        cpu=if_float32(_gradient, _gradient_in_xla),
        default=_gradient_in_xla,
    )
    return of_x, of_kernel, of_bias


dense.defvjp(_forward, _backward)


def _input_gradient(y, kernel):
    return call(products.dense_input_gradient, like(y, len(y), len(kernel)), y, kernel)


def _input_gradient_in_xla(y, kernel):
    return y @ kernel.T


def _gradient(x, y):
    shapes = like(x, x.shape[1], y.shape[1]), like(x, y.shape[1])
    return call(products.dense_gradient, shapes, x, y)


def _gradient_in_xla(x, y):
    return x.T @ y, y.sum(axis=0)
