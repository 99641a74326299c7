"""The network simulation: exact against Netbench, conservative, the same however it is run."""

from pathlib import Path

import numpy as np
import pytest
import stars

from jaxlossy import ConfigError, jit
from jaxlossy.netsim import (
    Discipline,
    Flows,
    Network,
    Paths,
    Scenario,
    bounded,
    dctcp,
    engine,
    gap,
    paced,
    reference,
    round_robin,
    simple_dctcp,
    simple_tcp,
    simulate,
    simulate_many,
    simulation,
)
from jaxlossy.netsim.scenario import parse_run

REFERENCE = Path(__file__).parent / "data" / "netbench"
RUNS = list(reference.runs(REFERENCE))


@pytest.mark.parametrize(("folder", "run"), RUNS, ids=[f"{f.name}-{run}" for f, run in RUNS])
def test_exact_against_netbench(folder, run):
    row = reference.compare(folder, run)
    assert row["flows"] + row["lossy"] > 0
    assert (row["flows_off"], row["ports_off"], row["lossy_off"]) == (0, 0, 0)


def test_the_comparison_finds_differences(tmp_path):
    folder = tmp_path / "a_incast_n2"
    folder.mkdir()
    for file in (REFERENCE / "a_incast_n2").iterdir():
        text = file.read_text()
        if file.name == "fct_simple_dctcp.csv":
            last = text.strip().rsplit("\n", 1)[1]
            number, acked, time, done = last.split(",")
            text = text.replace(last, f"{number},{acked},{int(time) + 1},{done}")
        (folder / file.name).write_text(text)
    row = reference.compare(folder, "simple_dctcp")
    assert (row["flows_off"], row["ports_off"]) == (1, 0)
    assert reference.compare(folder, "simple_tcp_noecn")["flows_off"] == 0


def crowded(**more):
    """Web and training through a star with little room: drops of every kind."""
    flows = stars.all_to_all(
        4, 14_000, starts=np.repeat([0, 5000, 9000], 4), traffic=np.arange(12) % 2,
        names=("web", "train"),
    )  # fmt: skip
    rules = {
        "web": dctcp(),
        "train": bounded(loss=0.2, gap_ns=gap(6e9, flows=3), seed=1, rate_control=True),
        "discipline": Discipline(limit=9000, mark_above=3000, low_limit=3000),
    } | more
    return Scenario(
        stars.star(4), flows, {"web": rules["web"], "train": rules["train"]}, rules["discipline"]
    )


@pytest.mark.parametrize(
    "scenario",
    [
        crowded(),
        crowded(web=simple_tcp(), train=round_robin(interval_ns=2000, hosts=4)),
        crowded(web=dctcp(gap_ns=3000), discipline=Discipline(9000, None, 1500, priority=True)),
    ],
    ids=["bounded", "round_robin", "priority"],
)
def test_packets_are_conserved_at_every_event(scenario):
    s = simulation.initial(scenario)
    reason, events = engine.PAUSED, 0
    while reason == engine.PAUSED:
        s, reason = simulation.advance(s, 1)
        simulation.check_conservation(s)
        events += 1
    clock = s.clock[0]
    assert clock["dropped"] > 0
    assert clock["sent"] == clock["arrived"] + clock["dropped"]
    assert events == clock["events"] + 1
    whole = simulate(scenario)
    np.testing.assert_array_equal(whole["first_arrival_ns"] + whole["start_ns"],
                                  s.flows["first_arrival"])  # fmt: skip
    assert whole.attrs["end_ns"] == clock["now"]


def test_conservation_notices_a_lost_packet():
    s = simulation.run(crowded())
    s.flows["sent"][3] += 1
    with pytest.raises(AssertionError, match="flow 3"):
        simulation.check_conservation(s)


def test_small_stores_grow_without_a_trace():
    scenario = crowded(discipline=Discipline())
    s = simulation.initial(scenario, packets=1, events=1)
    s = s._replace(log=s.log[:1], segments=s.segments[:1], sent_at=s.sent_at[:1])
    s, reason = simulation.advance(s, 2**62)
    assert reason == engine.FINISHED
    large = simulation.run(scenario)
    assert len(s.packets) < len(large.packets)
    np.testing.assert_array_equal(s.flows, large.flows)
    np.testing.assert_array_equal(s.ports[["accepted_bytes", "busy_ns"]],
                                  large.ports[["accepted_bytes", "busy_ns"]])  # fmt: skip


def test_memory_does_not_grow_with_time():
    def packets_and_blocks(repeats):
        starts = np.repeat(np.arange(repeats) * 1_000_000, 12)
        pairs = stars.all_to_all(4, 50_000)
        flows = stars.flows(np.tile(pairs.source, repeats), np.tile(pairs.destination, repeats),
                            50_000, starts=starts)  # fmt: skip
        s = simulation.run(Scenario(stars.star(4), flows, {"web": simple_dctcp()}))
        return len(s.packets), len(s.heap), len(s.ring), len(s.log)

    assert packets_and_blocks(40) == packets_and_blocks(4)


def test_the_same_on_any_number_of_threads():
    scenarios = [crowded(train=paced(gap_ns=4000, seed=seed)) for seed in range(4)]
    alone = [simulate(scenario) for scenario in scenarios]
    for ours, theirs in zip(alone, simulate_many(scenarios, threads=3), strict=True):
        assert ours.identical(theirs)
    assert not alone[0].identical(alone[1])  # the seed counts


def test_long_delays_go_through_the_heap():
    """A delay beyond the wheel only moves everything by as much."""

    def completion(delay_ns):
        flows = stars.flows([0, 1, 2], 3, [1, 3000, 4000])
        # One packet each in the first window, and no time-outs on the way.
        rule = dctcp(min_timeout_ns=10**12)
        network = stars.star(4, delay_ns=delay_ns)
        return simulate(Scenario(network, flows, {"web": rule}))["fct_ns"].values

    trips = 8  # links: call, answer, data, acknowledgment
    np.testing.assert_array_equal(
        completion(10**6) - completion(100), trips * (10**6 - 100) * np.ones(3)
    )


def add_one(numbers):
    return numbers[0] + 1


def test_compiled_code_is_kept_where_that_is_possible(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new"))
    assert jit.entry(add_one)(np.ones(1)) == 2
    assert [file.suffix for file in tmp_path.glob("new/numba-*/*/*.nbi")] == [".nbi"]
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
    assert jit.entry(add_one)(np.ones(1)) == 2


def test_a_flow_of_nothing_is_complete_at_once():
    flows = stars.flows([0, 1], 2, [0, 1380], starts=[7, 9])
    ds = simulate(Scenario(stars.star(3), flows, {"web": simple_dctcp()}))
    assert ds["completed"].values.all()
    assert ds["fct_ns"].values[0] == 0
    assert ds["packets_sent"].values.tolist() == [0, 1]


def test_flows_need_not_be_sorted():
    order = [2, 0, 1]
    starts = np.array([0, 700, 2000])
    sizes = np.array([9000, 20_000, 1])

    def run(index):
        flows = stars.flows(np.array([0, 1, 2])[index], 3, sizes[index], starts=starts[index])
        return simulate(Scenario(stars.star(4), flows, {"web": simple_dctcp()}))["fct_ns"].values

    np.testing.assert_array_equal(run(order), run([0, 1, 2])[order])


def test_the_end_of_a_run():
    flows = stars.flows([0], 1, [10**6])
    scenario = Scenario(stars.star(2), flows, {"web": simple_dctcp()}, until_ns=100_000)
    ds = simulate(scenario)
    assert ds.attrs["end_ns"] <= 100_000
    assert not ds["completed"].values[0]
    assert 0 < ds["bytes_acked"].values[0] < 10**6
    assert ds["busy_ns"].values.max() <= 100_000


def test_what_is_recorded_is_what_arrived():
    scenario = crowded(train=paced(gap_ns=2000, seed=3))
    recorded = Scenario(scenario.network, scenario.flows, scenario.transports,
                        scenario.discipline, record=("train",))  # fmt: skip
    ds = simulate(recorded)
    train = np.flatnonzero(ds["traffic"].values == "train")
    counts = ds["packets_received"].values[train]
    delivered = ds["delivered"].values.reshape(len(train), -1)
    assert 0 < counts.sum() < delivered.size
    np.testing.assert_array_equal(delivered.sum(axis=1), counts)
    last = ds["arrival_ns"].values.reshape(delivered.shape).max(axis=1)
    np.testing.assert_array_equal(last, ds["last_arrival_ns"].values[train])
    np.testing.assert_array_equal(ds["packet_flow"].values.reshape(delivered.shape)[:, 0], train)


ONE = (np.array([0]), np.array([0]))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: stars.star(2, rate_bps=0), "rate_bps[0]: 0 is not allowed"),
        (lambda: stars.flows([0], 0, [1]), "destination[0]: 0 is not allowed"),
        (lambda: stars.flows([0], 1, [1], starts=-1), "start_ns[0]: -1 is not allowed"),
        (lambda: stars.flows([0], 1, [2**41]), "size[0]: 2199023255552 is not allowed"),
        (lambda: Network(2, [[0, 2]], [1], [1]), "links[0]: (0, 2) is not allowed"),
        (lambda: Discipline(limit=0), "limit: 0 is not allowed"),
        (lambda: paced(gap_ns=0), "gap_ns: 0 is not allowed"),
        (lambda: bounded(loss=1.0, gap_ns=9), "loss: 1.0 is not allowed"),
        (lambda: parse_run("lossy5g_fifo_thr"), "discipline: 'fifo_thr' is not allowed"),
        (lambda: parse_run("newreno_dctcp"), "run: 'newreno_dctcp' is not allowed"),
        (
            lambda: Scenario(stars.star(2), stars.flows([0], 1, [1]), {}),
            "transports: [] is not allowed (allowed: one for 'web' too)",
        ),
        (
            lambda: Scenario(stars.star(2), stars.flows([0], 2, [1]), {"web": simple_tcp()}),
            "data_path of flow 0: [0, 5] is not allowed",
        ),
        (
            lambda: Scenario(
                stars.star(2),
                Flows(*ONE, [1], [1], [0], ("web",), Paths([0, 1], [0]), Paths([0, 1], [2])),
                {"web": simple_tcp()},
            ),
            "data_path of flow 0: [0] is not allowed (allowed: links that lead from node 0 to",
        ),
    ],
)
def test_wrong_input_is_one_line(make, line):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
