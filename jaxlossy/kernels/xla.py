"""How XLA calls a compiled function: its foreign function interface, read from its C header.

A handler gets the address of a call frame (``XLA_FFI_CallFrame`` in ``xla/ffi/api/c_api.h``, found
in ``jax.ffi.include_dir()``): structures of 8-byte fields, whose layout XLA keeps.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from jaxlossy.jit import emitted, inlined
from jaxlossy.kernels.registers import FLOAT_BYTES

#: Of the interface that this was written for; XLA accepts older ones.
_MAJOR, _MINOR = 0, 3
#: Bytes from the start of a structure: of the frame, of its arguments and its results, of a buffer,
#: and of the answer to a question for metadata.
_EXTENSION, _ARGUMENTS, _RESULTS, _COUNT, _LIST = 8, 40, 80, 16, 32
_ATTRIBUTES, _ATTRIBUTE_LIST, _VALUE = 120, 40, 8
_DATA, _RANK, _DIMENSIONS = 24, 32, 40
_KIND, _METADATA, _VERSION = 8, 24, 24
_ASKS_METADATA = 1


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


@emitted(types.int64, types.int64)
def _read(builder, address):
    return builder.load(_pointer(builder, address, ir.IntType(64)))


@emitted(types.void, types.int64, types.int64)
def _write(builder, address, value):
    builder.store(value, _pointer(builder, address, ir.IntType(64)))


@emitted(types.float32, *[types.int64] * 2)
def get(builder, base, index):
    """A float, counted from an address."""
    return builder.load(builder.gep(_pointer(builder, base, ir.FloatType()), [index]))


@emitted(types.int64, *[types.int64] * 2)
def get_integer(builder, base, index):
    """An integer of 4 bytes, counted from an address."""
    place = builder.gep(_pointer(builder, base, ir.IntType(32)), [index])
    return builder.sext(builder.load(place), ir.IntType(64))


@emitted(types.void, *[types.int64] * 3)
def put_integer(builder, base, index, value):
    """Writes an integer of 8 bytes, counted from an address."""
    builder.store(value, builder.gep(_pointer(builder, base, ir.IntType(64)), [index]))


@emitted(types.int64, *[types.int64] * 2)
def get_byte(builder, base, index):
    """A byte, counted from an address."""
    place = builder.gep(_pointer(builder, base, ir.IntType(8)), [index])
    return builder.zext(builder.load(place), ir.IntType(64))


@emitted(types.void, *[types.int64] * 2, types.float32)
def put(builder, base, index, value):
    """Writes a float, counted from an address."""
    builder.store(value, builder.gep(_pointer(builder, base, ir.FloatType()), [index]))


@emitted(types.void, *[types.int64] * 3)
def copy(builder, target, source, num_bytes):
    """Copies bytes from one address to another."""
    pointers = [_pointer(builder, place, ir.IntType(8)) for place in (target, source)]
    cgutils.raw_memcpy(builder, *pointers, count=num_bytes, itemsize=1)


@emitted(types.void, *[types.int64] * 2)
def clear(builder, target, num_bytes):
    """Writes zeros."""
    cgutils.memset(builder, _pointer(builder, target, ir.IntType(8)), num_bytes, 0)


@inlined
def argument(frame, index):
    """The address of a buffer that is an argument of the call."""
    return _read(_read(frame + _ARGUMENTS + _LIST) + 8 * index)


@inlined
def result(frame, index):
    """The address of a buffer that is a result of the call."""
    return _read(_read(frame + _RESULTS + _LIST) + 8 * index)


@inlined
def num_results(frame):
    """How many buffers are results of the call."""
    return _read(frame + _RESULTS + _COUNT)


@inlined
def data(buffer):
    """The address of its first number."""
    return _read(buffer + _DATA)


@inlined
def size(buffer, axis):
    """The length of an axis, counted from the last one, which is -1."""
    return _read(_read(buffer + _DIMENSIONS) + 8 * (_read(buffer + _RANK) + axis))


@inlined
def batch(buffer, axes):
    """How many of what takes the last so many axes there are in all."""
    count = 1
    for axis in range(-_read(buffer + _RANK), -axes):
        count *= size(buffer, axis)
    return count


@inlined
def place(buffer, axes, i, result, result_axes):
    """How many elements of a buffer lie before those that belong to number i of a result's batch.

    A buffer has the same axes of the batch, or axes of length 1, for what does not differ.

    Args:
      axes, result_axes: how many of the last axes are no axes of the batch.
    """
    number, own, leading = 0, 1, _read(buffer + _RANK) - axes
    for axis in range(1, leading + 1):
        here = i
        if axis < leading:
            length = size(result, -result_axes - axis)
            here, i = i % length, i // length
        length = size(buffer, -axes - axis)
        if length > 1:
            number += here * own
            own *= length
    for axis in range(-axes, 0):
        number *= size(buffer, axis)
    return number


@inlined
def item(buffer, axes, i, result, result_axes):
    """The address of what belongs to number i of a result's batch, of numbers of 4 bytes."""
    return data(buffer) + FLOAT_BYTES * place(buffer, axes, i, result, result_axes)


@inlined
def attribute(frame, index):
    """The value of an attribute of 8 bytes; they are in alphabetical order."""
    return _read(_read(_read(_read(frame + _ATTRIBUTES + _ATTRIBUTE_LIST) + 8 * index) + _VALUE))


@inlined
def asks_metadata(frame):
    """Answers XLA's question for the version, asked at registration; False for a real call."""
    extension = _read(frame + _EXTENSION)
    if extension == 0 or _read(extension + _KIND) & 0xFFFFFFFF != _ASKS_METADATA:
        return False
    _write(_read(extension + _METADATA) + _VERSION, _MAJOR | _MINOR << 32)
    return True
