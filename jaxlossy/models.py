"""Models and losses: the built-in ones, and anything of flax's as an (init, apply) pair."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from flax import linen as nn
from flax import nnx
from jaxtyping import Array, Float, Int

from jaxlossy.config import Config
from jaxlossy.convolution import Conv
from jaxlossy.errors import ConfigError
from jaxlossy.resnet import ResNet


class Model(NamedTuple):
    """A model as a pair of pure functions.

    Attributes:
      init: ``params = init(key, x)``, from a batch of inputs (its values do not matter).
      apply: ``outputs = apply(params, x)``, (batch, ...) to (batch, ...).
    """

    init: Callable[[jax.Array, jax.Array], Any]
    apply: Callable[[Any, jax.Array], jax.Array]


def cross_entropy(
    outputs: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """Softmax cross-entropy in nats, one value an example: the default loss."""
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)


class MLP(nn.Module):
    """Dense layers with ReLU between them; with no hidden layer, logistic regression."""

    features: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, x):
        x = x.reshape(x.shape[0], -1)
        for width in self.features:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.outputs)(x)


def max_pool(x: Float[Array, "batch ... channels"]) -> Float[Array, "batch ... channels"]:
    """The maximum over 2-wide windows along every spatial axis that has two entries or more.

    As ``nn.max_pool`` with stride 2, whose gradient (a scatter) is slow on CPUs.
    """
    for axis in range(1, x.ndim - 1):
        half = x.shape[axis] // 2
        if half:
            x = jax.lax.slice_in_dim(x, 0, 2 * half, axis=axis)
            x = x.reshape(*x.shape[:axis], half, 2, *x.shape[axis + 1 :]).max(axis=axis + 1)
    return x


class CNN(nn.Module):
    """3-wide convolutions with GroupNorm, ReLU and 2-wide max-pooling, then a global mean.

    Channels last, with one, two or more spatial axes. GroupNorm (Wu & He, 1803.08494) in place of
    batch normalisation, whose running statistics would be a second thing for workers to share.
    """

    features: tuple[int, ...]
    outputs: int
    remat: bool = False

    @nn.compact
    def __call__(self, x):
        space = x.ndim - 2

        def block(module, x, width):
            x = Conv(width)(x)
            x = nn.relu(nn.GroupNorm(num_groups=math.gcd(width, 8))(x))
            return max_pool(x)

        if self.remat:
            block = nn.remat(block, static_argnums=2)
        for width in self.features:
            x = block(self, x, width)
        return nn.Dense(self.outputs)(x.mean(axis=range(1, 1 + space)))


#: Name to flax module, from a config and the number of outputs.
MODELS: dict[str, Callable[[Config, int], nn.Module]] = {
    "logistic": lambda config, outputs: MLP((), outputs),
    "mlp": lambda config, outputs: MLP(config.features, outputs),
    "cnn": lambda config, outputs: CNN(config.features, outputs, config.remat),
    "resnet20": lambda config, outputs: ResNet(20, outputs, config.remat),
    "resnet110": lambda config, outputs: ResNet(110, outputs, config.remat),
}


def as_model(model: Any) -> Model:
    """A model from what flax users have at hand.

    Args:
      model: a linen module; an nnx module class or any other function of the keyword ``rngs`` that
        returns an nnx module (``lambda rngs: Net(16, rngs=rngs)``), so that every seed draws its
        own weights; or an (init, apply) pair as in ``Model``.

    Raises:
      ConfigError: anything else, an nnx module whose weights are drawn already, or a module with
        state besides its parameters (batch statistics, dropout keys).

    >>> import jax.numpy as jnp
    >>> model = as_model((lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: x @ w))
    >>> model.apply(jnp.ones(3), jnp.ones((2, 3)))
    Array([3., 3.], dtype=float32)
    """
    if isinstance(model, nn.Module):
        return _from_linen(model)
    if isinstance(model, nnx.Module):
        raise ConfigError(
            "model",
            type(model).__name__,
            "for nnx a function of rngs, such as lambda rngs: Net(rngs=rngs); the weights of an "
            "instance are drawn already, and seeds could not differ",
        )
    if isinstance(model, tuple) and len(model) == 2 and all(callable(f) for f in model):
        return Model(*model)
    if callable(model):
        # An nnx class has a metaclass whose call hides the constructor's own signature.
        function = model.__init__ if isinstance(model, type) else model
        if "rngs" in inspect.signature(function).parameters:
            return _from_nnx(model)  # pyright: ignore[reportArgumentType]
    raise ConfigError(
        "model", model, "a linen module, a function of rngs for nnx, or an (init, apply) pair"
    )


def _from_linen(module: nn.Module) -> Model:
    def init(key, x):
        variables = module.init(key, x)
        _refuse_state(module, set(variables) - {"params"})
        return variables.get("params", {})

    return Model(init, lambda params, x: module.apply({"params": params}, x))  # pyright: ignore


def _from_nnx(make: Callable[..., nnx.Module]) -> Model:
    def split(key):
        graphdef, params, rest = nnx.split(make(rngs=nnx.Rngs(key)), nnx.Param, ...)
        _refuse_state(make, {type(leaf).__name__ for leaf in _variables(rest)})
        return graphdef, params

    def apply(params, x):
        # The graph is the same whatever the key; only its shapes are computed here.
        graphdef = jax.eval_shape(lambda: split(jax.random.key(0)))[0]
        return nnx.merge(graphdef, params, nnx.State({}))(x)  # pyright: ignore

    return Model(lambda key, x: split(key)[1], apply)


def _variables(state):
    return jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def _refuse_state(model: Any, kinds: set[str]) -> None:
    if kinds:
        raise ConfigError("model", model, f"parameters only, but it has {', '.join(sorted(kinds))}")
