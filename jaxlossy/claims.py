"""Claims about one number, judged by seeds.

A claim is a range. The number is estimated over seeds; its 95% interval says whether the claim
holds (all of it lies in the range), does not hold (none of it does) or is not decided.

Seeds are paired: the same seed has the same start, the same batches and loses the same packets
first at every drop probability, so differences vary far less than the numbers themselves.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr

from jaxlossy.errors import ConfigError
from jaxlossy.summaries import Series, config_fields

CONFIDENCE = 0.95
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"


class Claim(NamedTuple):
    """That a number is above `low` and at most `high`."""

    text: str
    low: float
    high: float


class Estimate(NamedTuple):
    """A mean over seeds, its standard error and its 95% interval (Student's t)."""

    mean: float
    error: float
    low: float
    high: float
    seeds: int


def estimate(values: Any) -> Estimate:
    """The mean of one value a seed, and how sure it is.

    Where a value is not finite, nothing can be said, and the interval is everything.

    Raises:
      ConfigError: fewer than two values.

    >>> estimate([0.01, 0.02, 0.03])
    Estimate(mean=0.02, error=0.0057..., low=-0.0048..., high=0.0448..., seeds=3)
    """
    values = np.asarray(values, float)
    seeds = len(values)
    if seeds < 2:
        raise ConfigError("seed", seeds, "at least 2 seeds, for there to be a spread")
    if not np.isfinite(values).all():
        return Estimate(math.nan, math.nan, -math.inf, math.inf, seeds)
    mean, error = float(values.mean()), float(values.std(ddof=1) / seeds**0.5)
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)) * error
    return Estimate(mean, error, mean - half, mean + half, seeds)


def ratio(numerators: Any, denominators: Any) -> Estimate:
    """The ratio of two means over the same seeds, its error to first order.

    Where the denominator itself may be 0, as its interval says, so may the ratio be anything.

    >>> ratio([2.0, 4.1, 5.9], [1.0, 2.0, 3.0]).mean
    2.0
    """
    above, below = np.asarray(numerators, float), np.asarray(denominators, float)
    whole = estimate(below)
    value = estimate(above).mean / whole.mean if whole.mean else math.nan
    if not whole.low > 0:
        return Estimate(value, math.nan, -math.inf, math.inf, whole.seeds)
    return estimate(value + (above - value * below) / whole.mean)


def verdict(measured: Estimate, claim: Claim) -> str:
    """Whether the claim holds, does not hold, or is not decided by these seeds.

    >>> small = Claim("small", -math.inf, 0.01)
    >>> verdict(estimate([0.001, 0.002, 0.003]), small)
    'holds'
    >>> verdict(estimate([0.04, 0.05, 0.045]), small)
    'does not hold'
    """
    if claim.low < measured.low and measured.high <= claim.high:
        return HOLDS
    if measured.high <= claim.low or claim.high < measured.low:
        return FAILS
    return UNDECIDED


def by_seed(ds: xr.Dataset, values: Any, **fields: Any) -> Series:
    """The values of the configs that have these field values, one for each seed, in their order.

    Args:
      ds: results of a sweep.
      values: one a config of it.
      fields: what singles the configs out.

    Raises:
      ConfigError: no such config, or several of one seed.
    """
    known, chosen = config_fields(ds), np.ones(ds.sizes["config"], bool)
    for name, value in fields.items():
        chosen &= (known[name] == value).to_numpy()
    series = pd.Series(np.asarray(values)[chosen], known["seed"][chosen]).sort_index()
    if series.empty or not series.index.is_unique:
        raise ConfigError("fields", fields, "those of one config for each seed")
    return series


def difference(first: Series, second: Series) -> np.ndarray:
    """First minus second, seed by seed.

    Raises:
      ConfigError: they do not have the same seeds.
    """
    if not first.index.equals(second.index):
        raise ConfigError("seed", list(first.index), f"those of the other side, {[*second.index]}")
    return first.to_numpy() - second.to_numpy()


def as_columns(measured: Estimate) -> dict[str, float]:
    """An estimate as the columns of a table."""
    mean, error, low, high, seeds = measured
    return {"mean": mean, "standard_error": error, "low": low, "high": high, "seeds": seeds}
