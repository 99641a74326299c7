"""The error model of a learning task, fitted to training runs.

    eps(X, gamma, K) = c0 + c1 X^-beta + c2 (gamma K)^-alpha

irreducible, estimation and optimisation error: X the mean number of samples available over K
epochs, gamma the spectral gap of the mixing matrix. The form is our formulation of the model in
Malandrino et al., IEEE/ACM Trans. Networking 31(1), 2023, arXiv 2102.03394.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from jaxlossy.errors import ConfigError

#: Largest exponent: beyond it a term is a step, and data can not tell one from another.
MAX_EXPONENT = 4.0
#: Exponents that fits start from, alpha and beta each.
STARTS = (0.3, 0.8, 2.0)


class Constants(NamedTuple):
    """The five numbers of the model, in units of the error; c1 and c2 at X = 1, gamma K = 1."""

    c0: float
    c1: float
    c2: float
    alpha: float
    beta: float


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted error model.

    Attributes:
      constants: fitted to all points.
      standard_errors: of each, robust to noise that the points of one run share. NaN where a
        constant lies on its bound, where it has no such error.
      rmse: root mean squared residual of all points.
      held_out_rmse: the same, every run predicted by a fit without it (`folds` parts).
      margin: what 9 in 10 held-out errors exceed their prediction by at most; at least 0.
      spread: standard deviation of the errors themselves, what rmse has to be compared with.
    """

    constants: Constants
    standard_errors: Constants
    rmse: float
    held_out_rmse: float
    margin: float
    spread: float


def predict(constants: Constants, gap: Any, epochs: Any, samples: Any) -> np.ndarray:
    """The error of the model; arguments broadcast.

    Args:
      constants: of the task.
      gap: spectral gap gamma, in (0, 1].
      epochs: K, >= 1.
      samples: X(K), mean samples available over the K epochs, > 0.

    >>> round(float(predict(Constants(0.02, 1.0, 0.2, alpha=1.0, beta=0.5), 1.0, 10, 400.0)), 6)
    0.09
    """
    c0, c1, c2, alpha, beta = constants
    estimation = c1 * np.asarray(samples, float) ** -beta
    return c0 + estimation + c2 * (np.asarray(gap, float) * epochs) ** -alpha


def fit_error_model(
    gap: Any, epochs: Any, samples: Any, error: Any, *, run: Any = None, folds: int = 4
) -> Fit:
    """Fits the constants by least squares, all >= 0, from several starts.

    Args:
      gap, epochs, samples: of each point, as in ``predict``; one-dimensional, equally long.
      error: what was measured at it.
      run: which run each point is from (default: each its own). Points of one run are held out
        together, and may share their noise.
      folds: parts that the runs are split into, to hold out one after another.

    Raises:
      ConfigError: points that are not finite or not positive, or too few of them or of the runs.

    >>> rng = np.random.default_rng(0)
    >>> gap, epochs = rng.uniform(0.1, 1, 60), rng.integers(5, 99, 60)
    >>> samples = rng.uniform(9, 999, 60)
    >>> true = Constants(0.05, 1.0, 0.5, alpha=1.0, beta=0.5)
    >>> fit = fit_error_model(gap, epochs, samples, predict(true, gap, epochs, samples))
    >>> np.round(fit.constants, 4).tolist(), fit.held_out_rmse < 1e-6
    ([0.05, 1.0, 0.5, 1.0, 0.5], True)
    """
    columns = {"gap": gap, "epochs": epochs, "samples": samples, "error": error}
    points = {name: np.asarray(values, float) for name, values in columns.items()}
    count = len(points["error"]) if points["error"].ndim == 1 else 0
    for name, values in points.items():
        if values.shape != (count,):
            raise ConfigError(f"{name}.shape", values.shape, f"({count},), a number for each point")
        wrong = ~np.isfinite(values) | (values <= 0 if name != "error" else False)
        if wrong.any():
            allowed = "finite numbers" if name == "error" else "finite numbers > 0"
            raise ConfigError(name, values[wrong][0].item(), allowed)
    _, run = np.unique(np.arange(count) if run is None else np.asarray(run), return_inverse=True)
    runs = run.max(initial=-1) + 1
    if not 2 <= folds <= runs:
        raise ConfigError("folds", folds, f"an integer from 2 to {runs}, the number of runs")
    fold = np.random.default_rng(0).permutation(runs)[run] % folds
    if count - np.bincount(fold).max() < len(Constants._fields):
        raise ConfigError("len(error)", count, "more points, so that each fit has at least 5")

    x, y = np.stack([points["gap"] * points["epochs"], points["samples"]]), points["error"]
    solution = _solve(x, y)
    held_out = np.empty(count)
    for part in range(folds):
        out = fold == part
        held_out[out] = _model(_solve(x[:, ~out], y[~out]), x[:, out]) - y[out]
    return Fit(
        constants=Constants(*map(float, solution)),
        standard_errors=Constants(*map(float, _standard_errors(solution, x, y, run))),
        rmse=_rms(_model(solution, x) - y),
        held_out_rmse=_rms(held_out),
        margin=max(0.0, float(np.quantile(-held_out, 0.9))),
        spread=float(y.std()),
    )


def _model(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    c0, c1, c2, alpha, beta = theta
    return c0 + c1 * x[1] ** -beta + c2 * x[0] ** -alpha


def _jacobian(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    _, c1, c2, alpha, beta = theta
    rounds, samples = x[0] ** -alpha, x[1] ** -beta
    columns = (np.ones_like(rounds), samples, rounds)
    return np.stack([*columns, -c2 * rounds * np.log(x[0]), -c1 * samples * np.log(x[1])], axis=1)


def _solve(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The best of the fits from all starts; given the exponents, the rest is linear."""
    bounds = (np.zeros(5), np.array([np.inf, np.inf, np.inf, MAX_EXPONENT, MAX_EXPONENT]))
    fits = []
    for alpha in STARTS:
        for beta in STARTS:
            design = _jacobian(np.array([0, 0, 0, alpha, beta]), x)[:, :3]
            start = np.append(optimize.nnls(design, y)[0] + 1e-6, [alpha, beta])
            fits.append(
                optimize.least_squares(
                    lambda theta: _model(theta, x) - y,
                    start,
                    lambda theta: _jacobian(theta, x),  # pyright: ignore[reportArgumentType]
                    bounds=bounds,
                    x_scale="jac",
                )
            )
    return min(fits, key=lambda fit: fit.cost).x


def _standard_errors(
    theta: np.ndarray, x: np.ndarray, y: np.ndarray, run: np.ndarray
) -> np.ndarray:
    """The sandwich estimate with runs as clusters, of the constants inside their bounds."""
    inside = (theta > 1e-8) & (theta < np.array([np.inf] * 3 + [MAX_EXPONENT - 1e-6] * 2))
    jacobian = _jacobian(theta, x)[:, inside]
    pushes = jacobian * (_model(theta, x) - y)[:, None]
    clusters = np.zeros((run.max() + 1, inside.sum()))
    np.add.at(clusters, run, pushes)
    bread = np.linalg.pinv(jacobian.T @ jacobian, rcond=1e-14)
    few = len(clusters) / (len(clusters) - 1)
    errors = np.full(5, np.nan)
    errors[inside] = np.sqrt(np.diag(few * bread @ clusters.T @ clusters @ bread))
    return errors


def _rms(residuals: np.ndarray) -> float:
    return float(np.sqrt(np.mean(residuals**2)))
