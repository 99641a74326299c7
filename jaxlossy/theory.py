"""What the theory of RPS says in numbers: mixing coefficients, disagreement, bounds.

What one exchange does to the replicas is in ``jaxlossy.mixing``, whose names are part of this
module; here is what follows for training, with gradients that are noise, or of a smooth objective.

Everything is float64 on the host. Marks: [paper] is what Yu et al. 2019 (arXiv 1810.07766) state;
[derived] follows from their definitions and is tested against enumeration and measurement;
[recalled] could not be checked against their text and must not be quoted as theirs.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxlossy.errors import ConfigError, check_integers, check_name
from jaxlossy.mixing import Coefficients as Coefficients
from jaxlossy.mixing import MixingMatrices as MixingMatrices
from jaxlossy.mixing import Number, plain
from jaxlossy.mixing import coefficients as coefficients
from jaxlossy.mixing import message_loss as message_loss
from jaxlossy.mixing import mixing_matrices as mixing_matrices
from jaxlossy.mixing import server_weight as server_weight


def slow_down(coefficients: Coefficients, workers: Any) -> Number:
    """(1 + sqrt(N alpha2)) / (1 - sqrt(beta)): relative to training without loss. [derived]

    The factor on the leading term of the [recalled] rate, so on the square root of the steps for
    the same error. It does not vanish as N grows. inf where beta is 1.

    >>> [round(float(slow_down(coefficients("random", n, 0.1), n)), 2) for n in (2, 16)]
    [1.8, 2.03]
    """
    n = check_integers("workers", workers)
    with np.errstate(divide="ignore"):
        factor = np.divide(1 + np.sqrt(n * coefficients.alpha2), 1 - np.sqrt(coefficients.beta))
    return plain(factor)


def disagreement(
    aggregation: str,
    coefficients: Coefficients,
    steps: int,
    *,
    noise: Number = 1.0,
    spread: Number = 0.0,
) -> Float[np.ndarray, "step ..."]:
    """Expected mean squared distance to the mean model of replicas that walk at random. [derived]

    Exact for gradients that do not depend on the model, from an equal start, with plain SGD. Under
    noise alone it is ``beta t`` after t steps of gradient averaging, and ``beta (1 - beta^t) /
    (1 - beta)`` with model averaging. Under a constant difference between the workers' gradients
    gradient averaging adds ``beta t + alpha0^2 t (t - 1)`` of the spread: it grows with t^2.

    Args:
      aggregation: 'model_averaging' or 'gradient_averaging'.
      coefficients: of the exchange.
      steps: T.
      noise: what one step's noise adds, before the exchange: lr^2 sigma^2 (1 - 1/N) for gradients
        of variance sigma^2, independent between workers and steps.
      spread: lr^2 zeta^2, zeta^2 the mean squared distance of the workers' expected gradients to
        their mean.

    Returns:
      After 0 to T steps: T + 1 values along the first axis.

    >>> mixing = coefficients("random", 16, 0.1)
    >>> float(disagreement("gradient_averaging", mixing, 200)[-1].round(2))
    17.82
    """
    check_name("aggregation", aggregation, ("model_averaging", "gradient_averaging"))
    alpha0, _, _, beta = (np.asarray(value, float) for value in coefficients)
    noise, spread = np.asarray(noise, float), np.asarray(spread, float)
    distance = np.zeros(np.broadcast_shapes(alpha0.shape, noise.shape, spread.shape))
    along = np.zeros_like(distance)  # inner product of the replicas' offsets and the constant part
    rows = [distance]
    for _ in range(check_integers("steps", steps).item()):
        if aggregation == "model_averaging":
            distance = beta * (distance + noise + spread + 2 * along)
            along = alpha0 * (along + spread)
        else:
            distance = distance + beta * (noise + spread) + 2 * alpha0 * along
            along = along + alpha0 * spread
        rows.append(distance)
    return np.stack(rows)


class Constants(NamedTuple):
    """What the convergence theory assumes of a problem.

    Attributes:
      smoothness: L, of every worker's objective.
      sigma: standard deviation of a worker's batch gradient, all parameters together: sigma^2 is
        the mean over workers.
      zeta: zeta^2 is the mean squared distance of the workers' gradients to their mean.
      gap: objective at the start minus its minimum.
    """

    smoothness: Number
    sigma: Number
    zeta: Number
    gap: Number


def gradient_bound(
    coefficients: Coefficients,
    constants: Constants,
    *,
    workers: Any,
    learning_rate: Number,
    steps: Any,
) -> Number:
    """A bound on the mean over t < T of E|grad f(mean model)|^2, plain SGD. [derived]

    With ``kappa = beta / (1 - sqrt(beta))^2`` it is ``2 gap / (lr T) + L lr sigma^2 / N +
    [2 alpha2 L lr (1 + 6 kappa) + 2 kappa L^2 lr^2] (sigma^2 + 2 zeta^2)``, for model averaging
    from an equal start with exchangeable workers.

    Raises:
      ConfigError: where it does not hold: lr L > 1 or 4 L^2 lr^2 kappa > 1 (as at p = 1).

    >>> problem = Constants(smoothness=1.0, sigma=1.0, zeta=0.0, gap=1.0)
    >>> settings = {"workers": 16, "learning_rate": 0.1, "steps": 1000}
    >>> gradient_bound(coefficients("random", 16, 0.0), problem, **settings)
    0.02625...
    """
    n, T = check_integers("workers", workers), check_integers("steps", steps)
    L, sigma, zeta, gap = (np.asarray(value, float) for value in constants)
    lr, root = np.asarray(learning_rate, float), np.sqrt(coefficients.beta)
    with np.errstate(divide="ignore"):
        kappa = np.divide(np.square(root), np.square(1 - root))
        largest = np.minimum(1, np.divide(0.5, np.sqrt(kappa))) / L
    if not np.all((lr > 0) & (lr <= largest)):
        allowed = f"above 0 and at most {np.min(largest):.4g}: the bound holds there alone"
        raise ConfigError("learning_rate", learning_rate, allowed)
    drift = 2 * coefficients.alpha2 * L * lr * (1 + 6 * kappa) + 2 * kappa * (L * lr) ** 2
    loss_free = 2 * gap / (lr * T) + L * lr * sigma**2 / n
    return plain(loss_free + drift * (sigma**2 + 2 * zeta**2))


def recalled_learning_rate(
    coefficients: Coefficients, constants: Constants, *, workers: Any, steps: Any
) -> Number:
    """The learning rate of the paper's convergence theorem as remembered. [recalled]

    ``(1 - sqrt(beta)) / (6 L + 3 (sigma + zeta) sqrt(alpha2 T) + sigma sqrt(T / N))``.

    >>> problem = Constants(smoothness=1.0, sigma=1.0, zeta=0.0, gap=1.0)
    >>> mixing = coefficients("random", 16, 0.0)
    >>> recalled_learning_rate(mixing, problem, workers=16, steps=1600)
    0.0625
    """
    n, T = check_integers("workers", workers), check_integers("steps", steps)
    L, sigma, zeta, _ = constants
    kick = 3 * (sigma + zeta) * np.sqrt(coefficients.alpha2 * T)
    return plain((1 - np.sqrt(coefficients.beta)) / (6 * L + kick + sigma * np.sqrt(T / n)))
