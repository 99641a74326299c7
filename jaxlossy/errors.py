"""The one error that wrong input raises."""

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np


class ConfigError(ValueError):
    """A field has a value that is not allowed; the message is one line.

    >>> raise ConfigError("workers", 0, "an integer >= 1")
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: workers: 0 is not allowed (allowed: an integer >= 1)
    """

    def __init__(self, field: str, value: Any, allowed: str):
        shown = repr(value)
        if len(shown) > 100:
            shown = f"{shown[:97]}..."
        line = f"{field}: {shown} is not allowed (allowed: {allowed})"
        super().__init__(" ".join(line.split()))  # one line, whatever the value is
        self.field, self.value, self.allowed = field, value, allowed

    def __reduce__(self):  # exceptions are unpickled from their message alone
        return type(self), (self.field, _Shown(repr(self.value)), self.allowed)


def check_form(form: str) -> None:
    """Refuses a form of a config file, as in ``--config=FILE:FORM``, but 'full' and 'shrink'.

    Raises:
      ValueError: absl makes errors in config files anew from their text, which a ConfigError is not
        made of.
    """
    if form not in ("full", "shrink"):
        raise ValueError(f"form: {form!r} is not allowed (allowed: full, shrink)")


class _Shown(str):
    """What is left of a value in another process, where it may have no meaning: its looks."""

    __repr__ = str.__str__


def check_name(field: str, name: Any, known: Iterable[str]) -> None:
    """Refuses a name that is not among ``known`` and points to the nearest one.

    >>> check_name("placement", "randon", ["random", "fixed", "separate"])
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: placement: 'randon' is not allowed
    (allowed: fixed, random, separate; did you mean 'random'?)
    """
    known = sorted(known)
    if name in known:
        return
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    names = ", ".join(known) if len(known) <= 10 else f"one of {len(known)} names"
    raise ConfigError(field, name, names + hint)


def check_integers(field: str, values: Any) -> np.ndarray:
    """The values as an array of int64, if all are integers >= 1.

    >>> check_integers("workers", [2, 16])
    array([ 2, 16])
    """
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer) or not (array >= 1).all():
        raise ConfigError(field, values, "integers >= 1")
    return array.astype(np.int64)


def check_range(field: str, values: Any, low: float, high: float) -> np.ndarray:
    """The values as an array of float64, if all lie in [low, high] (NaN never does).

    >>> check_range("drop_probability", [0.1, 1.2], 0, 1)
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: drop_probability: [0.1, 1.2] is not allowed (allowed: numbers in
    [0, 1])
    """
    array = np.asarray(values, np.float64)
    if not ((array >= low) & (array <= high)).all():
        raise ConfigError(field, values, f"numbers in [{low:g}, {high:g}]")
    return array
