"""Closing the loop: its problems and its words from numbers; and all of it, small."""

import json

import numpy as np
import pandas as pd
import pytest

from jaxlossy.errors import ConfigError
from jaxlossy.topology import loop, loop_report
from jaxlossy.topology.climb import doubleclimb
from jaxlossy.topology.error_model import Constants, Fit, predict

CONSTANTS = Constants(0.05, 20.0, 0.5, alpha=1.0, beta=1.3)
SCALE = loop.Scale((1, 2, 4), (60, 200), 2.0, first_epoch=10, epochs=80)


def found(off, slower=1.0, rings=0):
    """Ten plans, measured errors off by a number each, targets 0.02 above the predictions."""
    predicted = np.linspace(0.1, 0.2, 10)
    plans = pd.DataFrame(
        {
            "graph": "chosen",
            "eps_max": predicted + 0.02,
            "predicted_error": predicted,
            "measured_error": predicted + off,
            "measured_error_se": 0.003,
            "predicted_time": np.linspace(10, 100, 10),
            "measured_time": slower * np.linspace(10, 100, 10),
            "measured_time_se": 0.5,
        }
    )
    nan = float("nan")
    worse = plans[:rings].assign(graph="ring", measured_error=predicted[:rings] + 0.03)
    plans = pd.concat([plans, worse], ignore_index=True)
    errors = Constants(0.1, 1.0, 0.1, nan, 0.1)
    fit = Fit(CONSTANTS, errors, rmse=0.01, held_out_rmse=0.012, margin=0.02, spread=0.05)
    return loop.Loop("digits", fit, plans[["eps_max"]], plans, infeasible=1)


def test_the_summary_says_how_well_predictions_hold():
    good = found(off=0.01)
    summary = loop_report.summary(good)
    assert summary["rings"] == 0
    assert "ring" not in loop_report.sentence(good)
    del summary["rings"], summary["rings_met"], summary["rings_bias"]
    assert summary == pytest.approx(
        {
            "plans": 10, "rank_correlation": 1.0, "met": 1.0, "met_less_margin": 0.0,
            "bias": 0.01, "rmse": 0.01, "noise": 0.003, "slower": 0.0,
            "largest_time_deviation": 0.0,
        },
        abs=1e-9,
    )  # fmt: skip
    assert "100% of the plans meet their target (as meant)" in loop_report.sentence(good)
    bad = found(off=np.where(np.arange(10) < 3, 0.09, -0.01), slower=1.1)
    assert loop_report.summary(bad)["met"] == pytest.approx(0.7)
    assert loop_report.summary(bad)["rank_correlation"] < 0.8
    assert loop_report.summary(bad)["largest_time_deviation"] == pytest.approx(0.1)
    assert "70% of the plans meet their target (short of 90%)" in loop_report.sentence(bad)
    ringed = loop_report.summary(found(off=0.01, rings=4))
    assert [ringed[f"rings{end}"] for end in ("", "_met", "_bias")] == pytest.approx([4, 0, 0.03])
    assert ringed["bias"] == pytest.approx(0.01)
    assert "0% of 4 plans meet" in loop_report.sentence(found(off=0.01, rings=4))
    assert "1.100 times the predicted time, 10.0% off" in loop_report.sentence(bad)


def test_targets_keep_plans_inside_the_grid():
    spread = loop.targets(CONSTANTS, SCALE)
    assert spread[0] < spread[1]
    rings = 0
    for seed in range(6):
        problem = loop.family(CONSTANTS, SCALE, spread, seed=seed)
        assert spread[0] <= problem.eps_max <= spread[1]
        assert (problem.learning, problem.information) == (4, 4)
        assert problem.c2 == CONSTANTS.c2
        plan = doubleclimb(problem).plan
        if plan is not None:
            row = loop.plan_row(problem, plan, CONSTANTS)
            assert row["predicted_error"] == pytest.approx(plan.error)
            assert SCALE.first_epoch <= row["epochs"] <= SCALE.epochs
            assert row["samples"] >= min(SCALE.samples)
            ring = loop.on_ring(problem, plan)
            if ring is not None:
                assert len(ring.edges) == len(plan.learning_nodes)
                assert plan.epochs < ring.epochs <= SCALE.epochs
                assert ring.error <= problem.eps_max
                rings += 1
            assert row["predicted_error"] == pytest.approx(
                float(predict(CONSTANTS, row["gap"], row["epochs"], row["samples"]))
            )
    assert rings > 0


def test_what_is_saved(tmp_path):
    loop_report.save(found(off=0.0), tmp_path)
    numbers = json.loads((tmp_path / "digits.json").read_text())
    assert numbers["constants"]["beta"] == 1.3
    assert numbers["standard_errors"]["alpha"] is None
    assert numbers["summary"]["met"] == 1.0
    assert len(pd.read_csv(tmp_path / "digits_plans.csv")) == 10
    assert (tmp_path / "figures" / "digits.png").stat().st_size > 10_000
    figure = loop_report.predicted_and_measured(found(off=0.0))
    assert [axes.get_xlabel().split()[0] for axes in figure.axes] == ["predicted"] * 2
    drawn = figure.axes[0].containers[0].lines[0].get_ydata().astype(float)
    np.testing.assert_allclose(drawn, np.linspace(0.1, 0.2, 10))


def test_closing_the_loop_a_little(tmp_path):
    (found,) = loop_report.close_loops({"tasks": ("diabetes",), "quick": True}, tmp_path / "new")
    assert found.startswith("diabetes: 4 plans trained;")
    plans = pd.read_csv(tmp_path / "new" / "diabetes_plans.csv")
    assert (plans["graph"] == "chosen").sum() == 4
    numbers = json.loads((tmp_path / "new" / "diabetes.json").read_text())
    assert numbers["sentence"] == found
    assert abs(numbers["summary"]["slower"]) < 0.2
    assert plans["measured_error"].between(0.4, 1.2).all()
    grid = pd.read_csv(tmp_path / "new" / "diabetes_grid.csv")
    assert set(grid["learners"]) == {2, 4}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"tasks": ("mnist",)}, r"^tasks: 'mnist' is not allowed \(allowed: diabetes, digits"),
        ({"drop_probability": 2.0}, r"^drop_probability: 2.0 is not allowed"),
        ({"speed": 1}, r"^config.loop: 'speed' is not allowed"),
    ],
)
def test_wrong_loops_are_refused_before_anything_is_trained(tmp_path, change, line):
    with pytest.raises(ConfigError, match=line):
        loop_report.close_loops(change, tmp_path)
