"""Several processes that train one sweep together: what they tell each other.

Joined by ``jax.distributed.initialize``, every process makes the same calls with the same
arguments, each computes on its own devices, and the first one alone reads and writes files and
prints. The functions of this module are called in all processes, in the same order; in a process
that is alone they do nothing but what they are given.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxlossy.errors import ConfigError

#: Bytes of the first message and of the largest one; every size is a small program of its own.
FIRST, LARGEST = 2**10, 2**24

T = TypeVar("T")


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return jax.process_index() == 0


def check_devices(devices: Sequence[Any]) -> None:
    """Refuses devices that leave a process out, or that processes do not have in equal numbers."""
    owners = [device.process_index for device in devices]
    counts = [owners.count(index) for index in range(jax.process_count())]
    if min(counts) != max(counts) or not counts[0]:
        allowed = "as many of every process, and at least one"
        raise ConfigError("devices", counts, allowed)


def in_first(function: Callable[..., T], *args: Any) -> T:
    """Calls a function in the first process; every process returns or raises what that did.

    >>> in_first(max, 1, 2)
    2
    """
    if jax.process_count() == 1:
        return function(*args)
    result, error = _attempt(function, args) if is_first() else (None, None)
    result, error = _broadcast((result, error), 0)
    if error is not None:
        raise error
    return result


def in_all(function: Callable[..., T], *args: Any) -> T:
    """Calls a function in every process; an error in one of them is raised in all."""
    if jax.process_count() == 1:
        return function(*args)
    result, error = _attempt(function, args)
    errors = [found for found in gather(error) if found is not None]
    if errors:
        raise error or errors[0]
    return result  # pyright: ignore[reportReturnType]  (None comes with an error)


def gather(value: T) -> list[T]:
    """The values of all processes, in their order."""
    if jax.process_count() == 1:
        return [value]
    return [_broadcast(value, source) for source in range(jax.process_count())]


def check_same(field: str, value: Any) -> None:
    """Refuses a value that differs between processes, in all of them."""
    if any(other != value for other in gather(value)):
        raise ConfigError(field, value, "the same in every process")


def fetch(tree: Any) -> Any:
    """Whole arrays on the host of every process, also of what lies on other processes' devices."""
    leaves, treedef = jax.tree.flatten(tree)
    if jax.process_count() == 1:
        return jax.tree.map(np.asarray, tree)
    mine = [
        [(s.index, np.asarray(s.data)) for s in leaf.addressable_shards if s.replica_id == 0]
        for leaf in leaves
    ]
    whole = [np.empty(leaf.shape, leaf.dtype) for leaf in leaves]
    for source in range(jax.process_count()):
        for array, parts in zip(whole, _broadcast(mine, source), strict=True):
            for index, part in parts:
                array[index] = part
    return treedef.unflatten(whole)


def _attempt(function: Callable[..., T], args: Any) -> tuple[T | None, BaseException | None]:
    try:
        return function(*args), None
    except BaseException as error:  # also an interrupt: the others would wait for ever
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # an error that can not travel
            return None, RuntimeError(f"{type(error).__name__}: {error}")
        return None, error


def _broadcast(value: Any, source: int) -> Any:
    """The value of one process, in all."""
    mine = jax.process_index() == source
    data = pickle.dumps(value) if mine else b""

    def send(data: bytes, length: int) -> bytes:
        padded = np.frombuffer(data.ljust(length, b"\0"), np.uint8)
        return multihost_utils.broadcast_one_to_all(padded, is_source=mine).tobytes()

    # The first message says how long the whole is; most are over with it.
    room = FIRST - 8
    first = send(len(data).to_bytes(8) + data[:room], FIRST)
    size, received = int.from_bytes(first[:8]), [first[8:]]
    for start in range(room, size, LARGEST):
        rest = min(size - start, LARGEST)
        length = 1 << (rest - 1).bit_length()  # a power of two, so that there are few programs
        received.append(send(data[start : start + rest], length)[:rest])
    return pickle.loads(b"".join(received)[:size])
