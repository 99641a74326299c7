"""The innermost loops of products and convolutions on CPUs: tiles of the result in registers.

XLA multiplies one large matrix well, but a replica's are small, and there are thousands of them.
Here the numbers of a tile stay in vector registers while the sum over the inner axes runs.
"""

from typing import Any, NamedTuple

from numba import types

from jaxlossy.jit import apart, emitted, inlined
from jaxlossy.kernels.registers import FLOAT_BYTES, LANES, REGISTERS, Registers, long

#: Tiles: registers wide, to rows. With a row of the right factor and a number of the left they fill
#: the registers. Smaller ones are for what is left at an edge.
TILES = {2: (4, 2, 1), 1: (8, 4, 2, 1)}
if REGISTERS == 32:
    TILES = {4: (4, 2, 1), 2: (8, 4, 2, 1), 1: (16, 8, 4, 2, 1)}

#: Sums that an addition to one of them need not wait for, so that one can begin at any time.
SUMS = 8

_ARGUMENTS = [types.int64] * 14


@inlined
def multiply(a, b, c, start, shape, outer):
    """``c = start + sum of a b`` for matrices of float32.

    A matrix is the address of its first number, and the bytes from one row to the next; in a row,
    numbers follow each other. The start may be c itself, to add to it, a single row over and over
    (a step of 0), or nothing (an address of 0).

    Args:
      shape: rows and columns of c, and the inner axis of the sum, which a has columns for.
      outer: how often that again, and how many bytes further in a and in b every time.
    """
    _multiply(*(a + b + c + start + shape + outer))


@inlined
def multiply_left_transposed(a, b, c, start, shape, outer):
    """The same for ``c = start + sum of a' b``: a has rows for the inner axis."""
    _multiply_left_transposed(*(a + b + c + start + shape + outer))


@inlined
def multiply_right_transposed(a, b, c, start, shape, outer):
    """The same for ``c = start + sum of a b'``: b has columns for the inner axis."""
    _multiply_right_transposed(*(a + b + c + start + shape + outer))


_NUMBER = long(FLOAT_BYTES)


@emitted(types.void, *_ARGUMENTS)
def _product(builder, a, a_step, b, b_step, *others):
    _write_panels(Registers(builder), _Product(a, a_step, _NUMBER, b, b_step, _NUMBER, *others))


@emitted(types.void, *_ARGUMENTS)
def _left_transposed(builder, a, a_step, b, b_step, *others):
    _write_panels(Registers(builder), _Product(a, _NUMBER, a_step, b, b_step, _NUMBER, *others))


@emitted(types.void, *_ARGUMENTS)
def _right_transposed(builder, a, a_step, b, b_step, *others):
    _write_panels(Registers(builder), _Product(a, a_step, _NUMBER, b, _NUMBER, b_step, *others))


# numba asks for every argument by name.
@apart(*_ARGUMENTS)
def _multiply(a, a_step, b, b_step, c, c_step, d, d_step, m, n, k, outer, a_outer, b_outer):
    _product(a, a_step, b, b_step, c, c_step, d, d_step, m, n, k, outer, a_outer, b_outer)


@apart(*_ARGUMENTS)
def _multiply_left_transposed(
    a, a_step, b, b_step, c, c_step, d, d_step, m, n, k, outer, a_outer, b_outer
):
    _left_transposed(a, a_step, b, b_step, c, c_step, d, d_step, m, n, k, outer, a_outer, b_outer)


@apart(*_ARGUMENTS)
def _multiply_right_transposed(
    a, a_step, b, b_step, c, c_step, d, d_step, m, n, k, outer, a_outer, b_outer
):
    _right_transposed(a, a_step, b, b_step, c, c_step, d, d_step, m, n, k, outer, a_outer, b_outer)


class _Product(NamedTuple):
    """A product's arguments. Of a and b: the bytes along an axis of c, and along the inner axis."""

    a: Any
    a_down: Any
    a_along: Any
    b: Any
    b_along: Any
    b_across: Any
    c: Any
    c_step: Any
    start: Any
    start_step: Any
    rows: Any
    columns: Any
    inner: Any
    outer: Any
    a_outer: Any
    b_outer: Any


def _write_panels(write: Registers, product: _Product) -> None:
    """Panels of columns, as wide as they fit; in each, tiles of rows."""

    def panel(column, width, mask=None):
        row: Any = long(0)
        for rows in TILES[width]:

            def tile(row, rows=rows):
                _write_tile(write, product, row, column, (rows, width), mask)

            row = write.for_each(rows, row, product.rows, tile)

    column: Any = long(0)
    # Registers filled from all over memory are dear: each serves as many rows as there can be.
    for width in TILES if product.b_across is _NUMBER else [1]:

        def whole(column, width=width):
            panel(column, width)

        column = write.for_each(width * LANES, column, product.columns, whole)
    write.if_any_left(column, product.columns, lambda mask: panel(column, 1, mask))


def _write_tile(write, product, row, column, shape, mask) -> None:
    builder, (rows, width) = write.builder, shape
    # Each addition waits for the one before, so a small tile has several sums that take turns.
    turns = max(1, SUMS // (rows * width))
    tiles = [[[write.variable() for _ in range(width)] for _ in range(rows)] for _ in range(turns)]

    def places(base, step):
        """The variables of the tile, and where in a matrix they belong."""
        base = write.floats(write.at(base, step, row), column)
        for i, line in enumerate(tiles[0]):
            for j, total in enumerate(line):
                yield total, write.floats(write.at(base, step, long(i)), long(j * LANES))

    with builder.if_then(builder.icmp_signed("!=", product.start, long(0))):
        for total, address in places(product.start, product.start_step):
            builder.store(write.load(address, mask), total)
    a, b = write.at(product.a, product.a_down, row), write.at(product.b, product.b_across, column)
    with write.repeat(product.outer) as outer:
        a, b = write.at(a, product.a_outer, outer), write.at(b, product.b_outer, outer)

        def add(inner, tile):
            left, above = write.at(a, product.a_along, inner), write.at(b, product.b_along, inner)
            if product.b_across is _NUMBER:
                right = [
                    write.load(write.floats(above, long(j * LANES)), mask) for j in range(width)
                ]
            else:
                right = [write.gather(above, product.b_across, mask)]
            for i, line in enumerate(tile):
                number = write.broadcast(write.at(left, product.a_down, long(i)))
                for total, factor in zip(line, right, strict=True):
                    write.add_product(total, number, factor)

        def in_turns(inner):
            for turn, tile in enumerate(tiles):
                add(builder.add(inner, long(turn)), tile)

        done = write.for_each(turns, long(0), product.inner, in_turns)
        if turns > 1:
            write.for_each(1, done, product.inner, lambda inner: add(inner, tiles[0]))
    for line, *others in zip(*tiles, strict=True):
        for total, *parts in zip(line, *others, strict=True):
            for part in parts:
                write.add(total, builder.load(part))
    for total, address in places(product.c, product.c_step):
        write.store(builder.load(total), address, mask)
