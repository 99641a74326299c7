import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlossy import packets
from jaxlossy.errors import ConfigError

SHAPES = st.lists(st.sampled_from([(), (1,), (4,), (2, 3), (2, 2, 3)]), min_size=1, max_size=4)


@settings(deadline=None, max_examples=25)
@given(shapes=SHAPES, size=st.sampled_from([1, 3, 5, 30]), workers=st.sampled_from([1, 3]))
def test_unpack_inverts_pack_for_any_tree(shapes, size, workers):
    rng = np.random.default_rng(0)
    tree = [jnp.asarray(rng.normal(size=(workers, *shape)), jnp.float32) for shape in shapes]
    layout = packets.packet_layout([leaf[0] for leaf in tree], size)
    packed = layout.pack(tree)
    assert packed.shape == (workers, layout.num_packets, layout.size)
    assert layout.num_parameters == sum(leaf[0].size for leaf in tree)
    assert 1 <= layout.last_size <= layout.size
    flat = np.asarray(packed).reshape(workers, -1)
    expected = np.concatenate([np.reshape(leaf, (workers, -1)) for leaf in tree], axis=1)
    np.testing.assert_array_equal(flat[:, : layout.num_parameters], expected)
    assert not flat[:, layout.num_parameters :].any()
    for leaf, back in zip(tree, layout.unpack(packed), strict=True):
        np.testing.assert_array_equal(leaf, back)


def test_packing_keeps_the_dtype_of_each_leaf():
    tree = {"a": jnp.ones((2, 3), jnp.bfloat16), "b": jnp.ones((2, 2), jnp.float32)}
    layout = packets.packet_layout(jax.tree.map(lambda leaf: leaf[0], tree), 4)
    back = layout.unpack(layout.pack(tree))
    assert back["a"].dtype == jnp.bfloat16
    assert back["b"].dtype == jnp.float32


owners_of = jax.jit(packets.owners, static_argnums=0)


# Few numbers of packets, since each compiles; the number of servers is traced.
@settings(deadline=None)
@given(st.data(), st.sampled_from([1, 2, 13, 64, 300]))
def test_owners_are_equal_contiguous_runs(data, num_packets):
    servers = data.draw(st.integers(1, num_packets))
    owners = np.asarray(owners_of(num_packets, servers))
    counts = np.bincount(owners, minlength=servers)
    assert len(counts) == servers
    assert (np.diff(owners) >= 0).all()
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


def test_owners_do_not_overflow_in_large_models():
    num_packets = 100_000
    owners = np.asarray(packets.owners(num_packets, num_packets))
    np.testing.assert_array_equal(owners, np.arange(num_packets))


def test_the_number_of_servers_is_traced():
    traces = []

    @jax.jit
    def owners(servers):
        traces.append(servers)
        return packets.owners(12, servers)

    results = [np.asarray(owners(s)) for s in (1, 2, 5, 12)]
    assert len(traces) == 1
    assert [len(set(r)) for r in results] == [1, 2, 5, 12]


def _assign(placement, servers, seed=0, workers=6, num_packets=8):
    return packets.assign(
        placement,
        num_packets=num_packets,
        workers=workers,
        servers=servers,
        key=jax.random.key(seed),
    )


def test_fixed_servers_are_the_first_workers():
    assignment = _assign("fixed", 4)
    np.testing.assert_array_equal(assignment.local.argmax(axis=0), assignment.server)
    assert (assignment.local.sum(axis=0) == 1).all()


def test_separate_servers_are_on_no_worker():
    assert not _assign("separate", 4).local.any()


def test_random_servers_are_distinct_workers_and_uniform():
    trials = 3000
    local = jax.vmap(lambda seed: _assign("random", 4, seed).local)(jnp.arange(trials))
    assert (local.sum(axis=1) == 1).all()  # every packet is local to one worker
    hosts = np.asarray(local.argmax(axis=1))  # (trial, packet)
    assert all(len(set(row)) == 4 for row in hosts)  # four servers on four workers
    counts = np.stack([np.bincount(hosts[:, j], minlength=6) for j in range(8)])
    error = np.sqrt(trials * (1 / 6) * (5 / 6))
    assert np.abs(counts - trials / 6).max() < 4 * error


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "model: 'no parameters' is not allowed (allowed: at least one parameter)"),
        (
            {"n": jnp.zeros(3, jnp.int32)},
            "model: 'parameters of int32' is not allowed (allowed: floating parameters)",
        ),
    ],
)
def test_models_that_make_no_packets_are_refused(params, message):
    with pytest.raises(ConfigError) as error:
        packets.packet_layout(params)
    assert str(error.value) == message
