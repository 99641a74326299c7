"""Threefry 2x32 of 20 rounds: a number, with a key, to a block of two random words.

Reference:
  Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
"""

from llvmlite import ir
from numba import types

from jaxlossy.jit import emitted
from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import LANES, Registers, long

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORDS = ir.VectorType(ir.IntType(32), LANES)


def blocks(frame):
    """Blocks number `first` (...) and after, with every key (..., 2): two words (..., 2, count)."""
    if xla.asks_metadata(frame):
        return 0
    key, first, words = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    for i in range(xla.batch(words, 2)):
        start = xla.get_integer(xla.item(first, 0, i, words, 2), 0)
        here = xla.item(words, 2, i, words, 2)
        _fill(xla.item(key, 1, i, words, 2), start, here, xla.size(words, -1))
    return 0


@emitted(types.void, *[types.int64] * 4)
def _fill(builder, key, start, words, count):
    write = Registers(builder)
    keys = [builder.bitcast(write.broadcast(builder.add(key, long(n))), _WORDS) for n in (0, 4)]
    keys.append(builder.xor(builder.xor(*keys), _constant(_PARITY)))
    lanes = ir.Constant(_WORDS, list(range(LANES)))

    def some(first, mask):
        number = builder.add(write.integers(builder.add(start, first)), lanes)
        x = keys[0], builder.add(keys[1], number)
        for i in range(5):
            for rotation in _ROTATIONS[i % 2]:
                x = _mix(builder, *x, rotation)
            after = builder.add(keys[(i + 2) % 3], _constant(i + 1))
            x = builder.add(x[0], keys[(i + 1) % 3]), builder.add(x[1], after)
        for place, word in zip((first, builder.add(count, first)), x, strict=True):
            write.store(builder.bitcast(word, write.vector), write.floats(words, place), mask)

    write.for_registers(long(0), count, some)


def _mix(builder, x, y, rotation):
    x = builder.add(x, y)
    left, right = _constant(rotation), _constant(32 - rotation)
    return x, builder.xor(x, builder.or_(builder.shl(y, left), builder.lshr(y, right)))


def _constant(value):
    return ir.Constant(_WORDS, [value] * LANES)
