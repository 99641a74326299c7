"""Findings can hold, not hold and stay open; made-up numbers say which is right."""

import math

import numpy as np
import pytest
import scipy.stats
from made_up import made_up

from jaxlossy import claims
from jaxlossy.errors import ConfigError
from jaxlossy.rps import findings

P = (0.0, 0.01, 0.05, 0.1, 0.2)


def sweep(lost, *, noise=0.001, seeds=10):
    """A sweep where `lost` is the accuracy that a row of fields loses."""
    rng = np.random.default_rng(0)
    config = {
        "steps": 2,
        "eval_every": 2,
        "sweep": {
            "aggregation": ("model_averaging", "gradient_averaging"),
            "drop_probability": P,
            "seed": range(seeds),
        },
    }

    def accuracy(row):
        started = 0.9 + 0.05 * math.sin(row.seed)  # common to all drop probabilities
        return started - lost(row) - noise * rng.normal() * (row.drop_probability > 0)

    return made_up(config, test_accuracy=accuracy, replica_test_accuracy=accuracy)


def verdicts(ds):
    table = findings.accuracy_lost(ds)
    table = table[table["measure"] == "test_accuracy"]
    return {(row.aggregation, row.drop_probability): row for row in table.itertuples()}


def paper(row):
    if row.aggregation == "gradient_averaging":
        return 0.05 * (row.drop_probability > 0)
    return {0.2: 0.03, 0.1: 0.01}.get(row.drop_probability, 0.0)


def test_an_interval_is_student_s():
    values = np.random.default_rng(1).normal(0.3, 1.0, 12)
    found = claims.estimate(values)
    expected = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found[2:4] == pytest.approx((expected.low, expected.high))
    assert found.error == pytest.approx(scipy.stats.sem(values))
    assert found.seeds == 12
    with pytest.raises(ConfigError, match="at least 2 seeds"):
        claims.estimate([1.0])


def test_nothing_follows_from_a_run_that_diverged():
    found = claims.estimate([0.1, math.inf, 0.2])
    assert not math.isfinite(found.mean)
    for claim in (findings.AS_WITHOUT, findings.VISIBLY, findings.SLIGHTLY):
        assert claims.verdict(found, claim) == "not decided"


def test_a_ratio_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        below = rng.normal(1.0, 0.2, 20)
        above = 0.5 * below + rng.normal(0.0, 0.1, 20)
        found = claims.ratio(above, below)
        inside += found.low < 0.5 < found.high
    assert 0.91 < inside / 400 < 0.985
    assert claims.ratio([1.0, 1.1, 1.2], [2.0, 2.2, 2.4]).error < 1e-12


def test_a_ratio_to_what_may_be_nothing_says_nothing():
    found = claims.ratio([1.0, 2.0, 3.0], [-1.0, 1.0, 0.5])
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert claims.verdict(found, findings.DIMINISHES) == "not decided"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.003, 0.05, "holds"),
        (0.001, 0.04, "not decided"),
        (0.04, 0.06, "not decided"),
        (0.051, 0.06, "does not hold"),
        (0.0, 0.0, "does not hold"),  # as good is not worse
        (-0.001, 0.0025, "does not hold"),
        (-0.02, -0.01, "does not hold"),
    ],
)
def test_a_claim_is_a_range_and_all_of_the_interval_counts(low, high, expected):
    measured = claims.Estimate((low + high) / 2, 0.01, low, high, 10)
    assert claims.verdict(measured, findings.SLIGHTLY) == expected


def test_the_paper_s_findings_hold_where_they_are_true():
    found = verdicts(sweep(paper))
    assert len(found) == 8
    assert {row.verdict for row in found.values()} == {"holds"}
    assert {row.finding for row in found.values()} == {"a", "b"}
    row = found["model_averaging", 0.1]
    assert row.claim == "almost as without loss"
    assert row.mean == pytest.approx(0.01, abs=0.001)
    assert row.low < row.mean < row.high
    assert row.sentence.startswith("On digits, iid shards, model averaging at 10% loss gives up ")
    assert f"{100 * row.mean:.2f} points of accuracy" in row.sentence
    assert row.sentence.endswith('10 seeds): "almost as without loss" holds.')


def test_they_do_not_hold_where_they_are_false():
    found = verdicts(
        sweep(lambda row: 0.06 * (row.drop_probability > 0) * (row.aggregation[0] == "m"))
    )
    assert {row.verdict for row in found.values()} == {"does not hold"}
    assert found["model_averaging", 0.2].sentence.endswith("does not hold, more is lost.")
    assert found["gradient_averaging", 0.01].sentence.endswith("does not hold, less is lost.")


def test_they_are_not_decided_where_seeds_disagree():
    found = verdicts(sweep(paper, noise=0.2, seeds=3))
    assert {row.verdict for row in found.values()} == {"not decided"}


def test_pairing_takes_out_what_seeds_have_in_common():
    ds = sweep(paper)
    last = ds["test_accuracy"].values[:, -1]
    chosen = {"aggregation": "model_averaging", "drop_probability": 0.0}
    assert claims.by_seed(ds, last, **chosen).std() > 0.03
    assert verdicts(ds)["model_averaging", 0.01].standard_error < 0.001


def test_replicas_are_reported_without_a_claim():
    table = findings.accuracy_lost(sweep(paper))
    replicas = table[table["measure"] == "replica_test_accuracy"]
    assert len(replicas) == 8
    assert set(replicas["verdict"]) == {""}


def test_what_cannot_be_paired_is_refused():
    ds = sweep(paper)
    with pytest.raises(ConfigError, match="seed"):
        findings.accuracy_lost(ds.isel(config=slice(1, None)))  # a seed less without loss
    with pytest.raises(ConfigError, match="fields"):
        findings.accuracy_lost(ds.isel(config=ds["drop_probability"].values > 0))
