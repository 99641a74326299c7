"""The error model: known constants come back, and what can not be fitted is refused."""

import numpy as np
import pytest

from jaxlossy.errors import ConfigError
from jaxlossy.topology.error_model import Constants, fit_error_model, predict

TRUE = Constants(c0=0.05, c1=1.2, c2=0.5, alpha=0.8, beta=0.5)


def grid(noise, seed, shared=0.0):
    """Runs of 10 points each; part of the noise is one number a run."""
    rng = np.random.default_rng(seed)
    gap, samples = rng.uniform(0.05, 1, 60), np.geomspace(10, 2000, 60)[rng.permutation(60)]
    run = np.repeat(np.arange(60), 10)
    epochs = np.tile(np.unique(np.geomspace(3, 200, 10).astype(int)), 60)
    points = gap[run], epochs, samples[run]
    error = predict(TRUE, *points) + noise * rng.normal(size=600)
    return *points, error + shared * rng.normal(size=60)[run], run


@pytest.mark.parametrize(("noise", "shared"), [(0.01, 0.0), (0.003, 0.01)])
def test_known_constants_come_back_within_the_stated_errors(noise, shared):
    deviations = []
    for seed in range(8):
        *points, run = grid(noise, seed, shared)
        fit = fit_error_model(*points, run=run)
        deviations.append((np.array(fit.constants) - TRUE) / np.array(fit.standard_errors))
        assert fit.rmse == pytest.approx(np.hypot(noise, shared), rel=0.3)
        assert fit.rmse <= fit.held_out_rmse < 1.3 * fit.rmse
        assert 0 < fit.margin < 2 * fit.held_out_rmse
    spread = np.sqrt(np.mean(np.square(deviations), axis=0))
    assert (spread > 0.5).all()
    assert (spread < 1.7).all()  # 1 if the errors are right; 8 fits


def test_noise_that_runs_share_is_told_apart():
    *points, run = grid(0.003, 0, shared=0.01)
    together = fit_error_model(*points, run=run).standard_errors
    apart = fit_error_model(*points).standard_errors
    assert together.c0 > 1.5 * apart.c0


def test_a_term_that_is_not_there():
    rng = np.random.default_rng(0)
    gap, epochs, samples = rng.uniform(0.1, 1, 90), rng.integers(2, 99, 90), rng.uniform(9, 999, 90)
    error = predict(TRUE._replace(c2=0.0), gap, epochs, samples)
    fit = fit_error_model(gap, epochs, samples, error)
    assert fit.held_out_rmse < 1e-4
    np.testing.assert_allclose(predict(fit.constants, gap, epochs, samples), error, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gap": [0.0] * 8}, "gap"),
        ({"samples": [np.nan] * 8}, "samples"),
        ({"error": [np.inf] * 8}, "error"),
        ({"epochs": [1.0, 2.0]}, "epochs.shape"),
        ({"run": [0] * 8}, "folds"),
        ({"run": [0, 0, 0, 0, 1, 1, 1, 1], "folds": 2}, r"len\(error\)"),
    ],
)
def test_refusals(change, field):
    points = {name: np.linspace(0.1, 1, 8) for name in ("gap", "epochs", "samples", "error")}
    with pytest.raises(ConfigError, match=f"^{field}"):
        fit_error_model(**{**points, **change})
