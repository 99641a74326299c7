"""What the theory predicts of training, against training on quadratics."""

import math

import jax
import numpy as np
import pytest

import jaxlossy
from jaxlossy.errors import ConfigError
from jaxlossy.rps import predictions
from jaxlossy.rps.quadratic import Quadratic, clusters, constants, trajectories


def test_gradients_stay_under_the_bound():
    table = predictions.gradient_bounds(settings=200, seeds=1)
    assert len(table) == 200
    assert table["drop_probability"].nunique() == 200
    ratio = table["measured"] / table["predicted"]
    assert (ratio <= 1).all()
    # Nor is the bound so loose that anything would stay under it.
    assert ratio.max() > 0.3


def test_disagreement_is_the_predicted_one():
    table = predictions.disagreements(seeds=6)
    assert set(table["dirichlet_alpha"]) == {0.3, math.inf}
    later = table[table["step"] >= 100].groupby(["aggregation", "dirichlet_alpha"])
    for key, rows in later:
        for p, line in rows.groupby("drop_probability"):
            ratio = line["measured"].mean() / line["predicted"].mean()
            assert abs(ratio - 1) < 0.05, (key, p, ratio)
    end = table[table["step"] == 200].set_index("aggregation")["measured"]
    assert end["gradient_averaging"].min() > 5 * end["model_averaging"].max()


def test_fixed_servers_bias_training_by_the_predicted_weight():
    table = predictions.server_weights(
        drop_probability=(0.1, 0.3, 0.7), learning_rate=(0.1, 0.5), seeds=12, steps=600
    )
    off = (table["measured"] - table["predicted"]).abs()
    assert (off <= 4 * table["error"]).all(), table
    fixed = table["placement"] == "fixed"
    assert (table["measured"][fixed] - 1 > 5 * table["error"][fixed]).all(), table
    assert (table["predicted"][~fixed] == 1).all()


def test_trajectories_are_those_of_a_sweep():
    problem = clusters(parameters=6, curvature=[0.1, 0.2, 0.5, 0.5, 1.0, 1.0])
    config = {
        "workers": 4,
        "steps": 20,
        "eval_every": 10,
        "packet_size": 2,
        "learning_rate": 0.3,
        "sweep": {"drop_probability": (0.0, 0.4), "servers": (1, 3)},
    }
    ds = jaxlossy.sweep(config, **problem.objects(), verbose=False)
    (group,) = trajectories(config, problem)
    means = group.mean_model[:, [10, 20]]
    loss = (0.5 * problem.curvature * means**2).sum(axis=-1)  # the points' mean is 0
    np.testing.assert_allclose(ds["test_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(
        ds["disagreement"], group.disagreement[:, [10, 20]], rtol=1e-4, atol=1e-9
    )
    np.testing.assert_array_equal(group.mean_model[:, 0], np.full((4, 6), 2.0))
    assert [config.servers for config in group.configs] == [1, 3, 1, 3]


def test_constants_are_those_of_the_gradients():
    problem = clusters(classes=3, parameters=4, examples=30, curvature=[0.5, 1, 2, 2])
    shards = np.random.default_rng(0).permutation(30).reshape(3, 10)
    found = constants(problem, shards, batch_size=5)
    model, loss = problem.objects()["model"], problem.objects()["loss"]

    def objective(x, b):
        return loss(model[1](x, b), None).mean()

    x = np.linspace(-1, 1, 4, dtype=np.float32)
    points = problem.points.astype(np.float32)
    own = np.stack([[jax.grad(objective)(x, points[i : i + 1]) for i in s] for s in shards])
    whole = np.stack([jax.grad(objective)(x, points[s]) for s in shards])
    variance = ((own - own.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean() / 5
    spread = ((whole - whole.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert (found.smoothness, found.sigma, found.zeta) == pytest.approx(
        (2, variance**0.5, spread**0.5), rel=1e-4
    )
    best = problem.points.mean(axis=0) / problem.curvature

    def value(x):
        return (0.5 * problem.curvature * x**2 - problem.points.mean(axis=0) * x).sum()

    assert found.gap == pytest.approx(value(problem.start) - value(best), rel=1e-9)


def test_without_curvature_there_is_no_minimum():
    flat = clusters(curvature=0.0, parameters=2)
    uneven = Quadratic(flat.points + 1, flat.labels, flat.curvature, flat.start)
    shards = np.arange(960).reshape(4, 240)
    assert constants(uneven, shards, 1).gap == math.inf
    assert constants(uneven, shards, 1).smoothness == 0
    with pytest.raises(ConfigError, match=r"^curvature: "):
        clusters(curvature=-1.0)
