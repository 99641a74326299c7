"""How functions are compiled outside of JAX, and where compiled code is kept.

Small functions are inlined into one loop, which numba compiles on first use and keeps on disk,
beside JAX's compiled programs. numba notices changes of one file only, so that the directory is
named after the content of all files that have compiled functions.
"""

import hashlib
import os
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import config, types
from numba.extending import intrinsic

from jaxlossy.errors import ConfigError
from jaxlossy.files import writable_directory

# Without reference counts: arrays are never made inside the loop, and it runs without the GIL.
_OPTIONS: dict[str, Any] = {"_nrt": False, "nogil": True, "error_model": "numpy"}


def inlined(function: Callable[..., Any]) -> Any:
    """Compiles a function into whatever compiled function calls it."""
    return numba.njit(forceinline=True, **_OPTIONS)(function)


def emitted(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Turns ``emit(builder, *values)``, which writes LLVM's instructions, into a compiled function.

    Args:
      result, arguments: numba's types; ``types.void`` for no result.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(typing_context, *given):
            def write(context, builder, signature, values):
                value = emit(builder, *values)
                return context.get_dummy_value() if result is types.void else value

            return result(*arguments), write

        # numba looks at the names, of which it needs as many as there are.
        names = ["typing_context", *(f"value_{i}" for i in range(len(arguments)))]
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        typed.__signature__ = Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        return intrinsic(typed)

    return decorate


def entry(function: Callable[..., Any]) -> Any:
    """Compiles a function that Python calls, and keeps the outcome on disk where it may write."""
    return _kept(lambda **cache: numba.njit(**cache, **_OPTIONS)(function))


def apart(*arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function by itself, for others to call by name; it returns nothing.

    numba would optimise its code anew in every function that calls it. What takes long to compile
    is therefore kept apart, until ``callback`` needs it.
    """
    signature = types.void(*arguments)

    def decorate(function: Callable[..., Any]) -> Any:
        name = f"jaxlossy_{function.__name__.strip('_')}"
        _apart[name] = signature, function
        return types.ExternalFunction(name, signature)

    return decorate


def callback(function: Callable[[int], int]) -> int:
    """Compiles a function of an address that C calls, and keeps it; its own address."""
    while _apart:
        name, (signature, part) = _apart.popitem()
        binding.add_symbol(name, _compile_for_c(signature, part))
    return _compile_for_c(types.int64(types.int64), function)


def _compile_for_c(signature: Any, function: Callable[..., Any]) -> int:
    compiled = _kept(lambda **cache: numba.cfunc(signature, **cache, **_OPTIONS)(function))
    _compiled.append(compiled)
    return compiled.address


_apart: dict[str, tuple[Any, Callable[..., Any]]] = {}
_compiled: list[Any] = []  # what C may call has to stay


def _kept(compile_function: Callable[..., Any]) -> Any:
    try:
        directory = writable_directory("NUMBA_CACHE_DIR", cache_directory())
    except ConfigError:  # numba would take __pycache__, and not notice changes in other files
        return compile_function()
    settings: Any = config  # where a function is cached is settled when it is decorated
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(directory)
    try:
        return compile_function(cache=True)
    finally:
        settings.CACHE_DIR = before


def cache_directory() -> Path:
    """In NUMBA_CACHE_DIR, else with JAX's compilation cache, else in ~/.cache/jaxlossy."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("JAX_COMPILATION_CACHE_DIR")
    content = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        text = file.read_bytes()
        if b"jaxlossy.jit" in text or b"import numba" in text or b"from numba" in text:
            content.update(text)
    directory = Path(base or os.path.expanduser("~/.cache/jaxlossy"))
    return directory / f"numba-{content.hexdigest()[:16]}"
