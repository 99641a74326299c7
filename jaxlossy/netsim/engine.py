"""The loop: one event after the other, until there is none or something has to be made larger."""

import numpy as np

from jaxlossy.netsim import reliable, unreliable
from jaxlossy.netsim.events import (
    drop_far,
    drop_near,
    find_far_time,
    next_near,
    ring_is_next,
)
from jaxlossy.netsim.jit import entry, inlined
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
        far, from_ring = time == clock.far_time, False
        flow, number, event = NIL, NONE, NIL
        if not far:
            event = next_near(s)
        elif _flow_starts(s):
            flow = s.starts[clock.started]
        else:
            from_ring = ring_is_next(s)
            if from_ring:
                flow, number = s.ring[clock.ring_first].flow, s.ring[clock.ring_first].number
            else:
                flow, number = s.heap[0].flow, s.heap[0].number
            if flow == NIL:  # a near event from beyond the wheel
                event = np.uint32(number)
        starting = flow != NIL and number == NONE

        if event < ports and not far:  # half of all events
            clock.events += 1
            drop_near(s)
            finish(s, event)
            continue

        # Whether there is room for whatever the event may lead to.
        p = np.uint32(event - first_packet)  # if a packet arrives
        if event != NIL and ports <= event < first_packet:
            flow, number, event = np.uint32(event - ports), np.int64(TICK), NIL
        if event == NIL or (
            event >= first_packet and s.routes[np.uint32(s.packets[p].place + 1)] == NIL
        ):
            if event == NIL:
                store = _lacks(s, flow, True, starting)
            else:
                store = _lacks(s, s.packets[p].flow, s.packets[p].kind != DATA, False)
            if store != FINISHED:
                return store

        clock.events += 1
        if not far:
            drop_near(s)
        elif starting:
            clock.started += 1
            find_far_time(s)
        else:
            drop_far(s, from_ring)
            find_far_time(s)

        leaving = NIL  # packets that enter a port now
        if event == NIL:
            is_reliable = s.transports[s.flows[flow].transport].reliable
            if starting:
                if is_reliable:
                    reliable.start(s, flow)
                else:
                    unreliable.start(s, flow)
            elif is_reliable:
                reliable.expire(s, flow, number)
            else:
                unreliable.expire(s, flow, number)
        elif event < ports:
            finish(s, event)
        else:
            packet = s.packets[p]
            packet.place += 1
            if s.routes[packet.place] != NIL:
                packet.next = NIL
                leaving = p
            else:
                clock.arrived += 1
                s.flows[packet.flow].arrived += 1
                if s.transports[s.flows[packet.flow].transport].reliable:
                    reliable.receive(s, p)
                    if clock.unfinished == 0 and clock.stop_when_complete:
                        release_packet(s, p)
                        return FINISHED
                else:
                    unreliable.receive(s, p)
                release_packet(s, p)
        if leaving == NIL:
            leaving = clock.outbox_first
            clock.outbox_first = NIL
        while leaving != NIL:
            p = leaving
            leaving = s.packets[p].next
            enter(s, p)


@inlined
def _flow_starts(s):
    clock = s.clock[0]
    if clock.started == len(s.starts):
        return False
    return s.flows[s.starts[clock.started]].start == clock.now


@inlined
def _lacks(s, f, sender, starting):
    """Which store is too small for all that an event of a flow may add to it."""
    clock, flow = s.clock[0], s.flows[f]
    need = 8
    if sender:
        need += 2 * (np.int64(flow.window) // MSS)  # a window of new packets, and their timers
    if clock.free_count < need:
        return NEEDS_PACKETS
    if clock.far_count + need > len(s.heap) or clock.ring_count + need > len(s.ring):
        return NEEDS_EVENTS
    if starting:
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
