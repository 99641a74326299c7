"""Transports that send until everything has arrived: TCP with and without ECN, DCTCP.

After a three-way handshake the receiver acknowledges every packet. An acknowledgment says all that
has arrived (as the length of the receiver's log), when the packet that it answers left, and
whether that was marked.

Two ways to find losses. *Simple*, as Netbench's transports do it: every packet has its own timer
and nothing else; the window counts from the first segment that is missing. *Fast*: three later
segments have arrived, or the flow's one timer has expired; the window counts what is under way.
Three answers to marks: none; a cut at each (Netbench's); a cut in each window (RFC 8257).
"""

import numpy as np

from jaxlossy.jit import inlined
from jaxlossy.netsim.events import add_far
from jaxlossy.netsim.senders import (
    ANSWER_TIMER,
    CALL_TIMER,
    TICK,
    TIMER,
    arm,
    bytes_before,
    first_release,
    is_due,
    measure_round_trip,
    plan_tick,
    send_ack,
    send_data,
    take_segment,
)
from jaxlossy.netsim.state import (
    ACK,
    ACKED,
    DATA,
    HANDSHAKE_ACK,
    HEADERS,
    LOST,
    MSS,
    NONE,
    SYN,
    SYN_ACK,
    new_packet,
    return_block,
    take_block,
)

AT_EACH_MARK, ONCE_A_WINDOW = 1, 2  # how `Transport.ecn` says when the window is cut
_DUPLICATES = 3  # later segments that have arrived, from which on one is taken for lost


@inlined
def start(s, f):
    flow = s.flows[f]
    transport = s.transports[flow.transport]
    take_block(s, f)
    flow.window = transport.initial_window * MSS
    flow.threshold = transport.threshold * MSS
    flow.timeout = transport.min_timeout_ns
    flow.alpha = 1.0 if transport.fast else 0.0
    _call(s, f)


@inlined
def receive(s, p):
    """A packet has reached the end of its path: the receiver's for calls and data."""
    packet = s.packets[p]
    f = packet.flow
    flow = s.flows[f]
    if flow.done:  # both ends have forgotten it
        return
    if packet.kind == DATA:
        if flow.open:
            take_segment(s, f, packet.number)
            send_ack(s, f, p)
    elif packet.kind == ACK:
        if flow.connected:
            _acknowledge(s, f, p)
    elif packet.kind == SYN:
        if not flow.answered:
            flow.answered = 1
            _answer(s, f)
        elif flow.open:
            send_ack(s, f, p)
    elif packet.kind == SYN_ACK:
        first = not flow.connected
        flow.connected = 1
        new_packet(s, f, HANDSHAKE_ACK, 0, flow.data_place, HEADERS, s.clock[0].now)
        if first:
            flow.released = first_release(s, f) - s.transports[flow.transport].gap_ns
            send_pending(s, f)
    else:
        flow.open = 1


@inlined
def expire(s, f, number):
    """A far event of the flow: a timer or a tick of the pacer."""
    flow = s.flows[f]
    if flow.done:
        return
    if number == TICK:
        flow.waiting = 0
        if may_send(s, f):
            _send_one(s, f)
            send_pending(s, f)
    elif number == TIMER:
        if is_due(s, f):
            _time_out(s, f)
    elif number == ANSWER_TIMER:
        if not flow.open:
            flow.timeouts += 1
            _answer(s, f)
    elif number == CALL_TIMER:
        if not flow.connected:
            _halve(s, f)
            _call(s, f)
    elif not s.segments[flow.block + number] & ACKED:
        _halve(s, f)
        _send_segment(s, f, number)


@inlined
def send_pending(s, f):
    """Sends what the window allows, or has the pacer do so."""
    flow = s.flows[f]
    gap = s.transports[flow.transport].gap_ns
    if gap == 0:
        while may_send(s, f):
            _send_one(s, f)
    elif not flow.waiting and may_send(s, f):
        plan_tick(s, f, max(s.clock[0].now, flow.released + gap), flow.next)


@inlined
def may_send(s, f):
    flow = s.flows[f]
    if s.transports[flow.transport].fast:
        under_way = flow.next - flow.acked - flow.lost
        left = flow.lost > 0 or flow.next < flow.count
        return left and (under_way == 0 or (under_way + 1) * MSS <= flow.window)
    if flow.next == flow.count:
        return False
    allowed = bytes_before(s, f, flow.una) + np.int64(flow.window)
    return bytes_before(s, f, flow.next + 1) <= allowed


@inlined
def _send_one(s, f):
    flow = s.flows[f]
    if flow.lost == 0:
        segment = flow.next
        flow.next += 1
    else:
        while not s.segments[flow.block + flow.resend] & LOST:
            flow.resend += 1
        segment = flow.resend
        s.segments[flow.block + segment] &= ~LOST
        flow.lost -= 1
    _send_segment(s, f, segment)


@inlined
def _send_segment(s, f, segment):
    flow = s.flows[f]
    if not s.transports[flow.transport].fast:
        add_far(s, s.clock[0].now + flow.timeout, f, segment)
    elif flow.timer == NONE:
        arm(s, f, s.clock[0].now + flow.timeout)
    send_data(s, f, segment)


@inlined
def _call(s, f):
    add_far(s, s.clock[0].now + s.flows[f].timeout, f, CALL_TIMER)
    new_packet(s, f, SYN, 0, s.flows[f].data_place, HEADERS, s.clock[0].now)


@inlined
def _answer(s, f):
    least = s.transports[s.flows[f].transport].min_timeout_ns
    add_far(s, s.clock[0].now + least, f, ANSWER_TIMER)
    new_packet(s, f, SYN_ACK, 0, s.flows[f].ack_place, HEADERS, s.clock[0].now)


@inlined
def _halve(s, f):
    flow = s.flows[f]
    flow.timeouts += 1
    flow.window = max(np.float64(MSS), flow.window / 2)
    flow.threshold = flow.window


@inlined
def _acknowledge(s, f, p):
    flow, packet = s.flows[f], s.packets[p]
    transport = s.transports[flow.transport]
    measure_round_trip(s, f, packet.created, 1.0 if transport.fast else 2.0)
    new = 0
    while flow.acked < packet.number:
        segment = s.log[flow.block + flow.acked]
        bits = s.segments[flow.block + segment]
        if bits & LOST:
            flow.lost -= 1
        s.segments[flow.block + segment] = (bits | ACKED) & ~LOST
        flow.high = max(flow.high, segment)
        flow.acked += 1
        new += 1
    before = flow.una
    while flow.una < flow.count and s.segments[flow.block + flow.una] & ACKED:
        flow.una += 1
    if flow.una == flow.count:
        flow.done = 1
        flow.completed_at = s.clock[0].now
        s.clock[0].unfinished -= 1
        return_block(s, f)
        return
    if transport.fast:
        _judge(s, f, new, before, packet.echo)
    else:
        moved = bytes_before(s, f, flow.una) - bytes_before(s, f, before)
        if transport.ecn == AT_EACH_MARK and packet.echo:
            flow.window = max(np.float64(MSS), (1.0 - flow.alpha / 2.0) * flow.window)
            flow.threshold = flow.window
        for _ in range(new):
            if flow.window < flow.threshold:
                flow.window += MSS
            else:
                flow.window += MSS * MSS / (2.0 * flow.window)
        if transport.ecn == AT_EACH_MARK:
            _weigh_marks(s, f, moved, packet.echo)
    send_pending(s, f)


@inlined
def _weigh_marks(s, f, moved, echo):
    """Netbench's account of marks: in bytes by which the window moved."""
    flow = s.flows[f]
    flow.total_bytes += moved
    if echo:
        flow.marked_bytes += moved
    if flow.total_bytes >= flow.alpha_bytes:
        if flow.total_bytes > 0:
            share = np.float64(flow.marked_bytes) / np.float64(flow.total_bytes)
            flow.alpha = 0.9375 * flow.alpha + 0.0625 * share
        else:
            flow.alpha = 0.0
        flow.total_bytes = 0
        flow.marked_bytes = 0
        flow.alpha_bytes = np.int64(flow.window)


@inlined
def _judge(s, f, new, before, echo):
    """RFC 8257's account of marks; RFC 6675's of losses: three later segments have arrived."""
    flow, now = s.flows[f], s.clock[0].now
    flow.total_bytes += new * MSS
    if echo:
        flow.marked_bytes += new * MSS
    if flow.una >= flow.alpha_at and flow.total_bytes > 0:  # a window has passed
        share = np.float64(flow.marked_bytes) / np.float64(flow.total_bytes)
        flow.alpha = 0.9375 * flow.alpha + 0.0625 * share
        flow.total_bytes = 0
        flow.marked_bytes = 0
        flow.alpha_at = flow.next
    if flow.recovering and flow.una >= flow.recover:
        flow.recovering = 0
    under_way = flow.next - flow.acked + new
    growing = not flow.recovering and not echo and 2.0 * under_way * MSS >= flow.window
    if s.transports[flow.transport].ecn == ONCE_A_WINDOW and echo and flow.una >= flow.cut_at:
        flow.window = max(2.0 * MSS, (1.0 - flow.alpha / 2.0) * flow.window)
        flow.threshold = flow.window
        flow.cut_at = flow.next
    found = False
    while flow.judged + _DUPLICATES <= flow.high:
        if not s.segments[flow.block + flow.judged] & ACKED:
            s.segments[flow.block + flow.judged] |= LOST
            flow.lost += 1
            flow.resend = min(flow.resend, flow.judged)
            found = True
        flow.judged += 1
    if found and not flow.recovering:
        flow.recovering = 1
        flow.recover = flow.next
        flow.window = max(2.0 * MSS, flow.window / 2)
        flow.threshold = flow.window
        flow.cut_at = flow.next
    elif growing:
        for _ in range(new):
            if flow.window < flow.threshold:
                flow.window += MSS
            else:
                flow.window += MSS * MSS / flow.window
    if flow.acked == flow.next:
        flow.timer = NONE
    elif flow.una > before:
        arm(s, f, now + flow.timeout)


@inlined
def _time_out(s, f):
    """All that is under way is taken for lost (RFC 6298); the timeout doubles."""
    flow = s.flows[f]
    flow.timeouts += 1
    under_way = flow.next - flow.acked - flow.lost
    flow.threshold = max(2.0 * MSS, under_way * MSS / 2.0)
    flow.window = np.float64(MSS)
    flow.timeout = 2 * flow.timeout
    for segment in range(flow.una, flow.next):
        bits = s.segments[flow.block + segment]
        if not bits & (ACKED | LOST):
            s.segments[flow.block + segment] = bits | LOST
            flow.lost += 1
    flow.judged = flow.next
    flow.resend = flow.una
    flow.recovering = 0
    flow.recover = flow.next
    flow.cut_at = flow.next
    arm(s, f, s.clock[0].now + flow.timeout)
    send_pending(s, f)
