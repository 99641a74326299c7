"""Runs a simulation: from a network and flows to what became of them."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr

from jaxlossy.errors import ConfigError
from jaxlossy.netsim import engine, state
from jaxlossy.netsim.flows import Flows
from jaxlossy.netsim.network import Network
from jaxlossy.netsim.ports import Discipline
from jaxlossy.netsim.results import dataset
from jaxlossy.netsim.state import HEADERS, MSS, NIL, NONE, State, grown
from jaxlossy.netsim.transports import Transport

_MOST_SLOTS = 2**17  # of the wheel; longer transmissions and delays go through the heap


@dataclasses.dataclass(frozen=True)
class Scenario:
    """All that a simulation depends on.

    Attributes:
      network, flows: what is sent through what.
      transports: for each kind of traffic in ``flows.names``, how it is sent; None: not at all.
      discipline: the rules of every port.
      until_ns: the last ns that is simulated. A run ends earlier where nothing is under way any
        more, and one of reliable flows only with its last completion.
      record: kinds of traffic, none of them reliable, of which every packet's arrival is kept.

    Raises:
      ConfigError: a kind of traffic without a transport, a path that is not one.
    """

    network: Network
    flows: Flows
    transports: Mapping[str, Transport | None]
    discipline: Discipline = dataclasses.field(default_factory=Discipline)
    until_ns: int = 2**61
    record: tuple[str, ...] = ()

    def __post_init__(self):
        for name in self.flows.names:
            if name not in self.transports:
                raise ConfigError("transports", sorted(self.transports), f"one for {name!r} too")
        for name in self.record:
            transport = self.transports.get(name)
            if transport is None or transport.reliable:
                raise ConfigError("record", name, "kinds of traffic that are sent unreliably")
        if not 0 <= self.until_ns <= 2**61:
            raise ConfigError("until_ns", self.until_ns, "an integer in [0, 2**61]")
        flows = self.flows
        _check_paths("data_path", flows.data_path, flows.source, flows.destination, self.network)
        _check_paths("ack_path", flows.ack_path, flows.destination, flows.source, self.network)


def simulate(scenario: Scenario) -> xr.Dataset:
    """Simulates every packet.

    Args:
      scenario: what to simulate. The same scenario gives the same result, to the nanosecond.

    Returns:
      What became of each flow (dimension ``flow``, in the order of ``scenario.flows``) and of each
      link's output port (``link``); see `results.dataset`.

    >>> from jaxlossy.netsim import Flows, Paths, simple_dctcp
    >>> links = np.array([[0, 1], [1, 0]])
    >>> network = Network(2, links, rate_bps=np.full(2, 10**10), delay_ns=np.full(2, 20))
    >>> there, back = Paths(np.array([0, 1]), [0]), Paths(np.array([0, 1]), [1])
    >>> flows = Flows([0], [0], [1], [1], [0], ("web",), there, back)
    >>> simulate(Scenario(network, flows, {"web": simple_dctcp()}))["fct_ns"].values
    array([560])
    """
    return dataset(scenario, run(scenario))


def simulate_many(scenarios: Iterable[Scenario], threads: int | None = None) -> list[xr.Dataset]:
    """Simulates scenarios side by side, one a thread; results do not depend on how many.

    Args:
      scenarios: what to simulate; taken one after the other, as threads become free.
      threads: None: one a core that this process may use.
    """
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(simulate, scenarios))


def run(scenario: Scenario) -> State:
    """The state after the last event; no packet has gone missing on the way."""
    s = initial(scenario)
    reason = engine.PAUSED
    while reason != engine.FINISHED:
        s, reason = advance(s, 2**62)
    check_conservation(s)
    return s


def advance(s: State, events: int) -> tuple[State, int]:
    """Handles at most so many events; makes stores larger where they are too small.

    Returns:
      The state, and `engine.FINISHED` or `engine.PAUSED`.
    """
    until = s.clock[0]["events"] + events
    while True:
        reason = engine.run(s, until - s.clock[0]["events"])
        if reason in (engine.FINISHED, engine.PAUSED):
            return s, reason
        room = 16 + 2 * int(s.flows["window"].max(initial=0)) // MSS
        if reason == engine.NEEDS_PACKETS:
            s = grown(s, packets=room)
        elif reason == engine.NEEDS_EVENTS:
            s = grown(s, events=room)
        else:
            s = grown(s, segments=2 * int(s.flows["count"].max()))


def check_conservation(s: State) -> None:
    """Every packet sent has arrived, was dropped, or is under way: of each flow, and in all."""
    under_way = np.zeros(len(s.flows), np.int64)
    engine.count_under_way(s, under_way)
    flows, clock = s.flows, s.clock[0]
    missing = flows["sent"] - flows["arrived"] - flows["dropped"] - under_way
    assert not missing.any(), f"packets of flow {np.flatnonzero(missing)[0]} went missing"
    assert clock["sent"] == clock["arrived"] + clock["dropped"] + under_way.sum()
    assert clock["free_count"] == len(s.packets) - under_way.sum()
    queued = s.queues["bytes"].reshape(-1, 2).sum(1)
    assert (queued >= 0).all()
    assert not queued[s.ports["sending"] == NIL].any(), "an idle port has a queue"


def initial(scenario: Scenario, *, packets: int = 1024, events: int = 1024) -> State:
    """The state before the first event, with room for so many packets and far events."""
    network, links = scenario.network, len(scenario.network.links)
    flows = _flows(scenario)
    rows = [scenario.transports[name] for name in scenario.flows.names]
    transports = np.array([(row or Transport(True)).row() for row in rows], state.TRANSPORT)

    ports = np.zeros(links, state.PORT)
    ports["sending"] = NIL
    ports["rate_bps"], ports["delay_ns"] = network.rate_bps, network.delay_ns
    scenario.discipline.configure(ports)
    queues = np.zeros(2 * links, state.QUEUE)
    queues["first"] = queues["last"] = NIL

    ports["full_ns"] = (MSS + HEADERS) * 8_000_000_000 // network.rate_bps
    ports["empty_ns"] = HEADERS * 8_000_000_000 // network.rate_bps
    longest = int(max(ports["full_ns"].max(initial=0), network.delay_ns.max(initial=0)))
    slots = min(_MOST_SLOTS, max(4096, 1 << (longest + 64).bit_length()))

    running = np.array([row is not None for row in rows], bool)[flows["transport"]]
    running &= flows["size"] > 0  # a flow of nothing is complete when it starts
    flows["completed_at"] = np.where(flows["size"] > 0, NONE, flows["start"])
    starts = np.argsort(flows["start"], kind="stable")
    starts = starts[running[starts]].astype(np.uint32)
    reliable = transports["reliable"][flows["transport"]].astype(bool) & running

    clock = np.zeros(1, state.CLOCK)
    clock["longest_near"] = longest
    clock["until"] = scenario.until_ns
    clock["ring_delay"] = transports["min_timeout_ns"].min(initial=2**40)
    clock["unfinished"] = reliable.sum()
    clock["stop_when_complete"] = reliable.any() and reliable.sum() == running.sum()
    clock["free_count"] = packets
    clock["outbox_first"] = NIL
    clock["near_time"] = state.NEVER

    store = np.zeros(packets, state.PACKET)
    store["next"] = np.append(np.arange(1, packets), NIL)
    hosts = np.zeros(network.nodes, state.HOST)
    hosts["rate"] = 1.0
    return State(
        clock=clock,
        wheel=np.full(2 * slots, NIL, np.uint32).view(state.SLOT),
        occupied=np.zeros(slots // 64, np.uint64),
        occupied_words=np.zeros(slots // 4096, np.uint64),
        follower=np.zeros(links + len(flows) + packets, np.uint32),
        heap=np.zeros(events, state.EVENT),
        ring=np.zeros(1 << (events - 1).bit_length(), state.EVENT),
        starts=starts,
        ports=ports,
        queues=queues,
        packets=store,
        flows=flows,
        transports=transports,
        hosts=hosts,
        routes=_routes(scenario.flows, flows),
        log=np.zeros(1024, np.int32),
        segments=np.zeros(1024, np.uint8),
        sent_at=np.zeros(1024, np.int64),
        free_blocks=np.full(64, NONE, np.int64),
        arrivals=np.full(int(flows["count"][flows["record"] != NONE].sum()), NONE, np.int64),
    )


def _flows(scenario: Scenario) -> np.ndarray:
    given, names = scenario.flows, scenario.flows.names
    flows = np.zeros(len(given.start_ns), state.FLOW)
    flows["start"], flows["size"], flows["source"] = given.start_ns, given.size, given.source
    flows["count"] = -(-given.size // MSS)
    flows["transport"] = given.traffic
    for i, name in enumerate(names):
        transport = scenario.transports[name]
        if transport is not None:
            of = given.traffic == i
            ring = given.destination[of].astype(np.int64) - given.source[of] - 1
            flows["distance"][of] = ring % transport.hosts
            may_miss = np.floor(transport.loss * flows["count"][of] + 1e-9)
            flows["needed"][of] = flows["count"][of] - may_miss
    recorded = np.isin(given.traffic, [names.index(name) for name in scenario.record])
    before = np.cumsum(np.where(recorded, flows["count"], 0)) - flows["count"]
    flows["record"] = np.where(recorded, before, NONE)
    unknown = ("first_arrival", "last_arrival", "high", "timer", "timer_event", "heard", "block")
    for name in unknown:
        flows[name] = NONE
    return flows


def _routes(given: Flows, flows: np.ndarray) -> np.ndarray:
    """All paths one after the other, each with NIL at its end; says in ``flows`` where."""
    start = 0
    parts = []
    for name, paths in (("data_place", given.data_path), ("ack_place", given.ack_path)):
        count = len(paths.offsets) - 1
        flows[name] = start + paths.offsets[:-1] + np.arange(count)
        parts.append(np.insert(paths.links.astype(np.uint32), paths.offsets[1:], NIL))
        start += len(parts[-1])
    if start > 2**31 - 1:
        raise ConfigError("data_path", start, "fewer than 2**31 links in all paths together")
    return np.concatenate(parts)


def _check_paths(name, paths, begin, end, network: Network) -> None:
    """Refuses the first path that is not a chain of links from one end of its flow to the other."""
    first, last = paths.offsets[:-1], paths.offsets[1:] - 1
    links = network.links
    bad = last < first
    known = (paths.links >= 0) & (paths.links < len(links))
    if known.all() and not bad.any():
        tail, head = links[paths.links, 0], links[paths.links, 1]
        broken = np.append(tail[1:] != head[:-1], False)
        broken[last] = False  # where one path ends and the next begins
        flow_of = np.repeat(np.arange(len(first)), last - first + 1)
        bad[flow_of[broken]] = True
        bad |= (tail[first] != begin) | (head[last] != end)
    elif not known.all():
        wrong = np.flatnonzero(~known)[0]
        bad[np.searchsorted(paths.offsets, wrong, "right") - 1] = True
    for flow in np.flatnonzero(bad)[:1]:
        path = paths.links[first[flow] : last[flow] + 1].tolist()
        allowed = f"links that lead from node {begin[flow]} to node {end[flow]}"
        raise ConfigError(f"{name} of flow {flow}", path, allowed)
