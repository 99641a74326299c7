"""Transports that let go: paced packets without a handshake, of the lossy class.

Every packet leaves once, on its time. What comes after depends on the transport:

- *lossy*: nothing; what is lost is lost. With a deadline, the sender stops then, and what arrives
  later counts as lost.
- *bounded*: the receiver acknowledges every packet, in the reliable class, with all that has
  arrived so far. Once all packets have left, the sender goes on with those that are missing, until
  it knows that enough have arrived; the flow is complete when they have. Paths keep packets in
  order, so one is missing if it left before another that was acknowledged; or, at the end, when a
  timeout has passed.

With rate control, the rate of all that a node sends follows the loss that it sees. Whenever 32
packets more have been acknowledged or found missing, the rate grows by a 16th of the full one and
is multiplied by 1 - excess / 2, where excess is by how much the part that is missing is above what
is allowed. So it settles at the full rate up to an excess of 1/8, and at 1 / (8 excess) of it
above; at a quarter at least, since not all loss is of the sender's own making. It lasts from one
message to the next.
"""

import numpy as np

from jaxlossy.jit import inlined
from jaxlossy.netsim.events import add_far
from jaxlossy.netsim.senders import (
    CLEAN,
    TICK,
    TIMER,
    arm,
    count_arrival,
    first_release,
    is_due,
    measure_round_trip,
    plan_tick,
    send_ack,
    send_data,
    take_segment,
)
from jaxlossy.netsim.state import ACKED, DATA, NONE, return_block, take_block

_SAMPLE = 32  # packets between two decisions about the rate
_SLOWEST = 1 / 4


@inlined
def start(s, f):
    transport = s.transports[s.flows[f].transport]
    if transport.feedback:
        take_block(s, f)
        s.flows[f].timeout = transport.min_timeout_ns
    plan_tick(s, f, first_release(s, f), 0)


@inlined
def receive(s, p):
    """A packet has reached the end of its path: data, or an acknowledgment."""
    packet = s.packets[p]
    f = packet.flow
    flow, now = s.flows[f], s.clock[0].now
    transport = s.transports[flow.transport]
    if packet.kind != DATA:
        if not flow.done:
            _acknowledge(s, f, p)
    elif transport.deadline_ns and now > flow.start + transport.deadline_ns:
        flow.data_arrived += 1
    elif not transport.feedback:
        flow.data_arrived += 1
        count_arrival(s, f, packet.number)
        _complete(s, f)
    elif flow.block == NONE:
        flow.data_arrived += 1
    else:
        if take_segment(s, f, packet.number):
            _complete(s, f)
        send_ack(s, f, p)


@inlined
def expire(s, f, number):
    """A far event of the flow."""
    flow, now = s.flows[f], s.clock[0].now
    transport = s.transports[flow.transport]
    if number == CLEAN:
        if flow.packets_sent == flow.data_arrived + flow.data_dropped:
            return_block(s, f)
            flow.block = NONE
        else:
            add_far(s, now + transport.min_timeout_ns, f, CLEAN)
    elif flow.done:
        return
    elif number == TICK:
        flow.waiting = 0
        if transport.deadline_ns and now >= flow.start + transport.deadline_ns:
            _stop(s, f)
        else:
            _send_one(s, f)
    elif number == TIMER and is_due(s, f) and not flow.waiting:
        flow.timeouts += 1
        flow.heard = now
        _send_one(s, f)


@inlined
def _complete(s, f):
    flow = s.flows[f]
    if flow.packets_received == flow.needed:
        flow.completed_at = s.clock[0].now


@inlined
def _stop(s, f):
    """The sender is done; the receiver's memory stays until nothing is under way any more."""
    flow = s.flows[f]
    transport = s.transports[flow.transport]
    flow.done = 1
    if transport.feedback:
        add_far(s, s.clock[0].now + transport.min_timeout_ns, f, CLEAN)


@inlined
def _send_one(s, f):
    """Sends the next packet, or one that is missing, and plans the one after."""
    flow, now = s.flows[f], s.clock[0].now
    transport = s.transports[flow.transport]
    if flow.next < flow.count:
        segment = np.int64(flow.next)
        flow.next += 1
    else:
        segment = _missing(s, f)
        if segment == NONE:  # all are on their way; the timer says when not to believe it any more
            if flow.timer == NONE:
                arm(s, f, now + flow.timeout)
            return
        flow.resend = (segment + 1) % flow.count
    if transport.feedback:
        s.sent_at[flow.block + segment] = now
        arm(s, f, now + flow.timeout)
    send_data(s, f, segment)
    if flow.next < flow.count or transport.feedback:
        plan_tick(s, f, max(now, flow.released + _gap(s, f)), flow.packets_sent)


@inlined
def _missing(s, f):
    """A segment that left before one that has arrived and did not arrive itself, or NONE."""
    flow = s.flows[f]
    segment = np.int64(flow.resend)
    for _ in range(flow.count):
        at = flow.block + segment
        if not s.segments[at] & ACKED and s.sent_at[at] < flow.heard:
            return segment
        segment += 1
        if segment == flow.count:
            segment = np.int64(0)
    return np.int64(NONE)


@inlined
def _gap(s, f):
    flow = s.flows[f]
    transport = s.transports[flow.transport]
    if transport.rate_control:
        return np.int64(transport.gap_ns / s.hosts[flow.source].rate)
    return transport.gap_ns


@inlined
def _acknowledge(s, f, p):
    flow, packet, now = s.flows[f], s.packets[p], s.clock[0].now
    transport = s.transports[flow.transport]
    measure_round_trip(s, f, packet.created, 1.0)
    flow.heard = max(flow.heard, packet.created)
    while flow.acked < packet.number:
        segment = s.log[flow.block + flow.acked]
        s.segments[flow.block + segment] |= ACKED
        flow.high = max(flow.high, segment)
        flow.acked += 1
    if transport.rate_control:
        _judge(s, f)
    if flow.next == flow.count and flow.acked >= flow.needed:
        _stop(s, f)
    elif flow.next == flow.count and not flow.waiting and _missing(s, f) != NONE:
        plan_tick(s, f, max(now, flow.released + _gap(s, f)), flow.packets_sent)


@inlined
def _judge(s, f):
    """Counts what is newly known of packets' first journeys, and adapts the host's rate."""
    flow = s.flows[f]
    host = s.hosts[flow.source]
    while flow.judged <= flow.high:
        host.observed += 1
        if not s.segments[flow.block + flow.judged] & ACKED:
            host.lost += 1
        flow.judged += 1
    if host.observed >= _SAMPLE:
        excess = max(0.0, host.lost / host.observed - s.transports[flow.transport].loss)
        rate = (host.rate + 1.0 / 16) * (1.0 - excess / 2)
        host.rate = max(_SLOWEST, min(1.0, rate))
        host.observed = 0
        host.lost = 0
