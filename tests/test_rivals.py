"""What the benchmark compares with does the same work: the same replicas, from the same draws."""

import jax.numpy as jnp
import numpy as np
import pytest
from problems import SMALL, small, small_data
from rivals import one_at_a_time, plain_vmap, replica_at_a_time

from jaxlossy import train
from jaxlossy.grid import expand, make_groups

FIELDS = {**SMALL, "drop_probability": 0.3, "servers": 2, "placement": "separate"}


@pytest.fixture(scope="module")
def expected():
    """Replicas of two seeds after four steps, as jaxlossy trains them."""
    runs = [train.run(*small(**FIELDS, seed=seed)) for seed in range(2)]
    return np.stack([state.replicas for state, _ in runs])


@pytest.mark.parametrize(
    "make", [lambda g: plain_vmap(g, 2), lambda g: one_at_a_time(g, 2), replica_at_a_time]
)
def test_every_rival_trains_what_jaxlossy_trains(make, expected):
    configs = expand({**FIELDS, "sweep": {"seed": range(2)}})[0]
    advance, compile_seconds = make(make_groups(configs, data=small_data(), data_dir=None)[0])
    assert compile_seconds > 0
    advance(2)
    replicas = jnp.asarray(advance(2)).reshape(expected.shape)
    np.testing.assert_allclose(replicas, expected, atol=1e-5)
    assert np.ptp(expected, axis=1).max() > 1e-3  # losses left the replicas apart


def test_a_part_of_a_segment_is_refused():
    configs = expand(FIELDS)[0]
    advance, _ = plain_vmap(make_groups(configs, data=small_data(), data_dir=None)[0], 2)
    with pytest.raises(ValueError, match="3 steps are no multiple of the 2 compiled"):
        advance(3)
