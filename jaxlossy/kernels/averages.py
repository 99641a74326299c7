"""The average of what arrived, packet by packet, while all copies of one are in the cache."""

from llvmlite import ir
from numba import types

from jaxlossy.jit import apart, emitted
from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import FLOAT_BYTES, LANES, Registers, long

_ADDRESS_BYTES = 8


def average(frame):
    """In the place of rows (..., worker, packet x length), by masks (..., worker, packet).

    Masks are bytes: what arrived at the servers, and what comes back from them. Results: the rows,
    and room for two addresses a worker (..., 4 worker).
    """
    if xla.asks_metadata(frame):
        return 0
    up, down = xla.argument(frame, 1), xla.argument(frame, 2)
    result, room = xla.result(frame, 0), xla.result(frame, 1)
    workers, count = xla.size(up, -2), xla.size(up, -1)
    length = xla.size(result, -1) // count
    arrived, receivers = xla.data(room), xla.data(room) + _ADDRESS_BYTES * workers
    for i in range(xla.batch(result, 2)):
        first = xla.item(result, 2, i, result, 2)
        arrives = xla.data(up) + xla.place(up, 2, i, result, 2)
        returns = xla.data(down) + xla.place(down, 2, i, result, 2)
        for packet in range(count):
            num_arrived = num_receivers = 0
            for worker in range(workers):
                place = worker * count + packet
                address = first + FLOAT_BYTES * length * place
                if xla.get_byte(arrives, place):
                    xla.put_integer(arrived, num_arrived, address)
                    num_arrived += 1
                if xla.get_byte(returns, place):
                    xla.put_integer(receivers, num_receivers, address)
                    num_receivers += 1
            if num_arrived > 0:
                _average(arrived, num_arrived, receivers, num_receivers, length)
    return 0


@apart(*[types.int64] * 5)
def _average(arrived, num_arrived, receivers, num_receivers, length):
    _write_average(arrived, num_arrived, receivers, num_receivers, length)


@emitted(types.void, *[types.int64] * 5)
def _write_average(builder, arrived, num_arrived, receivers, num_receivers, length):
    write = Registers(builder)
    divisor = write.everywhere(builder.sitofp(num_arrived, ir.FloatType()))

    def panel(column, width, mask):
        sums = [write.variable() for _ in range(width)]

        def for_each_number(addresses, count, do):
            with write.repeat(count) as number:
                place = write.floats(write.address(addresses, number), column)
                for j, total in enumerate(sums):
                    do(total, write.floats(place, long(j * LANES)))

        for_each_number(
            arrived, num_arrived, lambda total, place: write.add(total, write.load(place, mask))
        )
        for total in sums:
            builder.store(builder.fdiv(builder.load(total), divisor), total)
        for_each_number(
            receivers,
            num_receivers,
            lambda total, place: write.store(builder.load(total), place, mask),
        )

    wide = 8  # registers side by side
    column = write.for_each(wide * LANES, long(0), length, lambda column: panel(column, wide, None))
    write.for_registers(column, length, lambda column, mask: panel(column, 1, mask))
