"""The innermost loops of products and convolutions on CPUs: tiles of the result in registers.

XLA multiplies one large matrix well, but a replica's are small, and there are thousands of them.
Here the numbers of a tile stay in vector registers while the sum over the inner axes runs.
"""

from typing import Any, NamedTuple

from numba import types
from numba.extending import intrinsic

from jaxlossy.jit import entry
from jaxlossy.kernels.registers import FLOAT_BYTES, LANES, REGISTERS, Registers, long

#: Tiles: registers wide, to rows. With a row of the right factor and a number of the left they fill
#: the registers. Smaller ones are for what is left at an edge.
TILES = {2: (4, 2, 1), 1: (8, 4, 2, 1)}
if REGISTERS == 32:
    TILES = {4: (4, 2, 1), 2: (8, 4, 2, 1), 1: (16, 8, 4, 2, 1)}


class _Product(NamedTuple):
    """What ``multiply`` takes, as LLVM has it."""

    a: Any
    a_step: Any
    b: Any
    b_step: Any
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


def _emitter(transposed: bool) -> Any:
    def emit_product(
        typing_context,
        a,
        a_step,
        b,
        b_step,
        c,
        c_step,
        start,
        start_step,
        rows,
        columns,
        inner,
        outer,
        a_outer,
        b_outer,
    ):
        def emit(context, builder, signature, arguments):
            _emit_panels(Registers(builder), _Product(*arguments), transposed)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 14), emit

    return intrinsic(emit_product)


_emit, _emit_transposed = _emitter(False), _emitter(True)


@entry
def multiply(
    a,
    a_step,
    b,
    b_step,
    c,
    c_step,
    start,
    start_step,
    rows,
    columns,
    inner,
    outer,
    a_outer,
    b_outer,
):
    """``c = start + sum of a b`` for matrices of float32, by the addresses of their first numbers.

    Every step is the bytes from one row to the next; in a row, numbers follow each other. The sum
    runs over the rows of b, which go with the columns of a, `inner` of them; and that again `outer`
    times, every time `a_outer` and `b_outer` bytes further. The start is c itself, to add to it, or
    has a step of 0, for a bias, or is the address 0, for none.
    """
    _emit(
        a, a_step, b, b_step, c, c_step, start, start_step,
        rows, columns, inner, outer, a_outer, b_outer,
    )  # fmt: skip


@entry
def multiply_transposed(
    a,
    a_step,
    b,
    b_step,
    c,
    c_step,
    start,
    start_step,
    rows,
    columns,
    inner,
    outer,
    a_outer,
    b_outer,
):
    """The same where the rows of b go with the rows of a: ``c = start + sum of a' b``."""
    _emit_transposed(
        a, a_step, b, b_step, c, c_step, start, start_step,
        rows, columns, inner, outer, a_outer, b_outer,
    )  # fmt: skip


def _emit_panels(write: Registers, product: _Product, transposed: bool) -> None:
    """Panels of columns, as wide as they fit; in each, tiles of rows."""

    def panel(column, width, mask=None):
        row: Any = long(0)
        for rows in TILES[width]:

            def tile(row, rows=rows):
                _emit_tile(write, product, transposed, row, column, (rows, width), mask)

            row = write.for_each(rows, row, product.rows, tile)

    column: Any = long(0)
    for width in TILES:

        def whole(column, width=width):
            panel(column, width)

        column = write.for_each(width * LANES, column, product.columns, whole)
    left = write.builder.sub(product.columns, column)
    with write.builder.if_then(write.builder.icmp_signed(">", left, long(0))):
        panel(column, 1, write.first_lanes(left))


def _emit_tile(write, product, transposed, row, column, shape, mask) -> None:
    builder, (rows, width) = write.builder, shape
    sums = [[write.variable() for _ in range(width)] for _ in range(rows)]

    def places(base, step):
        """A variable of the tile, and where in a matrix it belongs."""
        base = write.floats(write.at(base, step, row), column)
        for i, line in enumerate(sums):
            for j, total in enumerate(line):
                yield total, write.floats(write.at(base, step, long(i)), long(j * LANES))

    with builder.if_then(builder.icmp_signed("!=", product.start, long(0))):
        for total, address in places(product.start, product.start_step):
            builder.store(write.load(address, mask), total)
    steps = (product.a_step, long(FLOAT_BYTES))
    down, along = reversed(steps) if transposed else steps
    a, b = write.at(product.a, down, row), write.floats(product.b, column)
    with write.repeat(product.outer) as outer:
        a, b = write.at(a, product.a_outer, outer), write.at(b, product.b_outer, outer)
        with write.repeat(product.inner) as inner:
            a, b = write.at(a, along, inner), write.at(b, product.b_step, inner)
            right = [write.load(write.floats(b, long(j * LANES)), mask) for j in range(width)]
            for i, line in enumerate(sums):
                left = write.broadcast(write.at(a, down, long(i)))
                for total, factor in zip(line, right, strict=True):
                    write.add_product(total, left, factor)
    for total, address in places(product.c, product.c_step):
        write.store(builder.load(total), address, mask)
