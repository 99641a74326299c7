"""Findings of the RPS paper: what is claimed, what was measured, what follows (see ``claims``)."""

import math
from typing import Any

import pandas as pd
import xarray as xr

from jaxlossy.claims import FAILS, Claim, as_columns, by_seed, difference, estimate, verdict
from jaxlossy.results import final
from jaxlossy.summaries import Frame, config_fields

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
