"""Decentralised training of plans: padding, data that grows, mixing, delays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlossy import data as data_lib
from jaxlossy.errors import ConfigError
from jaxlossy.topology import graphs, networks, training
from jaxlossy.topology.epoch_time import expected_maximum
from jaxlossy.topology.model import Plan, Problem
from jaxlossy.topology.tasks import Task, make_task

L, I = 6, 3  # noqa: E741


def problem(**fields):
    rng = np.random.default_rng(0)
    ones = np.ones(L)
    values = {
        "X0": 4.0 + np.arange(L), "work": 6 * ones, "strag": 0.3 * ones, "cL": ones,
        "cLL": np.ones((L, L)), "r": np.array([0.5, 1.0, 2.0]), "dmin": np.full(I, 0.2),
        "dexp": np.array([0.1, 0.5, 1.0]), "cI": np.ones(I), "cIL": rng.random((I, L)),
        "tg": 0.1, "c0": 0.0, "c1": 1.0, "c2": 1.0, "alpha": 1.0, "beta": 0.5,
        "eps_max": 1.0, "T_max": 1e6, "K_max": 100, **fields,
    }  # fmt: skip
    return Problem(**values)


def plan(nodes, degree, sources, epochs):
    adjacency = graphs.circulant(len(nodes), graphs.nearest_offsets(len(nodes), degree))
    return Plan(tuple(nodes), graphs.edges_of(adjacency, nodes), tuple(sources), epochs)


CHOSEN = [
    (problem(), plan((0, 2, 5), 2, (0, 2), 5)),
    (problem(), plan((0, 1, 2, 3, 4), 2, (1,), 8)),
    (problem(tg=0.0), plan((1,), 0, (0, 1, 2), 3)),
]


@functools.cache
def task(**fields) -> Task:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    x[:, 0] += 2 * y
    return make_task(
        data_lib.from_arrays((x[:240], y[:240]), (x[240:], y[240:]), name="small"),
        error=lambda outputs, labels: (outputs.argmax(axis=-1) != labels).astype(jnp.float32),
        of_replicas=False,
        config={"model": "logistic", "batch_size": 12, "learning_rate": 0.5, **fields},
    )


@functools.cache
def trained(seeds=(0, 1), **fields):
    return training.train_plans(task(**fields), CHOSEN, seeds=seeds)


@pytest.mark.parametrize(
    ("index", "fields"), [(0, {}), (1, {"drop_probability": 0.3, "loss_unit": "packet"})]
)
def test_in_a_batch_or_alone_a_plan_is_the_same(index, fields):
    batch = trained(**fields)
    alone = training.train_plans(task(**fields), CHOSEN[index : index + 1], seeds=(1,))
    epochs = CHOSEN[index][1].epochs
    for name in batch:
        row = batch[name].sel(seed=1).isel(plan=index)
        assert np.isnan(row[epochs:]).all()
        np.testing.assert_allclose(row[:epochs], alone[name][0, 0], rtol=2e-4, atol=1e-6)


def test_losses_change_training_but_not_its_start_or_its_clock():
    lossless, lossy = trained(), trained(drop_probability=0.3, loss_unit="packet")
    assert not np.allclose(lossless["disagreement"], lossy["disagreement"], equal_nan=True)
    np.testing.assert_allclose(lossless["time"], lossy["time"], rtol=1e-6)
    assert (lossy["disagreement"].isel(plan=2, epoch=slice(0, 3)) == 0).all()  # one worker


def test_samples_grow_by_what_i_nodes_supply():
    ds = trained()
    for index, (given, chosen) in enumerate(CHOSEN):
        nodes, sources = list(chosen.learning_nodes), list(chosen.information_nodes)
        nearest = np.array(nodes)[given.cIL[np.ix_(sources, nodes)].argmin(axis=1)]
        for epoch in range(1, chosen.epochs + 1):
            held = given.X0.copy()
            np.add.at(held, nearest, epoch * given.r[sources])
            total = np.floor(held[nodes]).sum()
            assert ds["samples"].sel(epoch=epoch)[index, 0] == total
    assert training.at_end(ds)["samples"].dims == ("plan", "seed")
    assert float(training.at_end(ds)["error"].mean()) < 0.5  # 2/3 by chance


def test_workers_draw_only_what_they_have():
    network = networks.as_network(*CHOSEN[0], task(), seed=0)
    needed = np.floor(network.held + 5 * network.arriving).max()
    assert network.arriving.sum() == pytest.approx(2.5)
    assert network.pool.shape == (3, needed)
    assert len(set(network.pool.ravel().tolist())) == network.pool.size  # each owned once


SMALL = problem(X0=np.full(L, 2.0), r=np.full(I, 0.01))
WORLD = [
    (SMALL, plan(range(6), 2, (), 30)),
    (SMALL, plan(range(6), 5, (), 5)),
    (SMALL, plan((0, 1, 2, 3), 2, (0, 1, 2), 30)),
]


@functools.cache
def world():
    """A quadratic, on which workers take one step and then only mix, the others have no length."""
    x = np.random.default_rng(2).normal(size=(64, 3))
    quadratic = make_task(
        data_lib.from_arrays((x, x[:, 0]), (x[:1], x[:1, 0]), name="quadratic"),
        error=lambda outputs, labels: outputs,
        of_replicas=True,
        config={
            "learning_rate": 1.0,
            "schedule": "exponential",
            "decay_steps": 1,
            "decay_rate": 1e-9,
            "batch_size": 6,
        },
        model=(lambda key, x: jnp.zeros(3), lambda w, x: 0.5 * (w @ w) - x @ w),
        loss=lambda outputs, labels: outputs,
    )
    return training.train_plans(quadratic, WORLD, seeds=range(10))


def test_disagreement_contracts_by_the_gap():
    apart = world()["disagreement"][0].to_numpy()
    gap = graphs.spectral_gap(graphs.circulant(6, (1,)))
    np.testing.assert_allclose(apart[:, 10] / apart[:, 9], (1 - gap) ** 2, rtol=1e-3)
    assert (apart[:, 0] > 0.01).all()


def test_a_clique_agrees_at_once():
    assert (world()["disagreement"][1, :, :5] < 1e-10).all()


def test_time_is_that_of_the_slowest_node():
    nodes = [0, 1, 2, 3]
    shift = np.append(SMALL.work[nodes] / 4, SMALL.dmin)
    expected = expected_maximum(shift, np.append(SMALL.strag[nodes], SMALL.dexp)) + 0.1 * 2
    epochs = np.diff(world()["time"][2].to_numpy(), prepend=0, axis=1).ravel()
    assert abs(epochs.mean() - expected) < 4 * epochs.std() / len(epochs) ** 0.5
    assert epochs.min() > shift.max() + 0.2 - 1e-3


def test_more_samples_than_there_are():
    greedy = problem(X0=np.full(L, 90.0))
    with pytest.raises(ConfigError, match=r"samples of an L-node: 92 is not allowed .*80, a share"):
        training.train_plans(task(), [(greedy, plan((0, 1, 2), 2, (0,), 5))], seeds=(0,))


def test_gradients_are_not_exchanged_by_gossip():
    with pytest.raises(ConfigError, match="aggregation"):
        task(aggregation="gradient_averaging")


def test_padding_mixes_with_nobody():
    alone = [networks.as_network(p, c, task(), seed=0) for p, c in CHOSEN]
    stacked = networks.stack(alone)
    for mixing, active in zip(stacked.mixing, stacked.active, strict=True):
        np.testing.assert_allclose(mixing.sum(axis=0), 1, atol=1e-6)
        np.testing.assert_allclose(mixing, mixing.T)
        np.testing.assert_array_equal(mixing[~active], np.eye(len(active))[~active])
    assert jax.tree.leaves(stacked)[0].shape[0] == 3
