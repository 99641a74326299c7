"""Bursty and recorded channels: against the chain they say they are, and inside training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import SMALL, small, small_data

import jaxlossy
from jaxlossy import draws, packets, train
from jaxlossy.channel import bernoulli, gilbert_elliott, recorded, transmit
from jaxlossy.config import make_config, stack_configs
from jaxlossy.errors import ConfigError
from jaxlossy.grid import make_groups
from jaxlossy.sweep import _prepare
from jaxlossy.trace import Trace, load_traces, save_traces


def _play(channel, steps, *, placement="separate", workers=4, servers=3, num_packets=11, seed=0):
    """What arrives in so many steps, Bool[direction step worker packet], and who served."""
    assign = functools.partial(
        packets.assign, placement, num_packets=num_packets, workers=workers, servers=servers
    )
    start, place, loss = jax.random.split(jax.random.key(seed), 3)

    def step(state, t):
        assignment = assign(key=jax.random.fold_in(place, t))
        delivered, state = transmit(channel, state, assignment, key=jax.random.fold_in(loss, t))
        return state, (jnp.stack(delivered), assignment)

    @jax.jit
    def play():
        state = channel.init(assign(key=place), key=start)
        return jax.lax.scan(step, state, jnp.arange(steps, dtype=jnp.int32))[1]

    delivered, assignment = play()
    return np.asarray(delivered).swapaxes(0, 1), jax.tree.map(np.asarray, assignment)


@pytest.mark.parametrize(
    ("placement", "unit"), [("random", "message"), ("fixed", "packet"), ("separate", "packet")]
)
def test_a_burst_ratio_of_one_is_bernoulli_number_by_number(placement, unit):
    rates = (0.3, 0.37)
    bursty, _ = _play(gilbert_elliott(*rates, 1.0, 1.0, loss_unit=unit), 5, placement=placement)
    usual, _ = _play(bernoulli(*rates, loss_unit=unit), 5, placement=placement)
    np.testing.assert_array_equal(bursty, usual)


@pytest.mark.parametrize("placement", packets.PLACEMENTS)
def test_it_is_the_chain_run_packet_after_packet(placement):
    """Against a plain loop over steps, links and packets with the same random numbers."""
    p, ratio, steps, (n, m, s) = (0.4, 0.1), (6.0, 3.0), 20, (4, 11, 3)
    channel = gilbert_elliott(*p, *ratio, loss_unit="packet")
    assign = functools.partial(packets.assign, placement, num_packets=m, workers=n, servers=s)
    assignment = assign(key=jax.random.key(0))
    state = channel.init(assignment, key=jax.random.key(9))
    bad = [np.array(direction) for direction in state]
    sample = jax.jit(channel.sample)
    changes = 0
    for t in range(steps):
        key = jax.random.fold_in(jax.random.key(1), t)
        assignment = assign(key=key)
        delivered, state = sample(state, assignment, key=key)
        uniform = np.asarray(jax.random.uniform(key, (2, n, m), jnp.float32))
        for d in range(2):
            for worker in range(n):
                for packet in range(m):
                    host, server = assignment.host[packet], assignment.server[packet]
                    link = int(host if host >= 0 else server)
                    u = uniform[d, worker, packet]
                    before = bad[d][worker, link]
                    chance = 1 - (1 - p[d]) / ratio[d] if before else p[d] / ratio[d]
                    bad[d][worker, link] = u < chance
                    changes += before != bad[d][worker, link]
                    assert bool(delivered[d][worker, packet]) != bad[d][worker, link]
        for now, expected in zip(state, bad, strict=True):
            np.testing.assert_array_equal(now, expected)
    assert changes > 50


def test_losses_bursts_and_correlations_are_those_of_the_chain():
    p, ratio, servers, steps, workers, m = (0.2, 0.05), (8.0, 2.5), 2, 3000, 8, 16
    channel = gilbert_elliott(*p, *ratio, loss_unit="packet")
    delivered, _ = _play(channel, steps, workers=workers, servers=servers, num_packets=m)
    for direction in range(2):
        rate, kept = p[direction], 1 - 1 / ratio[direction]
        lost = ~delivered[direction].reshape(steps, workers, servers, m // servers)
        chains = lost.transpose(1, 2, 0, 3).reshape(workers * servers, -1)

        def check(values, expected):  # against the spread of means over stretches of a link
            means = values.reshape(len(values) * 24, -1).mean(axis=1)
            assert abs(means.mean() - expected) < 4 * means.std() / np.sqrt(means.size)

        check(chains, rate)
        check(chains & ~np.roll(chains, 1, axis=1), rate * (1 - rate) / ratio[direction])
        for lag in (1, 3, m // servers):  # the last one is from step to step
            product = (chains - rate) * (np.roll(chains, lag, axis=1) - rate)
            check(product, rate * (1 - rate) * kept**lag)


def test_links_start_stationary():
    local = jnp.zeros((60, 80), bool)
    nobody = jnp.full(80, -1, jnp.int32)
    assignment = packets.Assignment(packets.owners(80, 4), nobody, local)
    channel = gilbert_elliott(0.3, 0.05, 10.0, 10.0)
    for bad, p in zip(channel.init(assignment, key=jax.random.key(2)), (0.3, 0.05), strict=True):
        assert abs(bad.mean() - p) < 4 * np.sqrt(p * (1 - p) / bad.size)


@pytest.mark.parametrize("placement", packets.PLACEMENTS)
def test_a_link_that_never_changes_belongs_to_a_pair_of_machines(placement):
    channel = gilbert_elliott(0.5, 0.5, 1e9, 1e9, loss_unit="message")
    delivered, assignment = _play(channel, 6, placement=placement, servers=4, seed=3)
    machine = np.where(assignment.host >= 0, assignment.host, assignment.server)
    fates = {}
    for direction, step, worker, packet in np.ndindex(delivered.shape):
        link = direction, worker, machine[step, packet]
        fate = bool(delivered[direction, step, worker, packet])
        assert fates.setdefault(link, fate) == fate
    assert 0 < sum(fates.values()) < len(fates)


def test_the_lossier_of_two_bursty_channels_loses_what_the_other_does():
    few, _ = _play(gilbert_elliott(0.1, 0.2, 4.0, 4.0, loss_unit="packet"), 30)
    many, _ = _play(gilbert_elliott(0.2, 0.5, 4.0, 4.0, loss_unit="packet"), 30)
    assert (few | ~many).all()
    assert few.sum() > many.sum()


def test_certain_bursts_and_none():
    delivered, _ = _play(gilbert_elliott(0.0, 1.0, 5.0, 5.0), 5)
    assert delivered[0].all()
    assert not delivered[1].any()


def _random_traces(count=2, iterations=3, servers=2, placement="fixed"):
    """Recordings of the small problem's network."""
    masks = np.random.default_rng(5).random((count, 2, iterations, 4, 8)) < 0.6
    return [Trace(up, down, servers, placement) for up, down in masks]


def _alone(config):
    problem, config, examples, shards = small(**config)
    return train.run(problem, config, examples, shards)[1]


BURSTY = {"channel": "gilbert_elliott", "drop_probability": 0.3, "loss_unit": "packet"}


def test_a_sweep_of_bursts_equals_single_runs():
    ratios = (1.0, 3.0, 20.0)
    ds = jaxlossy.sweep(
        {**SMALL, **BURSTY, "sweep": {"burst_ratio": ratios}}, data=small_data(), verbose=False
    )
    assert len(set(ds["uplink_delivered"].values[:, -1])) == 3
    alone = _alone({**BURSTY, "burst_ratio": 3.0})
    for name in ("test_loss", "uplink_delivered", "downlink_delivered"):
        np.testing.assert_allclose(ds[name].values[1], alone[name], rtol=1e-5)


def test_a_sweep_plays_traces_back_by_name_or_as_an_object(tmp_path):
    traces, path = _random_traces(), tmp_path / "traces.nc"
    save_traces(path, *traces)
    fields = {**SMALL, "placement": "fixed", "servers": 2, "sweep": {"trace_index": (0, 1)}}
    named = jaxlossy.sweep(
        {**fields, "channel": "trace", "trace": str(path)}, data=small_data(), verbose=False
    )
    given = jaxlossy.sweep(fields, channel=recorded(*traces), data=small_data(), verbose=False)
    for name in ("test_loss", "uplink_delivered"):
        np.testing.assert_array_equal(named[name], given[name])
    crossed = np.arange(4)[:, None] != np.asarray(packets.owners(8, 2))
    for index, trace in enumerate(traces):
        for segment, iterations in enumerate(([0, 1], [2, 0])):  # it begins again after the third
            expected = trace.up[iterations][:, crossed].mean()
            found = named["uplink_delivered"].values[index, segment]
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_another_trace_in_the_same_file_makes_another_sweep(tmp_path):
    first, second = _random_traces()
    config = {**SMALL, "placement": "fixed", "servers": 2, "channel": "trace"}
    objects = dict.fromkeys(("model", "loss", "optimizer", "channel", "aggregation"))
    identities = []
    for trace in (first, first, second):
        save_traces(tmp_path / "traces.nc", trace)
        given = {**config, "trace": str(tmp_path / "traces.nc")}
        objects["data"] = small_data()
        *_, attributes = _prepare(given, objects, None, jax.devices(), 1, None)
        identities.append(attributes["identity"])
    assert identities[0] == identities[1] != identities[2]


def test_a_trace_is_played_back_bit_by_bit_in_every_config_of_a_batch():
    traces = _random_traces()
    make = recorded(*traces)
    problem, config, *_ = small(placement="fixed", servers=2)
    assignment = draws.assign(problem, config, jnp.int32(0))

    @jax.jit
    @jax.vmap
    def play(config):
        channel = make(config)

        def step(state, _):
            delivered, state = channel.sample(state, assignment, key=jax.random.key(0))
            return state, delivered

        state = channel.init(assignment, key=jax.random.key(0))
        return jax.lax.scan(step, state, length=5)[1]

    fields = {**SMALL, "placement": "fixed", "servers": 2}
    configs = stack_configs(
        [make_config({**fields, "trace_index": i, "seed": s}) for i in (1, 0) for s in (0, 1)]
    )
    played = play(configs)
    for row, index in enumerate((1, 1, 0, 0)):
        again = [0, 1, 2, 0, 1]
        np.testing.assert_array_equal(played.up[row], traces[index].up[again])
        np.testing.assert_array_equal(played.down[row], traces[index].down[again])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workers": 5}, "workers: 5 is not allowed (allowed: 4, as in the recorded trace)"),
        ({"servers": 1}, "servers: 1 is not allowed (allowed: 2, as in the recorded trace)"),
        (
            {"placement": "separate"},
            "placement: 'separate' is not allowed (allowed: 'fixed', as in the recorded trace)",
        ),
        (
            {"trace_index": 2},
            "trace_index: 2 is not allowed (allowed: below 2, the number of recorded traces)",
        ),
        (
            {"packet_size": 6},
            "trace: '8 packets a model' is not allowed (allowed: recorded with 9 packets a model; "
            "packet_size changes how many)",
        ),
    ],
)
def test_a_config_that_the_trace_was_not_recorded_for_is_refused(fields, message):
    fits = {**SMALL, "placement": "fixed", "servers": 2}
    configs = [make_config(fits), make_config({**fits, **fields})]  # alone and behind another
    for group in (configs, configs[1:]):
        with pytest.raises(ConfigError) as error:
            make_groups(
                group, data=small_data(), data_dir=None, channel=recorded(*_random_traces())
            )
        assert str(error.value) == message


def test_files_of_traces_come_back_and_are_told_apart(tmp_path):
    traces, path = _random_traces(placement="separate"), tmp_path / "traces.nc"
    save_traces(path, *traces)
    for found, trace in zip(load_traces(path), traces, strict=True):
        np.testing.assert_array_equal(found.up, trace.up)
        np.testing.assert_array_equal(found.down, trace.down)
        assert (found.servers, found.placement) == (2, "separate")
    assert recorded(*load_traces(path)).__name__ == recorded(*traces).__name__
    assert recorded(traces[0]).__name__ != recorded(traces[1]).__name__


def test_what_is_no_trace_is_refused(tmp_path):
    good = np.ones((2, 4, 8), bool)
    text = tmp_path / "text.nc"
    text.write_text("no trace")
    for refused, message in [
        (lambda: Trace(good, good[:1], 1, "fixed"), r"^down: \(1, 4, 8\) is not"),
        (lambda: Trace(good.astype(int), good, 1, "fixed"), r"^up: \('int64', \(2, 4, 8\)\) is"),
        (lambda: Trace(good, good, 5, "fixed"), r"^servers: 5 is not .*\[1, 4\]"),
        (lambda: Trace(good, good, 9, "separate"), r"^servers: 9 is not .*\[1, 8\]"),
        (lambda: Trace(good, good, 1, "random"), "^placement: 'random' is not"),
        (lambda: recorded(), r"^traces: \(\) is not allowed"),
        (lambda: recorded(Trace(good, good, 1, "fixed"), Trace(good, good, 2, "fixed")), "^traces"),
        (lambda: load_traces(tmp_path / "none.nc"), "^trace: .*none.nc' is not .* No such file"),
        (lambda: load_traces(text), "^trace: .*text.nc' is not allowed"),
        (lambda: small(channel="trace"), "^trace: '' is not allowed"),
    ]:
        with pytest.raises(ConfigError, match=message):
            refused()
