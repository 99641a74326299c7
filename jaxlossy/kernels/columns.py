"""Sums over the columns of matrices, and their columns scaled and added; with ReLU if asked for.

Factors are rows: the same in all rows of a matrix.
"""

from llvmlite import ir
from numba import types

from jaxlossy.jit import apart, emitted
from jaxlossy.kernels.registers import Registers, long

#: Rows whose sums run side by side, so that an addition need not wait for the one before.
AT_ONCE = 4


@apart(*[types.int64] * 7)
def affine(x, slope, start, relu, z, rows, columns):
    """``z = slope x + start``, or where that is negative and ReLU asked for, 0."""
    _affine(x, slope, start, relu, z, rows, columns)


@apart(*[types.int64] * 9)
def sums(x, y, slope, start, relu, rows, columns, of_y, of_product):
    """The sums over rows of y and of x y, into rows of as many columns.

    Where ReLU made 0 of a negative ``slope x + start``, y counts as 0: it is a gradient.
    """
    _sums(x, y, slope, start, relu, rows, columns, of_y, of_product)


@apart(*[types.int64] * 11)
def combine(x, y, slope, start, relu, of_x, of_y, constant, z, rows, columns):
    """``z = of_x x + of_y y + constant``, where y counts as in ``sums``."""
    _combine(x, y, slope, start, relu, of_x, of_y, constant, z, rows, columns)


@emitted(types.void, *[types.int64] * 7)
def _affine(builder, x, slope, start, relu, z, rows, columns):
    write = Registers(builder)
    least = _least(write, relu)

    def panel(column, mask):
        factors = [write.load(write.floats(at, column), mask) for at in (slope, start)]
        with write.repeat(rows) as row:
            place = _place(write, row, columns, column)
            total = write.multiply_add(write.load(builder.add(x, place), mask), *factors)
            write.store(write.choose(total, ">", least, total, least), builder.add(z, place), mask)

    write.for_registers(long(0), columns, panel)


@emitted(types.void, *[types.int64] * 9)
def _sums(builder, x, y, slope, start, relu, rows, columns, *results):
    write = Registers(builder)

    def panel(column, mask):
        parts = [(write.variable(), write.variable()) for _ in range(AT_ONCE)]
        load_gradient = _load_gradient(write, slope, start, relu, column, mask)

        def add(row, count):
            for i, (total, product) in enumerate(parts[:count]):
                place = _place(write, builder.add(row, long(i)), columns, column)
                left = write.load(builder.add(x, place), mask)
                right = load_gradient(builder.add(y, place), left)
                write.add(total, right)
                write.add_product(product, left, right)

        done = write.for_each(AT_ONCE, long(0), rows, lambda row: add(row, AT_ONCE))
        write.for_each(1, done, rows, lambda row: add(row, 1))
        for result, (first, *others) in zip(results, zip(*parts, strict=True), strict=True):
            for other in others:
                write.add(first, builder.load(other))
            write.store(builder.load(first), write.floats(result, column), mask)

    write.for_registers(long(0), columns, panel)


@emitted(types.void, *[types.int64] * 11)
def _combine(builder, x, y, slope, start, relu, of_x, of_y, constant, z, rows, columns):
    write = Registers(builder)

    def panel(column, mask):
        load_gradient = _load_gradient(write, slope, start, relu, column, mask)
        factors = [write.load(write.floats(at, column), mask) for at in (of_x, of_y, constant)]
        with write.repeat(rows) as row:
            place = _place(write, row, columns, column)
            left = write.load(builder.add(x, place), mask)
            total = write.multiply_add(left, factors[0], factors[2])
            right = load_gradient(builder.add(y, place), left)
            total = write.multiply_add(right, factors[1], total)
            write.store(total, builder.add(z, place), mask)

    write.for_registers(long(0), columns, panel)


def _load_gradient(write, slope, start, relu, column, mask):
    """A function of an address in y and of x there."""
    least = _least(write, relu)
    factors = [write.load(write.floats(at, column), mask) for at in (slope, start)]

    def load(address, x):
        gradient = write.load(address, mask)
        return write.choose(write.multiply_add(x, *factors), ">", least, gradient, write.zeros)

    return load


def _least(write, relu):
    """What results are at least: 0, or without ReLU no number, which is in all relations."""
    zero, none = (ir.Constant(ir.FloatType(), value) for value in (0.0, float("nan")))
    has_relu = write.builder.icmp_signed("!=", relu, long(0))
    return write.everywhere(write.builder.select(has_relu, zero, none))


def _place(write, row, columns, column):
    return write.floats(write.at(long(0), write.floats(long(0), columns), row), column)
