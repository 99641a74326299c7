"""Vector registers of the processor at hand, as LLVM instructions.

numba compiles plain loops to good code where each number is used once. Where numbers have to stay
in registers while a sum over them runs, loops are written in LLVM's vector types instead.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, config

FLOAT_BYTES = 4
_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


def _count_lanes() -> int:
    settings: Any = config
    features = str(settings.CPU_FEATURES or binding.get_host_cpu_features().flatten()).split(",")
    if "+avx512f" in features:
        return 16
    return 8 if "+avx" in features else 4


#: Floats in a register of the processor that numba compiles for, and how many registers it has.
LANES = _count_lanes()
REGISTERS = 16 if LANES == 8 else 32

_VECTOR = ir.VectorType(_FLOAT, LANES)
_POINTER = _VECTOR.as_pointer()
_POINTERS = ir.VectorType(_FLOAT.as_pointer(), LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)
_NUMBERS = list(range(LANES))


def long(value: int) -> Any:
    """A constant: addresses and counts are integers of 8 bytes."""
    return ir.Constant(_LONG, value)


class Registers:
    """Writes instructions with a builder of llvmlite. All addresses are of bytes."""

    vector = _VECTOR
    zeros = ir.Constant(_VECTOR, None)

    def __init__(self, builder: Any):
        self.builder = builder

    def at(self, base: Any, step: Any, index: Any) -> Any:
        """``base + step * index``."""
        return self.builder.add(base, self.builder.mul(step, index))

    def address(self, base: Any, index: Any) -> Any:
        """An address from a list of them in memory."""
        place = self.builder.inttoptr(self.at(base, long(8), index), _LONG.as_pointer())
        return self.builder.load(place)

    def floats(self, base: Any, index: Any) -> Any:
        """The address of a float, counted from the base."""
        return self.at(base, long(FLOAT_BYTES), index)

    def variable(self) -> Any:
        """A register that changes, zero at first; the compiler keeps it out of memory."""
        place = cgutils.alloca_once(self.builder, _VECTOR)
        self.builder.store(self.zeros, place)
        return place

    def load(self, address: Any, mask: Any = None) -> Any:
        """A register from memory; where masked, zeros for what is not read."""
        pointer = self.builder.inttoptr(address, _POINTER)
        if mask is None:
            return self.builder.load(pointer, align=FLOAT_BYTES)
        kind = ir.FunctionType(_VECTOR, [_POINTER, _INT, _MASK, _VECTOR])
        align = ir.Constant(_INT, FLOAT_BYTES)
        return self._call("llvm.masked.load", ".p0", kind, pointer, align, mask, self.zeros)

    def gather(self, address: Any, step: Any, mask: Any = None) -> Any:
        """A register of floats that are so many bytes apart."""
        builder, everywhere = self.builder, ir.VectorType(_LONG, LANES)
        steps = builder.mul(self._everywhere(step, everywhere), ir.Constant(everywhere, _NUMBERS))
        places = builder.add(self._everywhere(address, everywhere), steps)
        pointers = builder.inttoptr(places, _POINTERS)
        mask = ir.Constant(_MASK, [1] * LANES) if mask is None else mask
        kind = ir.FunctionType(_VECTOR, [_POINTERS, _INT, _MASK, _VECTOR])
        align, suffix = ir.Constant(_INT, FLOAT_BYTES), f".v{LANES}p0"
        return self._call("llvm.masked.gather", suffix, kind, pointers, align, mask, self.zeros)

    def store(self, value: Any, address: Any, mask: Any = None) -> None:
        """A register to memory."""
        pointer = self.builder.inttoptr(address, _POINTER)
        if mask is None:
            self.builder.store(value, pointer, align=FLOAT_BYTES)
            return
        kind = ir.FunctionType(ir.VoidType(), [_VECTOR, _POINTER, _INT, _MASK])
        align = ir.Constant(_INT, FLOAT_BYTES)
        self._call("llvm.masked.store", ".p0", kind, value, pointer, align, mask)

    def everywhere(self, value: Any) -> Any:
        """A register that holds a float in all lanes."""
        return self._everywhere(value, _VECTOR)

    def broadcast(self, address: Any) -> Any:
        """A register that holds one float from memory in all lanes."""
        pointer = self.builder.inttoptr(address, _FLOAT.as_pointer())
        return self._everywhere(self.builder.load(pointer, align=FLOAT_BYTES), _VECTOR)

    def integers(self, value: Any) -> Any:
        """A register that holds an integer, its lower 4 bytes, in all lanes."""
        return self._everywhere(self.builder.trunc(value, _INT), ir.VectorType(_INT, LANES))

    def add(self, total: Any, value: Any) -> None:
        """Adds a register to a variable."""
        self.builder.store(self.builder.fadd(self.builder.load(total), value), total)

    def add_product(self, total: Any, a: Any, b: Any) -> None:
        """Adds ``a b`` to a variable, as ``multiply_add``."""
        self.builder.store(self.multiply_add(a, b, self.builder.load(total)), total)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """``a b + c``, rounded once where the processor can."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        return self._call("llvm.fmuladd", "", kind, a, b, c)

    def choose(self, left: Any, relation: str, right: Any, yes: Any, no: Any) -> Any:
        """A register of what fits, number by number; what is no number is in all relations."""
        return self.builder.select(self.builder.fcmp_unordered(relation, left, right), yes, no)

    def for_each(self, step: int, begin: Any, end: Any, body: Callable[[Any], None]) -> Any:
        """Runs ``body(at)`` in whole steps, and gives where the next would begin."""
        builder = self.builder
        count = builder.sdiv(builder.sub(end, begin), long(step))
        with cgutils.for_range(builder, count) as loop:
            body(self.at(begin, long(step), loop.index))
        return self.at(begin, long(step), count)

    @contextlib.contextmanager
    def repeat(self, count: Any) -> Iterator[Any]:
        """A loop; gives the number of times before."""
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index

    def if_any_left(self, begin: Any, end: Any, body: Callable[[Any], None]) -> None:
        """Runs ``body(mask)`` for what is left, less than a register."""
        kind, left = ir.VectorType(_INT, LANES), self.builder.sub(end, begin)
        with self.builder.if_then(self.builder.icmp_signed(">", left, long(0))):
            count = self._everywhere(self.builder.trunc(left, _INT), kind)
            lanes = ir.Constant(kind, _NUMBERS)
            body(self.builder.icmp_signed("<", lanes, count))

    def for_registers(self, begin: Any, end: Any, body: Callable[[Any, Any], None]) -> None:
        """Runs ``body(at, mask)`` register by register, then for what is left; else no mask."""
        at = self.for_each(LANES, begin, end, lambda at: body(at, None))
        self.if_any_left(at, end, lambda mask: body(at, mask))

    def _everywhere(self, value: Any, kind: Any) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(undefined, value, ir.Constant(_INT, 0))
        zeros = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, undefined, zeros)

    def _call(self, name: str, suffix: str, kind: Any, *arguments: Any) -> Any:
        name = f"{name}.v{LANES}f32{suffix}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)
