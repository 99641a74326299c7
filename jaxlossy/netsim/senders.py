"""What all transports share: packets of a flow, pacing, round-trip times, the timer."""

import numpy as np

from jaxlossy.jit import inlined
from jaxlossy.netsim.events import add_far, add_near
from jaxlossy.netsim.state import ACK, DATA, HEADERS, MSS, NONE, new_packet

#: Far events of a flow; numbers from 0 on are segments whose own timer expires.
CALL_TIMER, ANSWER_TIMER, TIMER, TICK, CLEAN = -2, -3, -4, -5, -6


@inlined
def bytes_before(s, f, segment):
    """Where a segment begins: all are full but the last."""
    return min(np.int64(segment) * MSS, s.flows[f].size)


@inlined
def send_data(s, f, segment):
    flow = s.flows[f]
    size = HEADERS + bytes_before(s, f, segment + 1) - bytes_before(s, f, segment)
    p = new_packet(s, f, DATA, segment, flow.data_place, size, s.clock[0].now)
    s.packets[p].low = s.transports[flow.transport].low
    flow.packets_sent += 1


@inlined
def send_ack(s, f, answered):
    """Tells the sender all that has arrived, and about the packet that is being answered."""
    flow = s.flows[f]
    created, marked = s.packets[answered].created, s.packets[answered].marked
    p = new_packet(s, f, ACK, flow.received, flow.ack_place, HEADERS, created)
    s.packets[p].echo = marked


@inlined
def take_segment(s, f, segment):
    """The receiver notes a packet; whether it is the first of its segment."""
    flow = s.flows[f]
    flow.data_arrived += 1
    at = flow.block + segment
    if s.segments[at] & 1:
        return False
    s.segments[at] |= 1
    s.log[flow.block + flow.received] = segment
    flow.received += 1
    count_arrival(s, f, segment)
    return True


@inlined
def count_arrival(s, f, segment):
    flow, now = s.flows[f], s.clock[0].now
    flow.packets_received += 1
    flow.bytes_received += bytes_before(s, f, segment + 1) - bytes_before(s, f, segment)
    if flow.first_arrival == NONE:
        flow.first_arrival = now
    flow.last_arrival = now
    if flow.record != NONE:
        s.arrivals[flow.record + segment] = now - flow.start


@inlined
def measure_round_trip(s, f, created, factor):
    """Smooths round-trip times as RFC 6298; a timeout is ``factor`` of them and 4 deviations."""
    flow = s.flows[f]
    sample = np.float64(s.clock[0].now - created)
    if flow.measured:
        flow.rtt_deviation = 0.75 * flow.rtt_deviation + 0.25 * abs(flow.rtt - sample)
        flow.rtt = 0.875 * flow.rtt + 0.125 * sample
    else:
        flow.measured = 1
        flow.rtt = sample
        flow.rtt_deviation = sample / 2
    least = np.float64(s.transports[flow.transport].min_timeout_ns)
    flow.timeout = np.int64(max(least, factor * flow.rtt + 4 * flow.rtt_deviation))


@inlined
def arm(s, f, time):
    """Sets the flow's one timer; its event may come early, and then looks again."""
    flow = s.flows[f]
    flow.timer = time
    if flow.timer_event == NONE or flow.timer_event > time:
        flow.timer_event = time
        add_far(s, time, f, TIMER)


@inlined
def is_due(s, f):
    """Whether the flow's timer has expired, now that an event of it has come."""
    flow, now = s.flows[f], s.clock[0].now
    if now != flow.timer_event:
        return False
    flow.timer_event = NONE
    if flow.timer == NONE:
        return False
    if now < flow.timer:
        arm(s, f, flow.timer)
        return False
    flow.timer = NONE
    return True


@inlined
def jitter(s, f, number):
    """An integer in [0, gap), the same for the same seed, flow and packet (splitmix64's mixing)."""
    transport = s.transports[s.flows[f].transport]
    if not transport.jitter:
        return np.int64(0)
    x = (transport.seed << np.uint64(48)) + (np.uint64(f) << np.uint64(16)) + np.uint64(number)
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.int64(((x >> np.uint64(32)) * np.uint64(transport.gap_ns)) >> np.uint64(32))


@inlined
def first_release(s, f):
    """When the pacer would let a packet go first, without jitter."""
    flow = s.flows[f]
    return flow.start + s.transports[flow.transport].stagger_ns * flow.distance


@inlined
def plan_tick(s, f, release, number):
    """Has the pacer let the packet of this number go at a time, give or take the jitter."""
    flow = s.flows[f]
    flow.waiting = 1
    flow.released = release
    time = release + jitter(s, f, number)
    delay = time - s.clock[0].now
    if delay > s.clock[0].longest_near:
        add_far(s, time, f, TICK)
    else:  # a near event of the same time may be older
        add_near(s, delay, np.uint32(len(s.ports) + f))
