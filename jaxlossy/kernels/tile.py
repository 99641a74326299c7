"""The innermost loops of products and convolutions on CPUs: tiles of the result in registers.

XLA multiplies one large matrix well, but a replica's are small, and there are thousands of them.
Here the numbers of a tile stay in vector registers while the sum over the inner axes runs, which
neither XLA's batched products nor a compiler given plain loops achieve. It is written in LLVM's
vector types, which numba compiles for the processor at hand.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from jaxlossy.jit import entry as shared

FLOAT_BYTES = 4
_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


def _registers() -> tuple[int, dict[int, tuple[int, ...]]]:
    """Floats in a vector register, and tiles: registers wide, to rows, the best first.

    A tile fills the registers, but for a row of the right factor and a number of the left. Smaller
    ones are for what is left at an edge.
    """
    features: Any = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, {4: (4, 2, 1), 2: (8, 4, 2, 1), 1: (16, 8, 4, 2, 1)}
    if features.get("avx"):
        return 8, {2: (4, 2, 1), 1: (8, 4, 2, 1)}
    return 4, {4: (4, 2, 1), 1: (16, 4, 2, 1)}


LANES, TILES = _registers()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_POINTER = _VECTOR.as_pointer()
_MASK = ir.VectorType(ir.IntType(1), LANES)


def _multiply(transposed: bool) -> Any:
    def multiply(
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
        low,
    ):
        def emit(context, builder, signature, arguments):
            _Loops(builder, transposed, *arguments).emit()
            return context.get_dummy_value()

        return types.void(*[types.int64] * 14, types.float32), emit

    return intrinsic(multiply)


_emit_multiply = _multiply(transposed=False)
_emit_transposed = _multiply(transposed=True)


@shared
def multiply(a, a_step, b, b_step, c, c_step, start, start_step, rows, columns, inner, outer, a_outer, b_outer, low):
    """``c = max(start + sum of a b, low)`` for matrices of float32.

    They are given by the addresses of their first numbers. Every step is the bytes from one row to
    the next, and in a row numbers follow each other. The sum runs over the rows of `b`, which go
    with the columns of `a`, `inner` of them; and that again `outer` times, every time `a_outer` and
    `b_outer` bytes further. `start` is `c` itself, to add to it, or has a step of 0, for a bias, or
    is the address 0, for none. NaN stays NaN.
    """
    _emit_multiply(a, a_step, b, b_step, c, c_step, start, start_step, rows, columns, inner, outer, a_outer, b_outer, low)


@shared
def multiply_transposed(a, a_step, b, b_step, c, c_step, start, start_step, rows, columns, inner, outer, a_outer, b_outer, low):
    """The same where the rows of `b` go with the rows of `a`: ``max(start + sum of a' b, low)``."""
    _emit_transposed(a, a_step, b, b_step, c, c_step, start, start_step, rows, columns, inner, outer, a_outer, b_outer, low)


class _Loops:
    """The instructions of a product."""

    def __init__(
        self,
        builder: Any,
        transposed: bool,
        a: Any,
        a_step: Any,
        b: Any,
        b_step: Any,
        c: Any,
        c_step: Any,
        start: Any,
        start_step: Any,
        rows: Any,
        columns: Any,
        inner: Any,
        outer: Any,
        a_outer: Any,
        b_outer: Any,
        low: Any,
    ):
        self.builder, self.transposed = builder, transposed
        self.a, self.a_step, self.b, self.b_step = a, a_step, b, b_step
        self.c, self.c_step, self.start, self.start_step = c, c_step, start, start_step
        self.rows, self.columns, self.inner, self.outer = rows, columns, inner, outer
        self.a_outer, self.b_outer = a_outer, b_outer
        self.low = self._everywhere(low, _VECTOR)

    def emit(self) -> None:
        """Panels of columns, as wide as they fit; in each, tiles of rows."""
        column: Any = _long(0)
        for width in TILES:
            column = self._for_each(width * LANES, column, self.columns, self._panel(width))
        left = self.builder.sub(self.columns, column)
        with self.builder.if_then(self.builder.icmp_signed(">", left, _long(0))):
            self._panel(1, self._first(left))(column)

    def _panel(self, width, mask=None):
        def panel(column):
            row: Any = _long(0)
            for rows in TILES[width]:

                def tile(row, rows=rows):
                    self._tile(row, column, rows, width, mask)

                row = self._for_each(rows, row, self.rows, tile)

        return panel

    def _for_each(self, step, begin, end, body):
        """Runs ``body(at)`` in whole steps, and gives where the next would begin."""
        builder = self.builder
        count = builder.sdiv(builder.sub(end, begin), _long(step))
        with cgutils.for_range(builder, count) as loop:
            body(builder.add(begin, builder.mul(loop.index, _long(step))))
        return builder.add(begin, builder.mul(count, _long(step)))

    def _tile(self, row, column, rows, width, mask) -> None:
        builder = self.builder
        across = builder.mul(column, _long(FLOAT_BYTES))

        def places(base, step):
            """The addresses of the tile's registers."""
            base = self._at(builder.add(base, across), step, row)
            return [
                [builder.add(self._at(base, step, _long(i)), _long(j * LANES * FLOAT_BYTES))
                 for j in range(width)]
                for i in range(rows)
            ]

        sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(width)] for _ in range(rows)]
        for line in sums:
            for total in line:
                builder.store(ir.Constant(_VECTOR, None), total)
        with builder.if_then(builder.icmp_signed("!=", self.start, _long(0))):
            for addresses, line in zip(places(self.start, self.start_step), sums, strict=True):
                for address, total in zip(addresses, line, strict=True):
                    builder.store(self._load(address, mask), total)
        a = self._at(self.a, _long(FLOAT_BYTES) if self.transposed else self.a_step, row)
        b = builder.add(self.b, across)
        with cgutils.for_range(builder, self.outer) as outer:
            a_here = self._at(a, self.a_outer, outer.index)
            b_here = self._at(b, self.b_outer, outer.index)
            with cgutils.for_range(builder, self.inner) as inner:
                self._add(a_here, b_here, inner.index, sums, mask)
        for addresses, line in zip(places(self.c, self.c_step), sums, strict=True):
            for address, total in zip(addresses, line, strict=True):
                value = builder.load(total)
                less = builder.fcmp_ordered("<", value, self.low)
                self._store(builder.select(less, self.low, value), address, mask)

    def _add(self, a, b, inner, sums, mask) -> None:
        """One step of the sum, in all registers of the tile."""
        builder = self.builder
        step, along = self.a_step, _long(FLOAT_BYTES)
        if self.transposed:
            step, along = along, step
        a, b = self._at(a, along, inner), self._at(b, self.b_step, inner)
        width = len(sums[0])
        right = [
            self._load(builder.add(b, _long(j * LANES * FLOAT_BYTES)), mask) for j in range(width)
        ]
        fused = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        for i, line in enumerate(sums):
            address = builder.inttoptr(self._at(a, step, _long(i)), _FLOAT.as_pointer())
            left = self._everywhere(builder.load(address, align=FLOAT_BYTES), _VECTOR)
            for factor, total in zip(right, line, strict=True):
                new = self._call("llvm.fma", fused, [left, factor, builder.load(total)])
                builder.store(new, total)

    def _at(self, base, step, index):
        return self.builder.add(base, self.builder.mul(step, index))

    def _load(self, address, mask):
        pointer = self.builder.inttoptr(address, _POINTER)
        if mask is None:
            return self.builder.load(pointer, align=FLOAT_BYTES)
        kind = ir.FunctionType(_VECTOR, [_POINTER, _INT, _MASK, _VECTOR])
        zero = ir.Constant(_VECTOR, None)
        return self._call("llvm.masked.load", kind, [pointer, ir.Constant(_INT, FLOAT_BYTES), mask, zero])

    def _store(self, value, address, mask) -> None:
        pointer = self.builder.inttoptr(address, _POINTER)
        if mask is None:
            self.builder.store(value, pointer, align=FLOAT_BYTES)
        else:
            kind = ir.FunctionType(ir.VoidType(), [_VECTOR, _POINTER, _INT, _MASK])
            self._call("llvm.masked.store", kind, [value, pointer, ir.Constant(_INT, FLOAT_BYTES), mask])

    def _first(self, count):
        """A mask of the first lanes of a register."""
        numbers = ir.VectorType(_INT, LANES)
        count = self._everywhere(self.builder.trunc(count, _INT), numbers)
        return self.builder.icmp_signed("<", ir.Constant(numbers, list(range(LANES))), count)

    def _everywhere(self, value, kind):
        """A register that holds the value in all lanes."""
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(undefined, value, ir.Constant(_INT, 0))
        zeros = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, undefined, zeros)

    def _call(self, name, kind, arguments):
        suffix = f".v{LANES}f32" + (".p0" if "masked" in name else "")
        function = cgutils.get_or_insert_function(self.builder.module, kind, name + suffix)
        return self.builder.call(function, arguments)


def _long(value: int) -> Any:
    return ir.Constant(_LONG, value)
