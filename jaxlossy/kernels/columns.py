"""Sums over the columns of matrices, and their columns scaled and added."""

from numba import types

from jaxlossy.jit import apart, emitted
from jaxlossy.kernels.registers import FLOAT_BYTES, Registers, long

#: Rows whose sums run side by side, so that an addition need not wait for the one before.
AT_ONCE = 4


@apart(*[types.int64] * 6)
def sums(x, y, rows, columns, of_y, of_product):
    """Of matrices x and y, the sums over rows of y and of x y, into rows of as many columns."""
    _sums(x, y, rows, columns, of_y, of_product)


@apart(*[types.int64] * 8)
def combine(x, y, of_x, of_y, start, z, rows, columns):
    """``z = of_x x + of_y y + start`` of matrices, with factors that are the same in all rows."""
    _combine(x, y, of_x, of_y, start, z, rows, columns)


@emitted(types.void, *[types.int64] * 6)
def _sums(builder, x, y, rows, columns, *results):
    write = Registers(builder)
    step = builder.mul(columns, long(FLOAT_BYTES))

    def panel(column, mask):
        parts = [(write.variable(), write.variable()) for _ in range(AT_ONCE)]

        def add(row, count):
            for i, (total, product) in enumerate(parts[:count]):
                place = write.floats(write.at(long(0), step, builder.add(row, long(i))), column)
                right = write.load(builder.add(y, place), mask)
                write.add(total, right)
                write.add_product(product, write.load(builder.add(x, place), mask), right)

        done = write.for_each(AT_ONCE, long(0), rows, lambda row: add(row, AT_ONCE))
        write.for_each(1, done, rows, lambda row: add(row, 1))
        for result, (first, *others) in zip(results, zip(*parts, strict=True), strict=True):
            for other in others:
                write.add(first, builder.load(other))
            write.store(builder.load(first), write.floats(result, column), mask)

    write.for_registers(long(0), columns, panel)


@emitted(types.void, *[types.int64] * 8)
def _combine(builder, x, y, of_x, of_y, start, z, rows, columns):
    write = Registers(builder)
    step = builder.mul(columns, long(FLOAT_BYTES))

    def panel(column, mask):
        factors = [write.load(write.floats(place, column), mask) for place in (of_x, of_y)]
        first = write.load(write.floats(start, column), mask)
        with write.repeat(rows) as row:
            place, total = write.floats(write.at(long(0), step, row), column), write.variable()
            builder.store(first, total)
            for base, factor in zip((x, y), factors, strict=True):
                write.add_product(total, write.load(builder.add(base, place), mask), factor)
            write.store(builder.load(total), builder.add(z, place), mask)

    write.for_registers(long(0), columns, panel)
