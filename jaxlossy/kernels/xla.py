"""How XLA calls a compiled function: its foreign function interface, read from its C header.

A handler gets the address of a call frame (``XLA_FFI_CallFrame`` in ``xla/ffi/api/c_api.h``, found
in ``jax.ffi.include_dir()``): structures of 8-byte fields, whose layout XLA keeps.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from jaxlossy.jit import callback, emitted, inlined

_array: Any = numba.carray  # pyright: ignore[reportPrivateImportUsage]

#: Of the interface that this was written for; XLA accepts older ones.
_MAJOR, _MINOR = 0, 3
#: Bytes from the start of a structure: of the frame, of its arguments and its results, of a buffer,
#: and of the answer to a question for metadata.
_EXTENSION, _ARGUMENTS, _RESULTS, _LIST = 8, 40, 80, 32
_ATTRIBUTES, _ATTRIBUTE_LIST, _VALUE = 120, 40, 8
_DATA, _RANK, _DIMENSIONS = 24, 32, 40
_KIND, _METADATA, _VERSION = 8, 24, 24
_ASKS_METADATA = 1


@emitted(types.int64, types.int64)
def _read(builder, address):
    return builder.load(builder.inttoptr(address, ir.IntType(64).as_pointer()))


@emitted(types.void, types.int64, types.int64)
def _write(builder, address, value):
    builder.store(value, builder.inttoptr(address, ir.IntType(64).as_pointer()))


@emitted(types.CPointer(types.float32), types.int64)
def _pointer(builder, address):
    return builder.inttoptr(address, ir.FloatType().as_pointer())


@emitted(types.void, *[types.int64] * 3)
def copy(builder, target, source, num_bytes):
    """Copies bytes from one address to another."""
    pointers = [builder.inttoptr(place, ir.IntType(8).as_pointer()) for place in (target, source)]
    cgutils.raw_memcpy(builder, *pointers, count=num_bytes, itemsize=1)


@emitted(types.void, *[types.int64] * 2)
def clear(builder, target, num_bytes):
    """Writes zeros."""
    cgutils.memset(builder, builder.inttoptr(target, ir.IntType(8).as_pointer()), num_bytes, 0)


@inlined
def argument(frame, index):
    """The address of a buffer that is an argument of the call."""
    return _read(_read(frame + _ARGUMENTS + _LIST) + 8 * index)


@inlined
def result(frame, index):
    """The address of a buffer that is a result of the call."""
    return _read(_read(frame + _RESULTS + _LIST) + 8 * index)


@inlined
def data(buffer):
    """The address of its first number."""
    return _read(buffer + _DATA)


@numba.njit(inline="always")  # numba lets no compiled function return an array of C's
def floats(buffer, count):
    """Its numbers as an array, for what is not worth vector registers."""
    return _array(_pointer(data(buffer)), count)


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


def like(array: Any, *shape: int) -> jax.ShapeDtypeStruct:
    """A result of that shape, of the array's type."""
    return jax.ShapeDtypeStruct(shape, array.dtype)


def if_float32(kernel: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for arguments of float32, which all kernels are for, and something else if not."""

    def choose(*arguments):
        exact = all(array.dtype == np.float32 for array in arguments)
        return (kernel if exact else otherwise)(*arguments)

    return choose


def call(handler: Callable[[int], int], results: Any, *arguments: Any, **attributes: int) -> Any:
    """Calls a handler on CPUs, as an operation of JAX; under vmap, on all of a batch at once.

    Args:
      handler: a function to be compiled: of the address of the frame, to 0. It has to ask
        ``asks_metadata`` first, and takes any number of leading axes.
      results: shapes and types, without axes of vmap.
      arguments: arrays.
    """
    name = f"jaxlossy_{handler.__name__}"
    if name not in _registered:
        capsule = _new_capsule(callback(handler), None, None)
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        _registered.add(name)
    return jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")(
        *arguments, **{key: np.int64(value) for key, value in attributes.items()}
    )


_registered: set[str] = set()
_new_capsule: Any = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
