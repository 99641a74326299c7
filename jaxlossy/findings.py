"""Findings of the RPS paper, judged by numbers: what is claimed, what was measured, what follows.

A claim is a range for one number. The number is estimated over seeds; its 95% interval says whether
the claim holds (all of it lies in the range), does not hold (none of it does) or is not decided.

Seeds are paired: the same seed has the same start, the same batches and loses the same packets
first at every drop probability, so differences vary far less than the accuracies themselves.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr

from jaxlossy.errors import ConfigError
from jaxlossy.results import final
from jaxlossy.summaries import Frame, Series, config_fields

CONFIDENCE = 0.95
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"


class Claim(NamedTuple):
    """That a number is above `low` and at most `high`."""

    text: str
    low: float
    high: float


# What the paper's words are taken to mean. Its figures are curves without numbers, so these are
# ours. First, the test accuracy lost to packet loss, as a fraction: 0.01 is one percentage point,
# about what can be told apart on a curve from 0 to 100%. Less than a quarter of a point is no
# difference: it is less than one of the digits' 360 test examples.
AS_WITHOUT = Claim("as without loss", -math.inf, 0.01)
ALMOST = Claim("almost as without loss", -math.inf, 0.02)
SLIGHTLY = Claim("slightly worse", 0.0025, 0.05)
VISIBLY = Claim("visibly worse", 0.01, math.inf)
# Second, an influence of packet loss at the most servers, relative to that at the fewest.
DIMINISHES = Claim("diminishes", -math.inf, 0.5)
UNCHANGED = Claim("stays about the same", 0.5, 2.0)

#: What the paper says of the accuracy, by aggregation and up to which drop probability.
PAPER = {
    "model_averaging": ((0.01, AS_WITHOUT), (0.1, ALMOST), (0.2, SLIGHTLY)),
    "gradient_averaging": ((0.2, VISIBLY),),
}
#: Which of them is which finding.
LETTERS = {"model_averaging": "a", "gradient_averaging": "b"}


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

    >>> verdict(estimate([0.001, 0.002, 0.003]), AS_WITHOUT)
    'holds'
    >>> verdict(estimate([0.04, 0.05, 0.045]), AS_WITHOUT)
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


def accuracy_lost(ds: xr.Dataset) -> Frame:
    """How much final test accuracy packet loss costs, and what that says of the paper's findings.

    Findings (a), model averaging, and (b), gradient averaging, are about the mean model. What the
    replicas lose (`measure` replica_test_accuracy) stands beside it without a claim.

    Args:
      ds: results of a sweep over aggregation, drop probability (with 0) and seed, and maybe
        dirichlet_alpha.

    Returns:
      A row for each data set, dirichlet_alpha, aggregation, drop probability above 0 and measure:
      these; mean, standard_error, low, high, seeds of what is lost; without_loss, the accuracy that
      it is lost from; finding, claim, verdict and sentence, empty where nothing is claimed.

    Raises:
      ConfigError: seeds that differ between drop probabilities, or none without loss.
    """
    last, rows = final(ds), []
    names = ["data", "dirichlet_alpha", "aggregation"]
    for key, part in config_fields(ds).groupby(names, sort=False):
        setting = dict(zip(names, key, strict=True))
        for p in sorted(set(part["drop_probability"]) - {0.0}):
            for measure in ("test_accuracy", "replica_test_accuracy"):
                values = last[measure].values
                without = by_seed(ds, values, **setting, drop_probability=0.0)
                lossy = by_seed(ds, values, **setting, drop_probability=p)
                lost = estimate(difference(without, lossy))
                row = {**setting, "drop_probability": p, "measure": measure}
                row |= {**as_columns(lost), "without_loss": without.mean()}
                claim = _claimed(setting["aggregation"], p) if measure == "test_accuracy" else None
                row |= {"finding": "", "claim": "", "verdict": "", "sentence": ""}
                if claim is not None:
                    row["finding"] = LETTERS[setting["aggregation"]]
                    row["claim"], row["verdict"] = claim.text, verdict(lost, claim)
                    row["sentence"] = _accuracy_sentence(row, claim)
                rows.append(row)
    return pd.DataFrame(rows)


def as_columns(measured: Estimate) -> dict[str, float]:
    """An estimate as the columns of a table."""
    mean, error, low, high, seeds = measured
    return {"mean": mean, "standard_error": error, "low": low, "high": high, "seeds": seeds}


def points(fraction: float) -> float:
    """An accuracy as percentage points, to two digits, and without a negative zero."""
    return round(100 * fraction, 2) + 0.0


def setting_text(data: str, dirichlet_alpha: float) -> str:
    """What a data set and its shards are called.

    >>> setting_text("digits", math.inf), setting_text("digits", 0.5)
    ('digits, iid shards', 'digits, label skew (dirichlet alpha 0.5)')
    """
    skew = f"label skew (dirichlet alpha {dirichlet_alpha:g})"
    return f"{data}, {'iid shards' if math.isinf(dirichlet_alpha) else skew}"


def _claimed(aggregation: str, p: float) -> Claim | None:
    claims = (claim for largest, claim in PAPER.get(aggregation, ()) if p <= largest)
    return next(claims, None)


def _accuracy_sentence(row: dict[str, Any], claim: Claim) -> str:
    rule = row["aggregation"].replace("_", " ")
    lost, low, high = (f"{points(row[name]):.2f}" for name in ("mean", "low", "high"))
    outcome = row["verdict"]
    if outcome == FAILS:
        outcome += ", less is lost" if row["high"] <= claim.low else ", more is lost"
    return (
        f"On {setting_text(row['data'], row['dirichlet_alpha'])}, {rule} at "
        f"{row['drop_probability']:.0%} loss gives up {lost} points of accuracy "
        f'(95% interval {low} to {high}, {row["seeds"]} seeds): "{claim.text}" {outcome}.'
    )
