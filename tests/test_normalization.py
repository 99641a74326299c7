"""Batch normalisation: statistics of each worker's own, and what is done with them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from problems import SMALL, small_data
from test_precision import prepare, series_data

import jaxlossy
from jaxlossy import checkpoint, draws, memory, results, train
from jaxlossy.config import make_config
from jaxlossy.errors import ConfigError
from jaxlossy.models import as_model
from jaxlossy.problem import as_examples, make_problem
from jaxlossy.shards import make_shards

CNN = {"model": "cnn", "features": (8,), "normalization": "batch", "workers": 2, "eval_every": 4}


class Net(nn.Module):
    """A user's own, by flax's convention."""

    momentum: float = 0.5

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Dense(4)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=self.momentum)(x)
        return nn.Dense(3)(nn.relu(x))


def start(model=None, **fields):
    data = small_data()
    config = make_config({**SMALL, **fields})
    problem = make_problem(config, data, model=model or Net())
    shards = make_shards(
        data.train_y,
        workers=config.workers,
        dirichlet_alpha=config.dirichlet_alpha,
        seed=config.shard_seed,
    )
    examples, shards = jax.tree.map(jnp.asarray, (as_examples(data), shards))
    return problem, config, examples, shards


def flax_training(config, examples, shards, worker, params, statistics):
    """One worker's training as the flax guide has it, without jaxlossy's model or step."""
    net, optimizer = Net(), optax.sgd(config.learning_rate)
    state = optimizer.init(params)

    @jax.jit
    def step(params, statistics, state, batch):
        x, y = examples.train_x[batch], examples.train_y[batch]

        def loss(params):
            variables = {"params": params, "batch_stats": statistics}
            outputs, changed = net.apply(variables, x, train=True, mutable=["batch_stats"])
            losses = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
            return losses.mean(), changed["batch_stats"]

        grads, changed = jax.grad(loss, has_aux=True)(params)
        updates, new = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), changed, new

    for index in range(config.steps * config.local_steps):
        batch = draws.draw_batch(config, shards, jnp.int32(index))[worker]
        params, statistics, state = step(params, statistics, state, batch)
    return params, statistics


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def of_worker(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.parametrize(
    "fields",
    [
        {"workers": 1},
        {"workers": 2, "drop_probability": 1.0, "placement": "separate", "local_steps": 2},
        {
            "workers": 2,
            "drop_probability": 1.0,
            "placement": "separate",
            "aggregation": "gradient_averaging",
        },
    ],
)
def test_a_worker_that_hears_of_nobody_trains_as_flax_does(fields):
    problem, config, examples, shards = start(**fields)
    first = train.init(problem, config, examples)
    last, _ = train.run(problem, config, examples, shards)
    for i in range(config.workers):
        expected = flax_training(
            config,
            examples,
            shards,
            i,
            of_worker(problem.layout.unpack(first.replicas), i),
            of_worker(first.statistics, i),
        )
        found = of_worker((problem.layout.unpack(last.replicas), last.statistics), i)
        assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def skewed():
    """A run without loss on shards of one class each, about."""
    problem, config, examples, shards = start(dirichlet_alpha=0.01)
    return problem, *train.run(problem, config, examples, shards)


def test_statistics_are_each_workers_own_and_never_sent(skewed):
    problem, state, metrics = skewed
    # Without loss the replicas are equal; what the workers' data make of them is not.
    assert metrics["disagreement"][-1] < 1e-10
    means = state.statistics["BatchNorm_0"]["mean"]
    assert means.shape == (4, 4)
    assert np.ptp(means, axis=0).min() > 0.01
    # No packet carries them: scales and shifts are parameters, means and variances are not.
    assert problem.layout.num_parameters == (6 * 4 + 4) + 2 * 4 + (4 * 3 + 3)


def test_replicas_are_evaluated_with_their_own_statistics_and_the_mean_model_with_the_mean(skewed):
    problem, state, metrics = skewed
    data = small_data()
    params = problem.layout.unpack(state.replicas)

    def loss(i, statistics):
        variables = {"params": of_worker(params, i), "batch_stats": statistics}
        outputs = Net().apply(variables, data.test_x, train=False)
        return float(problem.loss(outputs, data.test_y).mean())

    own = [loss(i, of_worker(state.statistics, i)) for i in range(4)]
    of_mean = loss(0, jax.tree.map(lambda leaf: leaf.mean(axis=0), state.statistics))
    assert metrics["replica_test_loss"][-1] == pytest.approx(np.mean(own), rel=1e-5)
    assert metrics["test_loss"][-1] == pytest.approx(of_mean, rel=1e-5)
    assert np.ptp(own) > 1e-3


GRID = {"drop_probability": (0.0, 0.3), "seed": (0, 1, 2)}


def sweep(**options):
    options = {"model": Net(), "data": small_data(), "verbose": False, **options}
    return jaxlossy.sweep({**SMALL, "steps": 8, "sweep": GRID}, **options)


def assert_same(a, b):
    for name in ("train_loss", "test_loss", "replica_test_loss"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5)


@pytest.fixture(scope="module")
def batched():
    return sweep()


def test_a_config_alone_equals_itself_in_the_sweep(batched):
    problem, config, examples, shards = start(steps=8, drop_probability=0.3, seed=1)
    _, alone = train.run(problem, config, examples, shards)
    assert_same(batched.isel(config=4), alone)


def test_devices_that_share_workers_keep_their_statistics(batched):
    assert_same(sweep(worker_devices=2), batched)


def test_statistics_are_in_the_checkpoint(batched, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(results, "fill", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sweep(workdir=tmp_path)
    assert (tmp_path / "checkpoint.npz").exists()
    assert_same(sweep(workdir=tmp_path), batched)


def test_live_replicas_one_after_another_are_the_same():
    problem, config, examples, shards = start(drop_probability=0.3)
    whole, _ = train.run(problem, config, examples, shards)
    few = dataclasses.replace(problem, live_workers=1)
    apart, _ = train.run(few, config, examples, shards)
    assert_close(apart.statistics, whole.statistics, rtol=1e-5)


def test_statistics_count_as_held_memory():
    costs = []
    for normalization in ("group", "batch"):
        problem, config, examples, shards = prepare(
            series_data(), **{**CNN, "normalization": normalization}
        )
        costs.append(memory.footprint(problem, config, examples, shards))
    # A mean and a variance of 8 channels, of 2 workers.
    assert costs[1].held - costs[0].held == 2 * (8 + 8) * 4


def test_statistics_are_float32_where_the_model_computes_in_bfloat16():
    runs = {}
    for dtype in ("float32", "bfloat16"):
        problem, config, examples, shards = prepare(series_data(), **CNN, compute_dtype=dtype)
        state, metrics = train.run(problem, config, examples, shards)
        assert {leaf.dtype for leaf in jax.tree.leaves(state.statistics)} == {np.dtype("float32")}
        runs[dtype] = state.statistics["BatchNorm_0"], metrics["test_loss"]
    assert_close(runs["bfloat16"], runs["float32"], rtol=0.05, atol=0.02)
    # Sums in bfloat16 would have some 3 digits only, and so would what they make.
    mean = np.asarray(runs["bfloat16"][0]["mean"])
    assert (mean != mean.astype(jnp.bfloat16).astype(np.float32)).mean() > 0.5


def test_remat_leaves_statistics_alone():
    states = []
    for remat in (False, True):
        # One step: in more of them what rounding changes grows, where a ReLU is near 0.
        fields = {**CNN, "steps": 1, "eval_every": 1, "remat": remat}
        problem, config, examples, shards = prepare(series_data(), **fields)
        states.append(train.run(problem, config, examples, shards)[0])
    assert_close(states[1].statistics, states[0].statistics, rtol=1e-4, atol=1e-6)


class Dropout(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.Dense(3)(nn.Dropout(0.5)(x, deterministic=not train))


def test_other_state_is_refused():
    config = make_config(SMALL)
    with pytest.raises(ConfigError, match=r"^model: .*needs PRNG for \"dropout\""):
        make_problem(config, small_data(), model=Dropout())
    fixed = nn.Sequential([nn.Dense(3), nn.BatchNorm(use_running_average=False)])
    with pytest.raises(ConfigError, match=r"^model: .*batch_stats only of a module whose call"):
        make_problem(config, small_data(), model=fixed)
    given = as_model(Net())
    broken = given._replace(train=lambda params, x, s: (given.apply(params, x, s), {}))
    with pytest.raises(ConfigError, match=r"^model: .*statistics have the same shapes in training"):
        make_problem(config, small_data(), model=broken)
    batch = make_config({**SMALL, "normalization": "batch"})
    with pytest.raises(
        ConfigError, match=r"^normalization: 'batch' is .* with a model of your own"
    ):
        make_problem(batch, small_data(), model=Net())
