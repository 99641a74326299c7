"""What an output port does with packets: one discipline with four settings.

A port sends one packet at a time and queues the others. A reliable packet that finds K bytes or
more queued is marked; a packet that would make the queue longer than its limit is dropped. Queued
bytes leave out the packet in transmission.
"""

import dataclasses

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.jit import inlined
from jaxlossy.netsim.events import add_near
from jaxlossy.netsim.state import DATA, HEADERS, MSS, NIL, SYN, release_packet


@dataclasses.dataclass(frozen=True)
class Discipline:
    """The rules of every port.

    Attributes:
      limit: bytes that may be queued (Q).
      mark_above: queued bytes from which on reliable packets are marked (K); None: never.
      low_limit: bytes that may be queued for a packet of the lossy class; None: as `limit`.
      priority: whether reliable packets have a queue of their own, always served first, to which
        `limit` and `mark_above` then refer; `low_limit` is that of the other queue.
      budget: a lossy flow that has lost this part of its packets is dropped no more than reliable
        ones are; every port knows. None: there is no budget.

    Raises:
      ConfigError: a limit below one byte, a budget outside [0, 1].

    >>> Discipline(low_limit=30_000, budget=0.1).limit
    150000
    """

    limit: int = 150_000
    mark_above: int | None = 30_000
    low_limit: int | None = None
    priority: bool = False
    budget: float | None = None

    def __post_init__(self):
        for name in ("limit", "low_limit"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < 2**40:
                raise ConfigError(name, value, "bytes in [1, 2**40)")
        if self.mark_above is not None and self.mark_above < 0:
            raise ConfigError("mark_above", self.mark_above, "bytes >= 0, or None")
        if self.budget is not None and not 0 <= self.budget <= 1:
            raise ConfigError("budget", self.budget, "a number in [0, 1], or None")

    def configure(self, ports: np.ndarray) -> None:
        """Writes the settings into records of ports."""
        ports["limit"] = self.limit
        ports["low_limit"] = self.limit if self.low_limit is None else self.low_limit
        ports["mark_above"] = 2**62 if self.mark_above is None else self.mark_above
        ports["budget_ppm"] = -1 if self.budget is None else round(self.budget * 1e6)
        ports["priority"] = self.priority


@inlined
def limit_of(s, port, packet):
    """How many bytes may be queued with this packet."""
    if not packet.low:
        return port.limit
    if port.budget_ppm >= 0:
        flow = s.flows[packet.flow]
        if flow.data_dropped * 1_000_000 >= port.budget_ppm * flow.count:
            return port.limit
    return port.low_limit


@inlined
def enter(s, p):
    """A packet is to go through the port at its place: it is sent, queued or dropped."""
    packet = s.packets[p]
    link = s.routes[packet.place]
    port = s.ports[link]
    queue = s.queues[np.uint32(2 * link + (packet.low & port.priority))]
    size = packet.size
    if not packet.low and queue.bytes >= port.mark_above:
        packet.marked = 1
        port.marked_packets += 1
    if queue.bytes + size > limit_of(s, port, packet):
        _drop(s, port, p)
        return
    port.accepted_packets += 1
    port.accepted_bytes += size
    if port.sending == NIL:
        _transmit(s, link, p)
        return
    packet.next = NIL
    if queue.first == NIL:
        queue.first = p
    else:
        s.packets[queue.last].next = p
    queue.last = p
    queue.bytes += size
    total = s.queues[np.uint32(2 * link)].bytes + s.queues[np.uint32(2 * link + 1)].bytes
    if total > port.max_queue_bytes:
        port.max_queue_bytes = total


@inlined
def finish(s, link):
    """A transmission ends: its packet arrives a little later, and the next one is sent."""
    port = s.ports[link]
    add_near(s, port.delay_ns, np.uint32(len(s.ports) + len(s.flows) + port.sending))
    port.sending = NIL
    for q in range(2):  # high priority first
        queue = s.queues[np.uint32(2 * link + q)]
        p = queue.first
        if p != NIL:
            queue.first = s.packets[p].next
            queue.bytes -= s.packets[p].size
            _transmit(s, link, p)
            return


@inlined
def _transmit(s, link, p):
    port = s.ports[link]
    size = s.packets[p].size
    if size == HEADERS + MSS:  # nearly all packets are one of two sizes; a division takes its time
        time = port.full_ns
    elif size == HEADERS:
        time = port.empty_ns
    else:
        time = size * 8_000_000_000 // port.rate_bps
    port.sending = p
    port.busy_ns += time
    port.ends_at = s.clock[0].now + time
    add_near(s, time, link)


@inlined
def _drop(s, port, p):
    packet = s.packets[p]
    port.dropped_packets += 1
    port.dropped_bytes += packet.size
    if packet.kind != DATA and packet.kind != SYN:
        port.dropped_acks += 1
    flow = s.flows[packet.flow]
    flow.dropped += 1
    if packet.low:
        flow.data_dropped += 1
    s.clock[0].dropped += 1
    release_packet(s, p)
