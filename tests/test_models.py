import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from jaxlossy import models
from jaxlossy.config import make_config
from jaxlossy.errors import ConfigError


@pytest.mark.parametrize("shape", [(9, 2), (6, 5, 3), (1, 4, 1)])
def test_the_pooling_is_max_pooling(shape):
    x = jax.random.normal(jax.random.key(0), (2, *shape))
    window = tuple(min(2, size) for size in shape[:-1])
    expected = nn.max_pool(x, window, strides=window)
    np.testing.assert_array_equal(models.max_pool(x), expected)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("logistic", (8, 8, 1), 64 * 10 + 10),
        ("mlp", (8, 8, 1), 64 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10),
        ("cnn", (8, 8, 3), 27 * 32 + 32 + 64 + 9 * 32 * 16 + 16 + 32 + 16 * 10 + 10),
        ("cnn", (40, 1), 3 * 32 + 32 + 64 + 3 * 32 * 16 + 16 + 32 + 16 * 10 + 10),
        ("resnet20", (32, 32, 3), 269_722),  # the paper's 0.27 million
        ("resnet110", (32, 32, 3), 1_727_962),  # and its 1.7 million
    ],
)
def test_built_in_models_have_their_parameters_and_outputs(name, shape, parameters):
    config = make_config({"model": name, "features": (32, 16)})
    model = models.as_model(models.MODELS[name](config, 10))
    x = jax.ShapeDtypeStruct((3, *shape), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
    assert jax.eval_shape(model.apply, params, x).shape == (3, 10)


def test_cross_entropy_of_equal_outputs_is_the_log_of_their_number():
    losses = models.cross_entropy(jnp.zeros((3, 7)), jnp.array([0, 3, 6]))
    np.testing.assert_allclose(losses, np.log(7), rtol=1e-6)


class BatchNormNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=False)(x)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, x):
        return self.inner(x)


class DropoutNet(Net):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)


@pytest.mark.parametrize(("model", "kinds"), [(BatchNormNet(), "batch_stats"), (DropoutNet, "Rng")])
def test_models_with_state_are_refused(model, kinds):
    pair = models.as_model(model)
    with pytest.raises(ConfigError, match=f"^model: .*allowed: parameters only, .*{kinds}"):
        pair.init(jax.random.key(0), jnp.ones((2, 2)))


def test_an_nnx_instance_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"lambda rngs: Net\(rngs=rngs\)"):
        models.as_model(Net(nnx.Rngs(0)))


@pytest.mark.parametrize("model", [3, "mlp", (1, 2), len, None])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ConfigError, match=r"a linen module, a function of rngs for nnx, or an"):
        models.as_model(model)
