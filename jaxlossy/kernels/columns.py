"""Sums over the columns of matrices, and their columns scaled and added."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from jaxlossy.jit import entry
from jaxlossy.kernels.registers import FLOAT_BYTES, LANES, Registers, long

#: Rows whose sums run side by side, so that an addition need not wait for the one before.
AT_ONCE = 4


@entry
def sums(x, y, rows, columns, of_y, of_product):
    """Of matrices x and y, the sums over rows of y and of x y, into rows of as many columns."""
    _emit_sums(x, y, rows, columns, of_y, of_product)


@entry
def combine(x, y, of_x, of_y, start, z, rows, columns):
    """``z = of_x x + of_y y + start`` of matrices, with factors that are the same in all rows."""
    _emit_combine(x, y, of_x, of_y, start, z, rows, columns)


@intrinsic
def _emit_sums(typing_context, x, y, rows, columns, of_y, of_product):
    def emit(context, builder, signature, arguments):
        _write_sums(Registers(builder), *arguments)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


@intrinsic
def _emit_combine(typing_context, x, y, of_x, of_y, start, z, rows, columns):
    def emit(context, builder, signature, arguments):
        _write_combine(Registers(builder), *arguments)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), emit


def _write_sums(write: Registers, x: Any, y: Any, rows: Any, columns: Any, *results: Any) -> None:
    builder, one = write.builder, write.constant(1.0)
    step = builder.mul(columns, long(FLOAT_BYTES))

    def panel(column, mask):
        parts = [(write.variable(), write.variable()) for _ in range(AT_ONCE)]

        def add(row, count):
            for i, (total, product) in enumerate(parts[:count]):
                place = write.floats(write.at(long(0), step, builder.add(row, long(i))), column)
                right = write.load(builder.add(y, place), mask)
                write.add_product(total, right, one)
                write.add_product(product, write.load(builder.add(x, place), mask), right)

        done = write.for_each(AT_ONCE, long(0), rows, lambda row: add(row, AT_ONCE))
        write.for_each(1, done, rows, lambda row: add(row, 1))
        for result, (first, *others) in zip(results, zip(*parts, strict=True), strict=True):
            for other in others:
                write.add_product(first, builder.load(other), one)
            write.store(builder.load(first), write.floats(result, column), mask)

    _for_panels(write, columns, panel)


def _write_combine(write: Registers, x, y, of_x, of_y, start, z, rows, columns) -> None:
    builder = write.builder
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

    _for_panels(write, columns, panel)


def _for_panels(write: Registers, columns: Any, panel: Any) -> None:
    """Runs ``panel(column, mask)`` for every register that a row fills, then for what is left."""
    column = write.for_each(LANES, long(0), columns, lambda column: panel(column, None))
    left = write.builder.sub(columns, column)
    with write.builder.if_then(write.builder.icmp_signed(">", left, long(0))):
        panel(column, write.first_lanes(left))
