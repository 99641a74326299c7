"""Models: the built-in ones, and anything of flax's as pure functions."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from flax import nnx

from jaxlossy.config import Config
from jaxlossy.convolution import Conv
from jaxlossy.data import Data
from jaxlossy.dense import Dense
from jaxlossy.errors import ConfigError
from jaxlossy.lstm import LSTM
from jaxlossy.normalization import normalize
from jaxlossy.pooling import max_pool
from jaxlossy.resnet import ResNet


class Model(NamedTuple):
    """A model as pure functions.

    Running statistics are what a model with batch normalisation remembers of its batches. They are
    no parameters: a worker's are its own, and are never sent. Of most models the tree is empty.

    Attributes:
      init: ``params = init(key, x)``, from a batch of inputs (its values do not matter).
      apply: ``outputs = apply(params, x, statistics)``, (batch, ...) to (batch, ...), as the model
        is evaluated; where there are none, the statistics may be left out.
      start: ``statistics = start(x)``, before training.
      train: ``outputs, statistics = train(params, x, statistics)``, as the model is trained.
    """

    init: Callable[[jax.Array, jax.Array], Any]
    apply: Callable[..., Any]
    start: Callable[[jax.Array], Any]
    train: Callable[[Any, jax.Array, Any], tuple[Any, Any]]


class MLP(nn.Module):
    """Dense layers with ReLU between them; with no hidden layer, logistic regression."""

    features: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, x):
        x = x.reshape(x.shape[0], -1)
        for width in self.features:
            x = nn.relu(Dense(width)(x))
        return Dense(self.outputs)(x)


class CNN(nn.Module):
    """3-wide convolutions, normalised, with ReLU and 2-wide max-pooling, then a global mean.

    Channels last, with one, two or more spatial axes.
    """

    features: tuple[int, ...]
    outputs: int
    remat: bool = False
    normalization: str = "group"

    @nn.compact
    def __call__(self, x, train=False):
        space = x.ndim - 2

        def block(module, x, width):
            return max_pool(normalize(self.normalization, Conv(width)(x), train=train, relu=True))

        if self.remat:
            block = nn.remat(block, static_argnums=2)
        for width in self.features:
            x = block(self, x, width)
        return Dense(self.outputs)(x.mean(axis=range(1, 1 + space)))


def _resnet(depth: int, config: Config, data: Data) -> ResNet:
    return ResNet(depth, _classes(config, data), config.remat, config.normalization)


def _lstm(config: Config, data: Data) -> LSTM:
    classes = _classes(config, data)
    if data.num_tokens is None or data.num_slots is None:
        allowed = f"for utterances, such as data='atis'; {data.name} has none"
        raise ConfigError("model", "lstm", allowed)
    if len(config.features) != 1:
        raise ConfigError("features", config.features, "one width with model='lstm'")
    return LSTM(config.features[0], data.num_tokens, classes, data.num_slots)


def _classes(config: Config, data: Data) -> int:
    if data.num_classes is None:
        raise ConfigError("model", config.model, f"your own, for labels of {data.name}")
    return data.num_classes


#: Name to flax module, from a config and the data that it is for.
MODELS: dict[str, Callable[[Config, Data], nn.Module]] = {
    "logistic": lambda config, data: MLP((), _classes(config, data)),
    "mlp": lambda config, data: MLP(config.features, _classes(config, data)),
    "cnn": lambda config, data: CNN(
        config.features, _classes(config, data), config.remat, config.normalization
    ),
    "resnet20": lambda config, data: _resnet(20, config, data),
    "resnet110": lambda config, data: _resnet(110, config, data),
    "lstm": _lstm,
}


def as_model(model: Any) -> Model:
    """A model from what flax users have at hand.

    Args:
      model: a linen module, with `batch_stats` if its call takes ``train`` (True in training, when
        these change, and False in evaluation); an nnx module class or any other function of the
        keyword ``rngs`` that returns an nnx module (``lambda rngs: Net(16, rngs=rngs)``), so that
        every seed draws its own weights; an (init, apply) pair, as in ``Model`` but without
        statistics; or a ``Model``.

    Raises:
      ConfigError: anything else, an nnx module whose weights are drawn already, or a module with
        other state (dropout keys, statistics of nnx).

    >>> import jax.numpy as jnp
    >>> model = as_model((lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: x @ w))
    >>> model.apply(jnp.ones(3), jnp.ones((2, 3)))
    Array([3., 3.], dtype=float32)
    """
    if isinstance(model, Model):
        return model
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
        return _without_statistics(*model)
    if callable(model):
        # An nnx class has a metaclass whose call hides the constructor's own signature.
        function = model.__init__ if isinstance(model, type) else model
        if "rngs" in inspect.signature(function).parameters:
            return _from_nnx(model)  # pyright: ignore[reportArgumentType]
    raise ConfigError(
        "model", model, "a linen module, a function of rngs for nnx, or an (init, apply) pair"
    )


def _without_statistics(
    init: Callable[[jax.Array, jax.Array], Any], apply: Callable[[Any, jax.Array], Any]
) -> Model:
    return Model(
        init,
        lambda params, x, statistics=(): apply(params, x),
        lambda x: (),
        lambda params, x, statistics: (apply(params, x), statistics),
    )


def _from_linen(module: nn.Module) -> Model:
    if not callable(module) or "train" not in inspect.signature(module).parameters:

        def init_params(key, x):
            variables = module.init(key, x)
            _refuse_state(module, set(variables) - {"params"})
            return variables.get("params", {})

        return _without_statistics(
            init_params,
            lambda params, x: module.apply({"params": params}, x),  # pyright: ignore
        )

    def variables(key, x):
        found = module.init(key, x, train=False)
        _refuse_state(module, set(found) - {"params", "batch_stats"})
        return found

    def start(x):
        def statistics():
            return variables(jax.random.key(0), x).get("batch_stats", {})

        # Where there are none, nothing of this gets into the program.
        return statistics() if jax.tree.leaves(jax.eval_shape(statistics)) else {}

    def apply(params, x, statistics=None):
        return module.apply({"params": params, "batch_stats": statistics or {}}, x, train=False)

    def train(params, x, statistics):
        collections = {"params": params, "batch_stats": statistics}
        outputs, changed = module.apply(collections, x, train=True, mutable=["batch_stats"])
        return outputs, changed.get("batch_stats", {})

    return Model(lambda key, x: variables(key, x).get("params", {}), apply, start, train)


def _from_nnx(make: Callable[..., nnx.Module]) -> Model:
    def split(key):
        graphdef, params, rest = nnx.split(make(rngs=nnx.Rngs(key)), nnx.Param, ...)
        _refuse_state(make, {type(leaf).__name__ for leaf in _variables(rest)})
        return graphdef, params

    def apply(params, x):
        # The graph is the same whatever the key; only its shapes are computed here.
        graphdef = jax.eval_shape(lambda: split(jax.random.key(0)))[0]
        return nnx.merge(graphdef, params, nnx.State({}))(x)  # pyright: ignore

    return _without_statistics(lambda key, x: split(key)[1], apply)


def _variables(state):
    return jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def _refuse_state(model: Any, kinds: set[str]) -> None:
    if kinds:
        allowed = f"parameters only, but it has {', '.join(sorted(kinds))}"
        if "batch_stats" in kinds:
            allowed += "; batch_stats only of a module whose call takes `train`"
        raise ConfigError("model", model, allowed)
