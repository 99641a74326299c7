"""What happens when: a wheel for near events, a heap and a ring for far ones.

At equal times flow starts come first, then far events in the order of their creation, then near
ones, first in, first out. That is the order of creation of all of them, and no near event needs a
number: a wheel has one queue for each ns ahead.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from jaxlossy.jit import inlined
from jaxlossy.netsim.state import NEVER, NIL

_BEFORE_NEAR = 1 << 61  # orders above are near events from beyond the wheel


@intrinsic
def _lowest_bit(context, word):
    del context, word

    def generate(context, builder, signature, args):
        del context, signature
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@inlined
def lowest_bit(word):
    """The position of the lowest bit of a word that has one."""
    return _lowest_bit(word)  # pyright: ignore[reportCallIssue]


@inlined
def add_near(s, delay, event):
    """Lets a transmission end, or a packet arrive, ``delay`` ns from now."""
    clock = s.clock[0]
    if delay > len(s.wheel) - 64:  # earlier in the making than all that the wheel will have then
        clock.created += 1
        _push(s, clock.now + delay, clock.created + _BEFORE_NEAR, NIL, event)
        return
    slot = np.uint32((clock.now + delay) & (len(s.wheel) - 1))
    queue = s.wheel[slot]
    clock.near_time = min(clock.near_time, clock.now + delay)
    s.follower[event] = NIL
    if queue.first == NIL:
        queue.first = event
        _mark(s, slot)
    else:
        s.follower[queue.last] = event
    queue.last = event
    clock.near_count += 1


@inlined
def _mark(s, slot):
    word = slot >> np.uint32(6)
    s.occupied[word] |= np.uint64(1) << np.uint64(slot & 63)
    s.occupied_words[word >> np.uint32(6)] |= np.uint64(1) << np.uint64(word & 63)


@inlined
def next_near(s):
    """The first event of this ns, or NIL."""
    return s.wheel[np.uint32(s.clock[0].now & (len(s.wheel) - 1))].first


@inlined
def drop_near(s):
    """Takes the first event of this ns off the wheel, and finds out when the next one is.

    Which can be done while the event is handled: what that adds is at most earlier.
    """
    clock = s.clock[0]
    clock.near_count -= 1
    slot = np.uint32(clock.now & (len(s.wheel) - 1))
    queue = s.wheel[slot]
    queue.first = s.follower[queue.first]
    if queue.first != NIL:
        return
    word = slot >> np.uint32(6)
    s.occupied[word] &= ~(np.uint64(1) << np.uint64(slot & 63))
    empty = np.uint64(s.occupied[word] == 0)
    s.occupied_words[word >> np.uint32(6)] &= ~(empty << np.uint64(word & 63))
    clock.near_time = _find_near_time(s) if clock.near_count else NEVER


@inlined
def _find_near_time(s):
    time = s.clock[0].now & ~63  # what was before in this word is gone, and its next turn far ahead
    mask = len(s.occupied) - 1
    word = np.uint32((time >> 6) & mask)
    words = s.occupied_words[word >> np.uint32(6)] >> np.uint64(word & 63)
    step = 64 - (word & 63)
    while not words:
        time += 64 * step
        word = np.uint32((word + step) & mask)
        words = s.occupied_words[word >> np.uint32(6)]
        step = 64
    ahead = lowest_bit(words)
    bits = s.occupied[np.uint32((word + ahead) & mask)]
    return time + 64 * ahead + lowest_bit(bits)


@inlined
def add_far(s, time, flow, number):
    """Lets a flow do something at a time: what, its transport knows by the number.

    Most are timers, all as long after now; those make a queue of their own, which costs nothing to
    keep in order.
    """
    clock = s.clock[0]
    clock.created += 1
    mask = len(s.ring) - 1
    last = s.ring[np.uint32((clock.ring_first + clock.ring_count - 1) & mask)]
    if time - clock.now <= clock.ring_delay and (clock.ring_count == 0 or last.time <= time):
        event = s.ring[np.uint32((clock.ring_first + clock.ring_count) & mask)]
        event.time, event.order = time, clock.created
        event.flow, event.number = flow, number
        clock.ring_count += 1
    else:
        _push(s, time, clock.created, flow, number)
    clock.far_time = min(clock.far_time, time)


@inlined
def _push(s, time, order, flow, number):
    clock = s.clock[0]
    heap = s.heap
    i = clock.far_count
    clock.far_count += 1
    while i > 0:
        above = (i - 1) >> 1
        if heap[above].time < time or (heap[above].time == time and heap[above].order < order):
            break
        heap[i] = heap[above]
        i = above
    heap[i].time, heap[i].order = time, order
    heap[i].flow, heap[i].number = flow, number
    clock.far_time = min(clock.far_time, time)


@inlined
def ring_is_next(s):
    """Whether the ring has the next of all far events; there is one."""
    clock = s.clock[0]
    if clock.ring_count == 0:
        return False
    if clock.far_count == 0:
        return True
    ring, heap = s.ring[clock.ring_first], s.heap[0]
    return ring.time < heap.time or (ring.time == heap.time and ring.order < heap.order)


@inlined
def drop_far(s, from_ring):
    """Takes the next far event off the ring or the heap."""
    clock = s.clock[0]
    if from_ring:
        clock.ring_first = (clock.ring_first + 1) & (len(s.ring) - 1)
        clock.ring_count -= 1
        return
    heap = s.heap
    clock.far_count -= 1
    size = clock.far_count
    time, order = heap[size].time, heap[size].order
    i = 0
    while True:
        below = 2 * i + 1
        if below >= size:
            break
        left, right = heap[below], heap[below + 1]
        if below + 1 < size and (
            right.time < left.time or (right.time == left.time and right.order < left.order)
        ):
            below += 1
        if time < heap[below].time or (time == heap[below].time and order < heap[below].order):
            break
        heap[i] = heap[below]
        i = below
    heap[i] = heap[size]


@inlined
def unload(s):
    """Moves the near events of this ns that were beyond the wheel to the front of their slot."""
    clock = s.clock[0]
    slot = np.uint32(clock.now & (len(s.wheel) - 1))
    queue = s.wheel[slot]
    first, rest_first, rest_last = NIL, queue.first, queue.last
    if first == rest_first:
        _mark(s, slot)
    while clock.far_count and s.heap[0].time == clock.now:  # older ones have been dropped
        event = np.uint32(s.heap[0].number)
        drop_far(s, False)
        clock.near_count += 1
        s.follower[event] = NIL
        if first == NIL:
            first = event
            queue.first = event
        else:
            s.follower[queue.last] = event
        queue.last = event
    if rest_first != NIL:
        s.follower[queue.last] = rest_first
        queue.last = rest_last
    clock.near_time = clock.now


@inlined
def find_far_time(s):
    """Works out when the next flow starts or far event is."""
    clock = s.clock[0]
    time = NEVER
    if clock.started < len(s.starts):
        time = s.flows[s.starts[clock.started]].start
    if clock.ring_count:
        time = min(time, s.ring[clock.ring_first].time)
    if clock.far_count:
        time = min(time, s.heap[0].time)
    clock.far_time = time
