"""The configs of the paper's experiments: what it says is in them, and both forms are checked."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import pytest

from jaxlossy import data as data_lib
from jaxlossy import optimizers
from jaxlossy.grid import expand, make_groups

CONFIGS = Path(__file__).parent.parent / "configs"
NAMES = ("rps_resnet20_cifar10", "rps_resnet110_cifar10", "rps_lstm_atis")


def load(name, *form):
    spec = importlib.util.spec_from_file_location(name, CONFIGS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(*form), module.EPOCH


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_is_in_them(name):
    found, epoch = load(name)
    configs, swept = expand(found)
    assert set(swept) == {"aggregation", "drop_probability", "servers", "seed"}
    assert {c.drop_probability for c in configs} == {0.0, 0.01, 0.05, 0.1, 0.2}
    assert {c.aggregation for c in configs} == {"model_averaging", "gradient_averaging"}
    config = configs[0]
    assert (config.workers, config.batch_size, config.optimizer) == (16, 32, "sgd")
    rate = optimizers.learning_rate(config)
    # Up over five epochs, then down after 80 and 120.
    for epochs, factor in ((1, 0.2), (5, 1), (80, 1), (120, 0.1), (160, 0.01)):
        found = float(rate(jnp.int32(epochs * epoch - 1)))
        assert found == pytest.approx(factor * config.learning_rate, rel=1e-5)
    assert float(rate(jnp.int32(80 * epoch))) == pytest.approx(0.1 * config.learning_rate)


@pytest.mark.parametrize("name", NAMES)
def test_the_shrunken_form_is_the_same_on_made_up_data(name):
    found, _ = load(name, "shrink")
    groups = make_groups(expand(found)[0], data=None, data_dir=None)
    problem, config = groups[0].problem, groups[0].configs[0]
    assert config.steps <= 60
    if name == "rps_lstm_atis":
        assert len(groups) == 2  # one an aggregation
        assert set(problem.scores) == {"accuracy", "slot_accuracy"}
    else:
        assert config.normalization == "batch"
        assert problem.layout.num_parameters == 269_722
        assert groups[0].examples.train_x.shape[1:] == (32, 32, 3)


@pytest.mark.parametrize("name", NAMES)
def test_there_are_no_other_forms(name):
    with pytest.raises(ValueError, match=r"^form: 'shrunk' is not allowed"):
        load(name, "shrunk")


def test_the_made_up_images_can_be_told_apart():
    data = data_lib.load("cifar10_like")
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    classes = jnp.stack([data.train_x[data.train_y == k].mean(axis=0).ravel() for k in range(10)])
    distances = ((data.test_x.reshape(-1, 1, 3072) - classes[None]) ** 2).sum(axis=-1)
    assert (distances.argmin(axis=1) == data.test_y).mean() > 0.95
