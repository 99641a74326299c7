"""The gossip rule and its links."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlossy.aggregation import average_arrived
from jaxlossy.channel import Delivered, bernoulli
from jaxlossy.topology import graphs
from jaxlossy.topology.gossip import gossip, init_links, transmit

WORKERS, PACKETS, LENGTH = 6, 5, 3


def replicas(seed=0):
    return jax.random.normal(jax.random.key(seed), (WORKERS, PACKETS, LENGTH))


def mixing(degree):
    adjacency = graphs.circulant(WORKERS, graphs.nearest_offsets(WORKERS, degree))
    return jnp.asarray(graphs.metropolis(adjacency), jnp.float32)


def draw(p, seed, loss_unit="packet"):
    channel = bernoulli(p, p, loss_unit=loss_unit)
    links = init_links(channel, WORKERS, PACKETS, key=jax.random.key(seed))
    return transmit(channel, links, WORKERS, PACKETS, key=jax.random.key(seed))[0]


@pytest.mark.parametrize("degree", [2, 3, 5])
def test_mixing_matrices_are_doubly_stochastic(degree):
    w = np.asarray(mixing(degree), np.float64)
    np.testing.assert_allclose(w, w.T)
    np.testing.assert_allclose(w.sum(axis=0), 1, atol=1e-6)
    assert (w >= 0).all()


def test_without_losses_the_mean_is_kept_and_masks_change_nothing():
    before, rule = replicas(), gossip(mixing(2))
    after = rule.apply((), before, None)[0]
    np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0), atol=1e-6)
    assert not np.allclose(after, before)
    masked = rule.apply((), before, draw(0.0, 0))[0]
    np.testing.assert_allclose(masked, after, atol=1e-6)


def test_a_clique_averages_as_one_server_does():
    everything = jnp.ones((WORKERS, PACKETS), bool)
    served = average_arrived(replicas(), Delivered(everything, everything))
    mixed = gossip(mixing(WORKERS - 1)).apply((), replicas(), None)[0]
    np.testing.assert_allclose(mixed, served, atol=1e-6)


def test_what_is_lost_is_filled_with_the_receivers_own():
    before, weights, delivered = replicas(), np.asarray(mixing(3)), np.asarray(draw(0.4, 3))
    after = gossip(mixing(3)).apply((), before, jnp.asarray(delivered))[0]
    expected = np.zeros(before.shape)
    for receiver in range(WORKERS):
        for sender in range(WORKERS):
            arrived = delivered[receiver, sender] | (receiver == sender)
            held = np.where(arrived[:, None], before[sender], before[receiver])
            expected[receiver] += weights[receiver, sender] * held
    np.testing.assert_allclose(after, expected, atol=1e-5)


def test_if_all_is_lost_nothing_moves_and_on_average_the_mean_stays():
    before, rule = replicas(), gossip(mixing(2))
    nothing = jnp.zeros((WORKERS, WORKERS, PACKETS), bool)
    np.testing.assert_allclose(rule.apply((), before, nothing)[0], before, atol=1e-6)

    def moved(key):
        channel = bernoulli(0.3, 0.3, loss_unit="packet")
        links = init_links(channel, WORKERS, PACKETS, key=key)
        delivered = transmit(channel, links, WORKERS, PACKETS, key=key)[0]
        return (rule.apply((), before, delivered)[0] - before).mean(axis=0)

    moves = np.asarray(jax.vmap(moved)(jax.random.split(jax.random.key(1), 2000)))
    error = moves.std(axis=0) / len(moves) ** 0.5
    assert (error > 0).all()
    assert (np.abs(moves.mean(axis=0)) < 4.5 * error).all()


def test_links_lose_at_the_rate_asked_and_as_units():
    packets = np.stack([draw(0.3, seed) for seed in range(40)])
    assert abs(packets.mean() - 0.7) < 0.02
    messages = np.asarray(draw(0.5, 0, "message"))
    assert (messages == messages[:, :, :1]).all()
    assert messages.any()
    assert not messages.all()
    assert (draw(0.2, 5) | ~draw(0.4, 5)).all()  # what arrives at 0.4 arrives at 0.2


def test_a_link_does_not_know_how_many_workers_there_are():
    channel = bernoulli(0.5, 0.5, loss_unit="packet")

    def delivered(workers):
        links = init_links(channel, workers, PACKETS, key=jax.random.key(2))
        return np.asarray(transmit(channel, links, workers, PACKETS, key=jax.random.key(2))[0])

    assert (delivered(3) == delivered(5)[:3, :3]).all()
