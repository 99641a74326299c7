"""The loop: one event after the other, until there is none or something has to be made larger."""

import numpy as np

from jaxlossy.jit import entry, inlined
from jaxlossy.netsim import reliable, unreliable
from jaxlossy.netsim.events import (
    drop_far,
    drop_near,
    find_far_time,
    next_near,
    ring_is_next,
    unload,
)
from jaxlossy.netsim.ports import enter, finish
from jaxlossy.netsim.senders import TICK
from jaxlossy.netsim.state import DATA, MSS, NIL, NONE, release_packet, size_class

#: Why `run` came back.
FINISHED, PAUSED, NEEDS_PACKETS, NEEDS_EVENTS, NEEDS_SEGMENTS = range(5)


@entry
def run(s, events):
    """Handles at most so many events. Returns FINISHED, PAUSED, or which store is too small.

    Any of them leaves the simulation between two events; calling again goes on.
    """
    clock = s.clock[0]
    ports = len(s.ports)
    first_packet = ports + len(s.flows)  # among near events
    last = clock.events + events
    find_far_time(s)
    while True:
        if clock.events == last:
            return PAUSED
        if clock.far_count + 4 > len(s.heap):
            return NEEDS_EVENTS
        time = min(clock.near_time, clock.far_time)
        if time > clock.until:
            return FINISHED
        clock.now = time
        p, flow, number = NIL, NIL, NONE  # a packet that has come to its end, or what a flow does
        is_near = time < clock.far_time
        from_ring = False
        if is_near:
            event = next_near(s)
            if event < ports:
                clock.events += 1
                drop_near(s)
                finish(s, event)
                continue
            if event < first_packet:
                flow, number = np.uint32(event - ports), np.int64(TICK)
            else:
                p = np.uint32(event - first_packet)
                packet = s.packets[p]
                if s.routes[np.uint32(packet.place + 1)] != NIL:
                    clock.events += 1
                    drop_near(s)
                    packet.place += 1
                    enter(s, p)
                    continue
                flow = packet.flow
        elif _flow_starts(s):
            flow = s.starts[clock.started]
        else:
            from_ring = ring_is_next(s)
            ahead = s.ring[np.uint32(clock.ring_first)] if from_ring else s.heap[0]
            flow, number = ahead.flow, np.int64(ahead.number)
            if flow == NIL:
                unload(s)
                find_far_time(s)
                continue

        store = _lacks(s, flow, p, is_near or number != NONE)
        if store != FINISHED:
            return store
        clock.events += 1
        if is_near:
            drop_near(s)
        else:
            if number != NONE:
                drop_far(s, from_ring)
            else:
                clock.started += 1
            find_far_time(s)

        is_reliable = s.transports[s.flows[flow].transport].reliable
        if p != NIL:
            clock.arrived += 1
            s.flows[flow].arrived += 1
            if is_reliable:
                reliable.receive(s, p)
            else:
                unreliable.receive(s, p)
            release_packet(s, p)
            if clock.unfinished == 0 and clock.stop_when_complete:
                return FINISHED
        elif number == NONE:
            if is_reliable:
                reliable.start(s, flow)
            else:
                unreliable.start(s, flow)
        elif is_reliable:
            reliable.expire(s, flow, number)
        else:
            unreliable.expire(s, flow, number)
        while clock.outbox_first != NIL:
            p = clock.outbox_first
            clock.outbox_first = s.packets[p].next
            enter(s, p)


@inlined
def _flow_starts(s):
    clock = s.clock[0]
    if clock.started == len(s.starts):
        return False
    return s.flows[s.starts[clock.started]].start == clock.now


@inlined
def _lacks(s, f, p, started):
    """Which store is too small for all that an event of a flow may add to it."""
    clock, flow = s.clock[0], s.flows[f]
    need = 8
    if p == NIL or s.packets[p].kind != DATA:
        need += 2 * (np.int64(flow.window) // MSS)  # a window of new packets, and their timers
    if clock.free_count < need:
        return NEEDS_PACKETS
    if clock.far_count + need > len(s.heap) or clock.ring_count + need > len(s.ring):
        return NEEDS_EVENTS
    if not started:
        i = size_class(flow.count)
        if s.free_blocks[i] == NONE and clock.blocks_end + (1 << i) > len(s.log):
            return NEEDS_SEGMENTS
    return FINISHED


@entry
def count_under_way(s, counts):
    """Adds the packets of each flow that are in a port or on a link to ``counts``."""
    ports = len(s.ports)
    first_packet = ports + len(s.flows)
    for link in range(ports):
        if s.ports[link].sending != NIL:
            counts[s.packets[s.ports[link].sending].flow] += 1
        for q in range(2):
            p = s.queues[2 * link + q].first
            while p != NIL:
                counts[s.packets[p].flow] += 1
                p = s.packets[p].next
    for slot in range(len(s.wheel)):
        event = s.wheel[slot].first
        while event != NIL:
            if event >= first_packet:
                counts[s.packets[event - first_packet].flow] += 1
            event = s.follower[event]
    for i in range(s.clock[0].far_count):
        if s.heap[i].flow == NIL and s.heap[i].number >= first_packet:
            counts[s.packets[s.heap[i].number - first_packet].flow] += 1
