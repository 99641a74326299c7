"""Everything that a simulation knows, as flat arrays of records.

Nothing is allocated while the simulation runs: where one of its stores is full, the loop stops
before the event that needs more, Python makes the store larger (`grown`), and the loop goes on.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxlossy.jit import inlined

NONE = -1  # no time, no place
#: No packet, no event, the end of a path. Indices are unsigned: others would be checked each time
#: for counting from the end.
NIL = np.uint32(2**32 - 1)
NEVER = np.int64(2**62)

MSS = 1380  # bytes of payload in a full packet
HEADERS = 120  # bytes; a packet without payload is nothing else

#: What a packet is.
SYN, SYN_ACK, HANDSHAKE_ACK, DATA, ACK = range(5)

#: Bits of a segment, in `State.segments`.
RECEIVED, ACKED, LOST = np.uint8(1), np.uint8(2), np.uint8(4)


def _record(**fields: Any) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


CLOCK = _record(
    now=np.int64,  # ns
    until=np.int64,  # the last ns of the run
    far_time=np.int64,  # of the next far event or flow start
    longest_near=np.int64,  # ns from a near event's creation on
    near_count=np.int64,
    near_time=np.int64,  # of the next near event
    far_count=np.int64,
    created=np.int64,  # far events so far: their order at equal times
    ring_first=np.int64,
    ring_count=np.int64,
    ring_delay=np.int64,
    started=np.int64,  # flows so far
    unfinished=np.int64,
    stop_when_complete=np.int64,
    events=np.int64,
    blocks_end=np.int64,  # of the blocks of segments given out so far
    sent=np.int64,  # packets of any kind
    arrived=np.int64,
    dropped=np.int64,
    free_count=np.int64,
    free=np.uint32,  # first of the unused packets
    outbox_first=np.uint32,  # packets about to enter a port
    outbox_last=np.uint32,
)

#: An event of the heap or ring: what a flow does later, or (flow NIL) a near event far ahead.
EVENT = _record(time=np.int64, order=np.int64, flow=np.uint32, number=np.int64)

PACKET = _record(
    created=np.int64,  # of an acknowledgment: when the packet that it answers was
    flow=np.uint32,
    place=np.uint32,  # in `State.routes`
    size=np.int32,  # bytes, with headers
    number=np.int32,  # segment; of an acknowledgment: how many segments had arrived
    next=np.uint32,  # in the same queue
    kind=np.uint8,
    low=np.uint8,  # of the lossy class
    marked=np.uint8,  # congestion experienced
    echo=np.uint8,  # the packet that this one answers was marked
)

PORT = _record(
    sending=np.uint32,  # the packet in transmission, which is not in a queue
    rate_bps=np.int64,
    delay_ns=np.int64,
    limit=np.int64,
    low_limit=np.int64,
    mark_above=np.int64,
    budget_ppm=np.int64,
    priority=np.uint8,
    ends_at=np.int64,  # of the transmission under way
    full_ns=np.int64,  # to send a full packet, and one without payload
    empty_ns=np.int64,
    accepted_packets=np.int64,
    accepted_bytes=np.int64,
    dropped_packets=np.int64,
    dropped_bytes=np.int64,
    dropped_acks=np.int64,
    marked_packets=np.int64,
    max_queue_bytes=np.int64,
    busy_ns=np.int64,
)

QUEUE = _record(first=np.uint32, last=np.uint32, bytes=np.int64)
SLOT = _record(first=np.uint32, last=np.uint32)

FLOW = _record(
    # Fields that are used together are next to each other: a record is longer than a cache line.
    transport=np.uint32,
    count=np.int32,  # segments
    data_place=np.uint32,
    ack_place=np.uint32,
    size=np.int64,
    start=np.int64,
    block=np.int64,  # of its segments
    record=np.int64,  # where its arrivals go in `State.arrivals`; NONE: nowhere
    sent=np.int64,  # packets of any kind, as in the clock
    arrived=np.int64,
    # What the receiver knows.
    answered=np.uint8,  # it has seen the sender's call
    open=np.uint8,  # it takes data
    received=np.int32,  # segments
    data_arrived=np.int64,  # packets, whether seen before or not
    packets_received=np.int64,  # each segment once
    bytes_received=np.int64,
    first_arrival=np.int64,
    last_arrival=np.int64,
    # What the sender knows.
    done=np.uint8,  # it has nothing left to do
    connected=np.uint8,  # it has seen the receiver's answer
    measured=np.uint8,  # there is a round-trip time
    recovering=np.uint8,
    waiting=np.uint8,  # the pacer has a tick ahead
    acked=np.int32,  # segments known to have arrived
    una=np.int32,  # first segment not known to have arrived
    next=np.int32,  # first segment never sent
    high=np.int32,  # last segment known to have arrived
    judged=np.int32,  # segments before have been found lost or not
    lost=np.int32,  # found lost and not sent again yet
    rtt=np.float64,
    rtt_deviation=np.float64,
    timeout=np.int64,
    window=np.float64,  # bytes
    threshold=np.float64,
    alpha=np.float64,  # share of marked bytes
    total_bytes=np.int64,
    marked_bytes=np.int64,
    alpha_bytes=np.int64,  # after how many of them alpha is worked out again
    packets_sent=np.int64,  # data, resent ones too
    resend=np.int32,  # where to look for lost segments
    recover=np.int32,  # what was sent before the last loss ends here
    cut_at=np.int32,  # marks count again from here on
    alpha_at=np.int32,  # the share of marks is worked out again here
    timer=np.int64,  # when the one timer is due; NONE: it is off
    timer_event=np.int64,  # when its next event is; NONE: there is none
    released=np.int64,  # when the pacer let the last packet go, without jitter
    heard=np.int64,  # a packet that left then has arrived
    timeouts=np.int64,
    completed_at=np.int64,  # NONE: not yet
    dropped=np.int64,  # packets of any kind
    data_dropped=np.int64,
    needed=np.int32,  # segments that must arrive for the flow to be complete
    source=np.uint32,
    distance=np.int32,  # from source to destination in the order of hosts
)

#: One row a kind of traffic; the fields are those of `transports.Transport`.
TRANSPORT = _record(
    reliable=np.uint8,
    low=np.uint8,
    ecn=np.uint8,
    fast=np.uint8,
    jitter=np.uint8,
    feedback=np.uint8,
    rate_control=np.uint8,
    initial_window=np.float64,
    threshold=np.float64,
    min_timeout_ns=np.int64,
    gap_ns=np.int64,
    stagger_ns=np.int64,
    deadline_ns=np.int64,
    loss=np.float64,
    seed=np.uint64,
)

#: What a node knows about the losses of what it sends.
HOST = _record(rate=np.float64, observed=np.int64, lost=np.int64)


class State(NamedTuple):
    """The simulation, between two events.

    Attributes:
      clock: CLOCK (1,).
      wheel: SLOT (slot,), the near events of each ns ahead. A near event is the number of a port,
        whose transmission ends; or, counted on, of a flow whose pacer has a tick; or of a packet
        that arrives.
      occupied: uint64 (slot / 64,), a bit for each slot that has events.
      occupied_words: uint64 (slot / 4096,), a bit for each word of these that is not 0.
      follower: uint32 (port + flow + packet,), the event after each in its slot.
      heap, ring: EVENT, far events; the ring, of 2**i places, has those that come in the order of
        their creation.
      starts: uint32 (flow,), flows in the order of their start.
      ports: PORT (link,).
      queues: QUEUE (2 link,), of each port for high and low priority.
      packets: PACKET; flows: FLOW (flow,); transports: TRANSPORT (kind of traffic,).
      hosts: HOST (node,).
      routes: uint32, links one after the other, NIL at the end of each path.
      log: int32 (segment,), segments in the order in which they arrived.
      segments: uint8 (segment,), bits.
      sent_at: int64 (segment,), when last, where the transport asks. Flows under way have a block
        in each of these three.
      free_blocks: int64 (64,), first unused block of 2**i segments.
      arrivals: int64, when each packet of a recorded flow arrived, after the flow's start; NONE: it
        did not.
    """

    clock: np.ndarray
    wheel: np.ndarray
    occupied: np.ndarray
    occupied_words: np.ndarray
    follower: np.ndarray
    heap: np.ndarray
    ring: np.ndarray
    starts: np.ndarray
    ports: np.ndarray
    queues: np.ndarray
    packets: np.ndarray
    flows: np.ndarray
    transports: np.ndarray
    hosts: np.ndarray
    routes: np.ndarray
    log: np.ndarray
    segments: np.ndarray
    sent_at: np.ndarray
    free_blocks: np.ndarray
    arrivals: np.ndarray


def grown(s: State, *, packets: int = 0, events: int = 0, segments: int = 0) -> State:
    """The same state with room for at least so many more of each."""
    if packets:
        old, new = len(s.packets), len(s.packets) + max(packets, len(s.packets))
        store = _longer(s.packets, new)
        store["next"][old:] = np.arange(old + 1, new + 1)
        store["next"][-1] = s.clock[0]["free"]
        s.clock[0]["free"] = old
        s.clock[0]["free_count"] += new - old
        follower = _longer(s.follower, len(s.follower) + new - old)
        s = s._replace(packets=store, follower=follower)
    if events:
        ring = np.roll(s.ring, -int(s.clock[0]["ring_first"]))
        s.clock[0]["ring_first"] = 0
        s = s._replace(
            heap=_longer(s.heap, len(s.heap) + max(events, len(s.heap))),
            ring=_longer(ring, 1 << (len(ring) + max(events, len(ring)) - 1).bit_length()),
        )
    if segments:
        new = len(s.log) + max(segments, len(s.log))
        s = s._replace(
            log=_longer(s.log, new),
            segments=_longer(s.segments, new),
            sent_at=_longer(s.sent_at, new),
        )
    return s


def _longer(array: np.ndarray, length: int) -> np.ndarray:
    longer = np.zeros(length, array.dtype)
    longer[: len(array)] = array
    return longer


@inlined
def new_packet(s, flow, kind, number, place, size, created):
    """Takes an unused packet and puts it into the outbox, from where it enters its first port."""
    clock = s.clock[0]
    p = clock.free
    packet = s.packets[p]
    clock.free = packet.next
    clock.free_count -= 1
    clock.sent += 1
    s.flows[flow].sent += 1
    packet.flow = flow
    packet.kind = kind
    packet.number = number
    packet.place = place
    packet.size = size
    packet.created = created
    packet.marked = 0
    packet.echo = 0
    packet.low = 0
    packet.next = NIL
    if clock.outbox_first == NIL:
        clock.outbox_first = p
    else:
        s.packets[clock.outbox_last].next = p
    clock.outbox_last = p
    return p


@inlined
def release_packet(s, p):
    clock = s.clock[0]
    s.packets[p].next = clock.free
    clock.free = p
    clock.free_count += 1


@inlined
def size_class(count):
    """Blocks hold 2**i segments, so that one can be used again for another flow."""
    i = 3
    while (1 << i) < count:
        i += 1
    return i


@inlined
def take_block(s, f):
    """Gives a flow a block for its segments; that there is one has been seen to."""
    clock = s.clock[0]
    i = size_class(s.flows[f].count)
    block = s.free_blocks[i]
    if block == NONE:
        block = clock.blocks_end
        clock.blocks_end += 1 << i
    else:
        s.free_blocks[i] = s.log[block]
    for k in range(s.flows[f].count):
        s.segments[block + k] = 0
    s.flows[f].block = block


@inlined
def return_block(s, f):
    i = size_class(s.flows[f].count)
    block = s.flows[f].block
    s.log[block] = s.free_blocks[i]
    s.free_blocks[i] = block
