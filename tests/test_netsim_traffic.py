"""Traffic drawn at random has the distribution it should; learning traffic is the exchange."""

import jax
import numpy as np
import pytest
from problems import SMALL, small_data

from jaxlossy import packets
from jaxlossy.channel import recorded
from jaxlossy.config import make_config
from jaxlossy.errors import ConfigError
from jaxlossy.grid import make_groups
from jaxlossy.netsim import learning, outcome, topologies
from jaxlossy.netsim.learning import Exchange, open_loop
from jaxlossy.netsim.traffic import DATA_MINING, WEB_SEARCH, Messages, Sizes, make_flows, poisson
from jaxlossy.problem import make_problem

SECOND = 10**9
MS = 10**6


def _is_near(values, expected):
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / np.sqrt(len(values))


def test_poisson_arrivals_between_pairs_drawn_uniformly():
    web = poisson(6, 30_000.0, SECOND, 100_000, seed=0, start_ns=5 * SECOND)
    count = len(web.start_ns)
    assert abs(count - 30_000) < 4 * np.sqrt(30_000)
    assert web.start_ns.min() >= 5 * SECOND
    assert web.start_ns.max() < 6 * SECOND
    gaps = np.diff(web.start_ns)
    assert (gaps >= 0).all()
    _is_near(gaps, SECOND / 30_000)
    _is_near(gaps > SECOND / 30_000, np.exp(-1))  # exponential: so many are above their mean
    pairs = np.bincount(6 * web.source + web.destination, minlength=36).reshape(6, 6)
    assert (np.diag(pairs) == 0).all()
    off = pairs[~np.eye(6, dtype=bool)] - count / 30
    assert (off**2).sum() / (count / 30) < 29 + 4 * np.sqrt(2 * 29)  # chi-squared
    assert (web.size == 100_000).all()


def test_the_same_seed_draws_the_same():
    first, same, other = (poisson(4, 1e4, SECOND, WEB_SEARCH, seed=s) for s in (1, 1, 2))
    for name in ("start_ns", "source", "destination", "size"):
        np.testing.assert_array_equal(getattr(first, name), getattr(same, name))
    assert first.start_ns[:10].tolist() != other.start_ns[:10].tolist()


def test_sizes_of_the_workloads():
    assert WEB_SEARCH.mean == pytest.approx(2_434_900)
    assert DATA_MINING.mean == pytest.approx(0.1 * 417_986 + 0.05 * 3.16e6 + 0.03e8 + 0.02e9)
    rng = np.random.default_rng(0)
    for sizes in (WEB_SEARCH, DATA_MINING):
        drawn = sizes.draw(rng, 20_000)
        for size, share in zip(sizes.size, sizes.share, strict=True):
            _is_near(drawn == size, share)
    assert WEB_SEARCH.divided(10).size.tolist()[:3] == [1000, 2000, 3000]
    web = poisson(4, 2e4, SECOND, WEB_SEARCH.divided(10), seed=3)
    _is_near(web.size, 243_490)


def test_flows_are_in_order_of_time_and_keep_the_order_of_their_kind():
    network = topologies.star(4, rate_bps=SECOND, delay_ns=20)
    web = Messages([30, 10, 10], [0, 1, 2], [1, 2, 3], [1, 2, 3])
    train = Messages([10, 10, 5], [3, 2, 1], [0, 0, 0], [4, 5, 6])
    flows = make_flows(network, {"web": web, "train": train})
    assert flows.start_ns.tolist() == [5, 10, 10, 10, 10, 30]
    assert flows.size.tolist() == [6, 2, 3, 4, 5, 1]
    assert flows.names == ("web", "train")
    for kind, messages in enumerate((web, train)):
        np.testing.assert_array_equal(flows.size[flows.traffic == kind], messages.size)
    there = network.links[flows.data_path.links.reshape(-1, 2)]
    back = network.links[flows.ack_path.links.reshape(-1, 2)]
    np.testing.assert_array_equal(there[:, 0, 0], flows.source)
    np.testing.assert_array_equal(there[:, 1, 1], flows.destination)
    np.testing.assert_array_equal(back[:, 0, 0], flows.destination)


def test_the_case_studys_exchange_is_what_its_readme_says():
    """240 flows a phase, of 41 full packets and one of 880 bytes; host i first to i+1."""
    traffic = open_loop(
        Exchange("fixed", 16, [57460] * 16),
        10,
        period_ns=100 * MS,
        compute_ns=10 * MS,
        gather_ns=60 * MS,
    )
    expected = [
        (m * 100 * MS + offset * MS, i, (i + 1 + j) % 16, 57460)
        for m in range(10)
        for offset in (10, 60)
        for i in range(16)
        for j in range(15)
    ]
    messages = traffic.messages
    found = zip(
        messages.start_ns, messages.source, messages.destination, messages.size, strict=True
    )
    assert list(found) == expected
    assert traffic.exchange.num_packets == 16 * 42
    up, down = traffic.phase == learning.REDUCE_SCATTER, traffic.phase == learning.ALL_GATHER
    np.testing.assert_array_equal(traffic.worker[up], messages.source[up])
    np.testing.assert_array_equal(traffic.server[up], messages.destination[up])
    np.testing.assert_array_equal(traffic.worker[down], messages.destination[down])
    np.testing.assert_array_equal(traffic.server[down], messages.source[down])


@pytest.mark.parametrize(
    ("placement", "servers"), [("random", 3), ("fixed", 3), ("fixed", 5), ("separate", 2)]
)
def test_every_worker_and_server_exchange_once_an_iteration(placement, servers):
    exchange = Exchange(placement, 5, [3000] * servers)
    traffic = open_loop(exchange, 4, period_ns=100, compute_ns=10, gather_ns=60)
    keys = np.stack([traffic.iteration, traffic.phase, traffic.worker, traffic.server], axis=1)
    assert len(np.unique(keys, axis=0)) == len(keys)
    local = 0 if placement == "separate" else servers  # of workers to their own server
    assert len(keys) == 4 * 2 * (5 * servers - local)
    up = traffic.phase == learning.REDUCE_SCATTER
    messages = traffic.messages
    host = np.where(up, messages.destination, messages.source)
    places = {}  # every server is in one place during an iteration, for all workers and both ways
    for iteration, server, found in zip(traffic.iteration, traffic.server, host, strict=True):
        assert places.setdefault((iteration, server), found) == found
    if placement == "separate":
        assert set(host) == {5, 6}
        assert exchange.hosts == 7
    elif placement == "fixed":
        assert all(found == server for (_, server), found in places.items())
    else:
        assert len({tuple(places[i, s] for s in range(3)) for i in range(4)}) > 1


def test_a_training_config_says_what_is_exchanged():
    shapes = {"w": jax.ShapeDtypeStruct((270_000,), np.float32)}
    layout = packets.packet_layout(shapes, 345)
    config = make_config({"workers": 4, "servers": 3, "placement": "separate", "packet_size": 345})
    exchange = learning.exchange_of(config, layout)
    assert exchange.num_packets == layout.num_packets
    assert exchange.message_bytes.sum() == 4 * 270_000  # one packet is one packet
    owned = np.bincount(packets.owners(layout.num_packets, 3))
    np.testing.assert_array_equal(exchange.packets, owned)
    small = packets.packet_layout({"w": np.zeros(100, np.float32)}, 7)  # stands for a larger model
    exchange = learning.exchange_of(config, small, payload=1000)
    assert exchange.message_bytes.tolist() == [5000, 5000, 4000 + 286]


def test_a_trace_has_every_packet_in_its_place():
    exchange = Exchange("fixed", 3, [2000, 2760, 1000])  # 2, 2 and 1 packets
    traffic = open_loop(exchange, 2, period_ns=100, compute_ns=10, gather_ns=60)
    delivered = np.random.default_rng(0).random(traffic.packets.sum()) < 0.5
    trace = outcome.to_trace(traffic, delivered)
    assert (trace.servers, trace.placement, trace.up.shape) == (3, "fixed", (2, 3, 5))
    expected = np.ones((2, 2, 3, 5), bool)
    arrived = iter(delivered)
    owner = np.asarray(packets.owners(5, 3))
    for message in range(len(traffic.packets)):
        for packet in np.flatnonzero(owner == traffic.server[message]):
            index = traffic.phase[message], traffic.iteration[message], traffic.worker[message]
            expected[(*index, packet)] = next(arrived)
    assert not list(arrived)
    np.testing.assert_array_equal(trace.up, expected[0])
    np.testing.assert_array_equal(trace.down, expected[1])


@pytest.mark.parametrize("placement", ["fixed", "separate"])
def test_a_config_trains_on_the_trace_of_its_own_traffic(placement):
    config = make_config({**SMALL, "placement": placement, "servers": 3})
    layout = make_problem(config, small_data()).layout
    traffic = open_loop(
        learning.exchange_of(config, layout), 4, period_ns=100, compute_ns=10, gather_ns=60
    )
    trace = outcome.to_trace(traffic, np.ones(traffic.packets.sum(), bool))
    make_groups([config], data=small_data(), data_dir=None, channel=recorded(trace))


def test_iterations_take_as_long_as_their_last_message():
    exchange = Exchange("separate", 2, [1380])
    compute = np.array([[10, 30], [20, 20]])
    traffic = open_loop(exchange, 2, period_ns=1000, compute_ns=compute, gather_ns=500)
    assert traffic.messages.start_ns.tolist() == [10, 30, 500, 500, 1020, 1020, 1500, 1500]
    finish = np.array([15, 42, 600, 555, -1, -1, 1501, -1])
    assert outcome.phase_times(traffic, finish).tolist() == [[42, 100], [20, 1]]
    assert outcome.iteration_times(traffic, finish).tolist() == [142, 21]


def test_compute_times_have_their_mean_and_spread():
    drawn = learning.compute_times(2e6, 0.5, 500, 16, seed=0)
    assert drawn.shape == (500, 16)
    _is_near(drawn, 2e6)
    assert drawn.std() / drawn.mean() == pytest.approx(0.5, rel=0.1)
    assert (learning.compute_times(100.0, 0.0, 2, 3, seed=0) == 100).all()


def test_wrong_traffic_is_refused():
    exchange = Exchange("random", 3, [1380] * 3)
    traffic = open_loop(exchange, 1, period_ns=10, compute_ns=1, gather_ns=5)
    fixed = open_loop(Exchange("fixed", 2, [5, 5]), 1, period_ns=10, compute_ns=1, gather_ns=5)
    uneven = open_loop(Exchange("fixed", 2, [5, 4000]), 1, period_ns=9, compute_ns=1, gather_ns=5)
    for refused, message in [
        (lambda: poisson(1, 1.0, SECOND, 10, seed=0), "^hosts: 1 is not"),
        (lambda: poisson(2, np.nan, SECOND, 10, seed=0), "^rate: nan is not"),
        (lambda: poisson(2, 1.0, 0, 10, seed=0), "^duration_ns: 0 is not"),
        (lambda: Sizes(np.array([1, 2]), np.array([0.5, 0.4])), "^share: "),
        (lambda: Sizes(np.array([1]), np.array([0.5, 0.5])), "^size: "),
        (lambda: Messages([0, 1], [0], [1, 2], [1, 1]), r"^source: \(1,\) is not"),
        (lambda: Exchange("fix", 2, [10]), "^placement: 'fix' is not .*did you mean 'fixed'"),
        (lambda: Exchange("fixed", 2, [10] * 3), "^message_bytes: '3 servers' is not"),
        (lambda: Exchange("fixed", 2, [0]), "^message_bytes: "),
        (lambda: outcome.to_trace(traffic, np.ones(12, bool)), "^placement: 'random' is not"),
        (
            lambda: outcome.to_trace(uneven, np.ones(8, bool)),
            r"^message_bytes: '\[1, 3\] packets'",
        ),
        (lambda: outcome.to_trace(fixed, np.ones(3, bool)), r"^delivered: \('bool', \(3,\)\)"),
        (lambda: outcome.to_trace(fixed, np.ones(4)), r"^delivered: \('float64', \(4,\)\)"),
        (lambda: outcome.phase_times(fixed, [1, 2, 3]), r"^finish_ns: \(3,\) is not"),
        (lambda: learning.compute_times(0.0, 0.1, 1, 1, seed=0), "^mean_ns, spread: "),
        (
            lambda: learning.learning_traffic(exchange, [0], [[1, 2]], [[1, 2, 3]]),
            r"^scatter_ns: \(1, 2\) is not",
        ),
        (
            lambda: learning.learning_traffic(exchange, [5], [[5, 6, 7]], [[8, 4, 8]]),
            "^gather_ns: -1 is not .*before start_ns",
        ),
    ]:
        with pytest.raises(ConfigError, match=message):
            refused()
