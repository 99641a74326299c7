import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlossy import aggregation, packets
from jaxlossy.aggregation import average_arrived
from jaxlossy.channel import Delivered

apply = jax.jit(average_arrived)


@pytest.fixture(params=["cpu", "default"])
def form(request, monkeypatch):
    """Both forms, as if the device were another one."""
    monkeypatch.setattr(
        aggregation, "platform_dependent", lambda *args, **forms: forms[request.param](*args)
    )


@st.composite
def exchanges(draw):
    """Shapes, placement and masks of one exchange; self-messages always arrive."""
    workers = draw(st.sampled_from([1, 2, 5]))  # few shapes, since each compiles
    num_packets = draw(st.sampled_from([1, 2, 6]))
    length = draw(st.sampled_from([1, 3]))
    placement = draw(st.sampled_from(packets.PLACEMENTS))
    most = num_packets if placement == "separate" else min(num_packets, workers)
    servers = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    host = {
        "random": rng.permutation(workers),
        "fixed": np.arange(workers),
        "separate": np.full(num_packets, -1),
    }[placement]
    local = host[reference.owners(num_packets, servers)] == np.arange(workers)[:, None]
    p = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    up, down = (rng.random((2, workers, num_packets)) >= p) | local
    values = rng.normal(size=(workers, num_packets, length)).astype(np.float32)
    return values, up, down, local


@settings(deadline=None, max_examples=150)
@given(exchanges())
def test_equals_the_plain_loop(exchange):
    values, up, down, _ = exchange
    result = apply(values, Delivered(up, down))
    expected = reference.average_arrived(values, up, down)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=100)
@given(exchanges(), st.data())
def test_an_impulse_ends_up_where_the_masks_say(exchange, data):
    values, up, down, _ = exchange
    workers, num_packets, _ = values.shape
    i = data.draw(st.integers(0, workers - 1))
    j = data.draw(st.integers(0, num_packets - 1))
    impulse = np.zeros_like(values)
    impulse[i, j] = 1.0
    result = apply(impulse, Delivered(up, down))
    arrived = up[:, j].sum()
    expected = np.zeros_like(values)
    for k in range(workers):
        if down[k, j] and arrived:
            expected[k, j] = up[i, j] / arrived
        elif k == i:
            expected[k, j] = 1.0
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.usefixtures("form")
def test_what_did_not_arrive_contaminates_nothing(bad):
    values = jnp.array([1.0, 3.0, bad]).reshape(3, 1, 1)
    up = jnp.array([True, True, False]).reshape(3, 1)
    result = average_arrived(values, Delivered(up, jnp.ones((3, 1), bool)))
    np.testing.assert_array_equal(result.ravel(), [2.0, 2.0, 2.0])


def test_no_arrival_leaves_everyone_their_own():
    values = jnp.arange(6.0).reshape(3, 2, 1)
    nothing = Delivered(jnp.zeros((3, 2), bool), jnp.ones((3, 2), bool))
    np.testing.assert_array_equal(average_arrived(values, nothing), values)


@pytest.mark.parametrize("shape", [(5, 8, 2), (3, 2, 16), (4, 3, 300)])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.usefixtures("form")
def test_of_replicas_and_masks_either_may_be_shared(shape, axes):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, *shape)).astype(np.float32)
    masks = rng.random((2, 2, *shape[:2])) > 0.5
    masks[:, 0, :, 0] = False  # nothing arrives
    given = [
        array[0] if axis is None else array
        for array, axis in zip((values, masks), axes, strict=True)
    ]
    result = jax.jit(jax.vmap(lambda v, m: average_arrived(v, Delivered(*m)), axes))(*given)
    for i in range(2):
        v, m = (
            array[0 if axis is None else i]
            for array, axis in zip((values, masks), axes, strict=True)
        )
        expected = reference.average_arrived(v, *m)
        np.testing.assert_allclose(result[i], expected, rtol=1e-6, atol=1e-6)
