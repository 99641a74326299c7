"""The network simulation in worlds with known answers, and what its transports promise."""

import numpy as np
import pytest
import stars

from jaxlossy.netsim import (
    Discipline,
    Flows,
    Network,
    Paths,
    Scenario,
    bounded,
    dctcp,
    gap,
    paced,
    simple_dctcp,
    simulate,
    simulate_many,
)

RATE = 10**10
FULL_NS = 1200  # to send a full packet


def poisson_packets(load, count, seed):
    """Packets of the lossy class that arrive at one port at random times."""
    random = np.random.default_rng(seed)
    starts = np.cumsum(random.exponential(FULL_NS / load, count)).astype(np.int64)
    zeros, offsets = np.zeros(count, np.int32), np.arange(count + 1)
    flows = Flows(
        starts, zeros, zeros + 1, np.full(count, 1380), zeros, ("train",),
        Paths(offsets, zeros), Paths(offsets, zeros + 1),
    )  # fmt: skip
    network = Network(2, [[0, 1], [1, 0]], np.full(2, RATE), np.zeros(2))
    rules = {"train": paced(gap_ns=1)}  # a jitter below 1 ns is none
    return Scenario(network, flows, rules, Discipline(limit=10**9))


@pytest.mark.parametrize(("load", "runs"), [(0.3, 2), (0.6, 4), (0.9, 20)])
def test_waiting_times_of_an_m_d_1_queue(load, runs):
    """Pollaczek and Khinchine: half of load / (1 - load) services, for constant services."""
    scenarios = (poisson_packets(load, 200_000, seed) for seed in range(runs))
    waits = [ds["fct_ns"].values.mean() - FULL_NS for ds in simulate_many(scenarios, threads=2)]
    assert np.mean(waits) == pytest.approx(FULL_NS * load / (2 * (1 - load)), rel=0.02)


def dumbbell(access_bps, bottleneck_bps):
    """Hosts 0 to n - 1 send to n to 2n - 1 over the link between two switches, one flow each."""
    n = len(access_bps)
    left, right = 2 * n, 2 * n + 1
    pairs = [(i, left) for i in range(n)] + [(left, right)] + [(right, n + i) for i in range(n)]
    links = pairs + [(b, a) for a, b in pairs]
    rates = [*access_bps, bottleneck_bps, *access_bps] * 2
    network = Network(2 * n + 2, links, rates, np.full(len(links), 1000))
    there = np.array([[i, n, n + 1 + i] for i in range(n)])
    back = (there + len(pairs))[:, ::-1]
    offsets = 3 * np.arange(n + 1)
    flows = Flows(
        np.zeros(n), np.arange(n), n + np.arange(n), np.full(n, 10**9), np.zeros(n), ("web",),
        Paths(offsets, there.ravel()), Paths(offsets, back.ravel()),
    )  # fmt: skip
    return network, flows


def max_min_shares(access, bottleneck):
    """Water filling over one shared link."""
    shares, left = np.zeros(len(access)), float(bottleneck)
    order = np.argsort(access)
    for done, i in enumerate(order):
        shares[i] = min(access[i], left / (len(access) - done))
        left -= shares[i]
    return shares


@pytest.mark.parametrize("access", [[RATE] * 4, [RATE] * 8, [10**9, RATE, RATE]])
def test_long_flows_share_a_bottleneck_max_min_fairly(access):
    """Slow access links far below the fair share, or none: others see marks of both links."""
    network, flows = dumbbell(access, RATE)
    rule = {"web": dctcp()}
    acked = [
        simulate(Scenario(network, flows, rule, until_ns=ms * 10**6))["bytes_acked"].values
        for ms in (50, 550)
    ]
    wire_bps = (acked[1] - acked[0]) * 8 * (1500 / 1380) / 0.5
    np.testing.assert_allclose(wire_bps, max_min_shares(access, RATE), rtol=0.03)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_paced_flow_below_capacity_loses_nothing(share):
    """Even where one packet may wait: jitter brings two together, never three."""
    flows = stars.flows([0], 1, [10**6], names=("train",))
    rule = {"train": paced(gap_ns=gap(share * RATE), seed=1)}
    scenario = Scenario(stars.star(2), flows, rule, Discipline(low_limit=1500))
    ds = simulate(scenario)
    assert ds["packets_received"].values[0] == ds["packets_sent"].values[0] == 725
    assert ds.attrs["packets_dropped"] == 0
    assert ds["last_arrival_ns"].values[0] == pytest.approx(725 * gap(share * RATE), rel=0.01)


def busy(train, discipline, *, until_ns=2**61, record=()):
    """Web flows and training that together are more than the star carries."""
    train_flows = stars.all_to_all(6, 60_000)
    random = np.random.default_rng(0)
    pairs = np.array([random.choice(6, 2, replace=False) for _ in range(60)])
    flows = stars.flows(
        np.append(train_flows.source, pairs[:, 0]),
        np.append(train_flows.destination, pairs[:, 1]),
        np.append(np.full(30, 60_000), np.full(60, 100_000)),
        starts=np.append(np.zeros(30, int), random.integers(0, 10**6, 60)),
        traffic=np.repeat([1, 0], [30, 60]),
        names=("web", "train"),
    )
    rules = {"web": simple_dctcp(), "train": train}
    return Scenario(stars.star(6), flows, rules, discipline, until_ns, record)


GAP = gap(8e9, flows=5)


def losses(ds):
    train = ds["traffic"].values == "train"
    return 1 - (ds["packets_received"] / ds["packets"]).values[train]


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("rate_control", [False, True])
def test_bounded_loss_is_bounded(loss, rate_control):
    discipline = Discipline(low_limit=4500)
    open_loop = losses(simulate(busy(paced(gap_ns=GAP, seed=2), discipline)))
    assert open_loop.max() > 0.3  # there is something to bound
    rule = bounded(loss=loss, gap_ns=GAP, seed=2, rate_control=rate_control)
    ds = simulate(busy(rule, discipline))
    assert ds["completed"].values.all()
    assert losses(ds).max() <= loss
    resent = (ds["packets_sent"] - ds["packets"]).values[ds["traffic"].values == "train"]
    assert resent.sum() > 0


def test_bounded_loss_sends_once_where_nothing_is_lost():
    ds = simulate(
        Scenario(
            stars.star(3), stars.all_to_all(3, 50_000, names=("train",)),
            {"train": bounded(loss=0.1, gap_ns=gap(2e9))},
        )
    )  # fmt: skip
    np.testing.assert_array_equal(ds["packets_sent"], ds["packets"])
    np.testing.assert_array_equal(ds["packets_received"], ds["packets"])
    assert (ds["fct_ns"] < ds["last_arrival_ns"]).values.all()  # complete when enough is there


def test_rate_control_lowers_the_losses_of_an_overload():
    """Ten messages one after the other at 1.6 times what the receiver's link carries."""
    starts = np.repeat(np.arange(10) * 1_000_000, 2)
    flows = stars.flows(np.tile([0, 1], 10), 2, 500_000, starts=starts, names=("train",))

    def drops(rate_control):
        rule = bounded(loss=0.05, gap_ns=gap(8e9), seed=1, rate_control=rate_control)
        ds = simulate(Scenario(stars.star(3), flows, {"train": rule}))
        assert losses(ds).max() <= 0.05
        return ds.attrs["packets_dropped"]

    assert drops(True) < 0.6 * drops(False)


def test_a_deadline_ends_sending_and_makes_late_packets_lost():
    deadline = 20 * GAP
    rule = paced(gap_ns=GAP, seed=2, deadline_ns=deadline)
    ds = simulate(busy(rule, Discipline(), record=("train",)))
    train = ds["traffic"].values == "train"
    sent, packets = ds["packets_sent"].values[train], ds["packets"].values[train]
    assert (sent < packets).all()
    assert (sent >= 19).all()
    assert ds["arrival_ns"].values.max() <= deadline
    whole = simulate(busy(paced(gap_ns=GAP, seed=2), Discipline(), record=("train",)))
    late = whole["arrival_ns"].values > deadline
    assert late.any()
    assert not ds["delivered"].values[late].any()


def test_paced_reliable_traffic_is_paced_and_reliable():
    flows = stars.all_to_all(4, 100_000)
    gap_ns = gap(2e9, flows=3)
    ds = simulate(Scenario(stars.star(4), flows, {"web": dctcp(gap_ns=gap_ns, seed=1)}))
    assert ds["completed"].values.all()
    assert ds.attrs["packets_dropped"] == 0
    assert ds["timeouts"].values.sum() == 0
    packets = ds["packets"].values
    np.testing.assert_allclose(ds["fct_ns"], packets * gap_ns, rtol=0.05)
    assert ds["max_queue_bytes"].values.max() < 15 * 1500  # where windows alone reach the mark
    alone = simulate(Scenario(stars.star(4), flows, {"web": dctcp()}))
    assert alone["max_queue_bytes"].values.max() >= 30_000


def test_fast_retransmit_needs_no_timer():
    """Slow start overruns a short queue: DCTCP resends what is lost within a round trip."""
    network = stars.star(2, rate_bps=[RATE, RATE, RATE, RATE // 10])
    flows = stars.flows([0], 1, [300_000])
    ports = Discipline(limit=24_000, mark_above=None)
    rules = (dctcp(min_timeout_ns=10**8), simple_dctcp())
    fast, slow = (simulate(Scenario(network, flows, {"web": rule}, ports)) for rule in rules)
    assert fast.attrs["packets_dropped"] > 0
    assert fast["timeouts"].values[0] == 0
    assert slow["timeouts"].values[0] > 0
    packets = fast["packets"].values[0]
    assert fast["fct_ns"].values[0] == pytest.approx(packets * 12_000, rel=0.01)  # never idle
    assert slow["fct_ns"].values[0] > 1.2 * fast["fct_ns"].values[0]
