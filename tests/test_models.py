import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from jaxlossy import models, tasks
from jaxlossy.config import make_config
from jaxlossy.data import from_arrays
from jaxlossy.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "normalization", "shape", "parameters"),
    [
        ("logistic", "group", (8, 8, 1), 64 * 10 + 10),
        ("mlp", "group", (8, 8, 1), 64 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10),
        ("cnn", "group", (8, 8, 3), 27 * 32 + 32 + 64 + 9 * 32 * 16 + 16 + 32 + 16 * 10 + 10),
        ("cnn", "batch", (40, 1), 3 * 32 + 32 + 64 + 3 * 32 * 16 + 16 + 32 + 16 * 10 + 10),
        ("resnet20", "group", (32, 32, 3), 269_722),  # the paper's 0.27 million
        ("resnet20", "batch", (32, 32, 3), 269_722),
        ("resnet110", "batch", (32, 32, 3), 1_727_962),  # and its 1.7 million
    ],
)
def test_built_in_models_have_their_parameters_and_outputs(name, normalization, shape, parameters):
    config = make_config({"model": name, "features": (32, 16), "normalization": normalization})
    x, y = np.zeros((1, *shape)), np.array([9])
    data = from_arrays((x, y), (x, y))
    model = models.as_model(models.MODELS[name](config, data))
    x = jax.ShapeDtypeStruct((3, *shape), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
    statistics = jax.eval_shape(model.start, x)
    assert jax.eval_shape(model.apply, params, x, statistics).shape == (3, 10)
    # A mean and a variance a channel, of every layer that has a scale and a shift a channel.
    scales = [p for path, p in jax.tree.leaves_with_path(params) if "scale" in str(path[-1])]
    expected = 2 * sum(s.size for s in scales) if normalization == "batch" else 0
    assert sum(leaf.size for leaf in jax.tree.leaves(statistics)) == expected


def test_cross_entropy_of_equal_outputs_is_the_log_of_their_number():
    losses = tasks.cross_entropy(jnp.zeros((3, 7)), jnp.array([0, 3, 6]))
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


class CountingNet(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        count = self.variable("counts", "calls", lambda: jnp.zeros(()))
        count.value += 1
        return nn.Dense(2)(x)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        (BatchNormNet(), "batch_stats; batch_stats only of a module whose call takes `train`"),
        (CountingNet(), "counts"),
        (DropoutNet, "Rng"),
    ],
)
def test_models_with_other_state_are_refused(model, kinds):
    found = models.as_model(model)
    with pytest.raises(ConfigError, match=f"^model: .*allowed: parameters only, .*{kinds}"):
        found.init(jax.random.key(0), jnp.ones((2, 2)))


def test_an_nnx_instance_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"lambda rngs: Net\(rngs=rngs\)"):
        models.as_model(Net(nnx.Rngs(0)))


@pytest.mark.parametrize("model", [3, "mlp", (1, 2), len, None])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ConfigError, match=r"a linen module, a function of rngs for nnx, or an"):
        models.as_model(model)
