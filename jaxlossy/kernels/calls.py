"""The kernels as operations of JAX."""

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxlossy.jit import callback


def call(
    kernel: Callable[[int], int],
    results: Any,
    *arguments: Any,
    in_place: bool = False,
    **attributes: int,
) -> Any:
    """Calls a kernel, on CPUs; under vmap, on all of a batch at once.

    Args:
      kernel: a function to be compiled, of the address of a call frame (see ``xla.py``), to 0. It
        has to ask ``asks_metadata`` first, and takes any number of leading axes; an argument that
        does not differ along one has length 1 there.
      results: shapes and types, without axes of vmap.
      arguments: arrays.
      in_place: whether the first result is the first argument, on which the kernel writes.
      attributes: integers.
    """
    name = f"jaxlossy_{kernel.__name__}"
    if name not in _registered:
        capsule = _new_capsule(callback(kernel), None, None)
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        _registered.add(name)
    # What is written on differs along all axes.
    how: Any = {"vmap_method": "expand_dims"}
    if in_place:
        how = {"vmap_method": "broadcast_all", "input_output_aliases": {0: 0}}
    return jax.ffi.ffi_call(name, results, **how)(
        *arguments, **{key: np.int64(value) for key, value in attributes.items()}
    )


_registered: set[str] = set()
_new_capsule: Any = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def like(array: Any, *shape: int) -> jax.ShapeDtypeStruct:
    """A result of that shape, of the array's type."""
    return jax.ShapeDtypeStruct(shape, array.dtype)


def if_float32(kernel: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for arguments of float32, which all kernels are for, and something else if not."""

    def choose(*arguments):
        exact = all(array.dtype == np.float32 for array in arguments)
        return (kernel if exact else otherwise)(*arguments)

    return choose
