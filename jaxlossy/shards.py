"""Which training examples each worker owns: alike for all workers, or skewed by label."""

import math
import numbers

import numpy as np

from jaxlossy.errors import ConfigError

# Keeps the stream of this module apart from any other use of the same seed.
_PURPOSE = 0x5A4D


def make_shards(
    labels: np.ndarray, *, workers: int, dirichlet_alpha: float, seed: int
) -> np.ndarray:
    """Deals the training examples out to the workers, each to at most one.

    All shards are equally long, so that they stack into one array and every worker weighs the
    same: ``examples // workers`` each, and at most ``workers - 1`` random examples go to nobody.

    Args:
      labels: ``(examples,)``, integers where ``dirichlet_alpha`` is finite.
      workers: how many shards, from 1 to the number of examples.
      dirichlet_alpha: concentration of the label skew, > 0. ``inf``: independent and identically
        distributed shards, a permutation cut into equal runs. Finite: every worker draws its class
        proportions from Dirichlet(alpha * share of each class in ``labels``) and then its examples
        without replacement; what an exhausted class would have given is drawn from the others.
        Until classes run out, the share of a class that makes up p of the labels has the standard
        deviation sqrt(p (1 - p) / (1 + alpha)) between workers.
      seed: an integer >= 0, of the shards alone: the seed of a training run changes nothing here.

    Returns:
      int32 ``(workers, examples_per_worker)``: indices into ``labels``, in random order.

    Raises:
      ConfigError: a value outside what is said above.

    Reference:
      Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated
      Visual Classification, 2019, arXiv 1909.06335.

    >>> labels = np.arange(10) % 2
    >>> make_shards(labels, workers=3, dirichlet_alpha=math.inf, seed=0).shape
    (3, 3)
    >>> make_shards(labels, workers=3, dirichlet_alpha=0.0, seed=0)
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: dirichlet_alpha: 0.0 is not allowed (allowed: a number > 0, or inf)
    """
    labels = np.asarray(labels)
    _check(labels, workers, dirichlet_alpha, seed)
    rng = np.random.default_rng((seed, _PURPOSE))
    order = rng.permutation(len(labels)).astype(np.int32)
    length = len(labels) // workers
    if math.isinf(dirichlet_alpha):
        return order[: workers * length].reshape(workers, length)

    _, label, available = np.unique(labels, return_inverse=True, return_counts=True)
    taken = _draw_counts(rng, available, workers, length, dirichlet_alpha)

    # In an order sorted by class, each class is cut into one run per worker and a rest, which goes
    # to an owner past the last worker. Sorting by owner then gathers every worker's runs.
    order = order[np.argsort(label[order], kind="stable")]
    runs = np.vstack([taken, available - taken.sum(axis=0)]).T
    owner = np.repeat(np.tile(np.arange(workers + 1), len(available)), runs.ravel())
    shards = order[np.argsort(owner, kind="stable")][: workers * length].reshape(workers, length)
    return rng.permuted(shards, axis=1)


def _draw_counts(
    rng: np.random.Generator, available: np.ndarray, workers: int, length: int, alpha: float
) -> np.ndarray:
    """Draws how many examples of each class each worker takes: ``(workers, classes)``."""
    concentration = alpha * (available / available.sum())
    left = available.copy()
    taken = np.zeros((workers, len(available)), dtype=np.int64)
    for row in taken:
        share = rng.dirichlet(concentration)
        # Drawing one example after the other and repeating a draw that hits an exhausted class
        # gives the same distribution as drawing all at once and repeating only what was too much.
        # Each round but the last exhausts a class, so there are at most `classes` rounds.
        while missing := length - row.sum():
            weight = np.where(left > 0, share, 0.0)
            if not weight.sum() > 0:  # All that is wanted is exhausted: take from what is left.
                weight = left
            drawn = np.minimum(rng.multinomial(missing, weight / weight.sum()), left)
            row += drawn
            left -= drawn
    return taken


def _check(labels: np.ndarray, workers: int, alpha: float, seed: int) -> None:
    if labels.ndim != 1:
        raise ConfigError("labels.shape", labels.shape, "(examples,)")
    if not isinstance(workers, numbers.Integral) or not 1 <= workers <= len(labels):
        allowed = f"an integer from 1 to {len(labels)}, the number of examples"
        raise ConfigError("workers", workers, allowed)
    if not isinstance(alpha, numbers.Real) or not alpha > 0:
        raise ConfigError("dirichlet_alpha", alpha, "a number > 0, or inf")
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise ConfigError("seed", seed, "an integer >= 0")
    if math.isfinite(alpha) and not np.issubdtype(labels.dtype, np.integer):
        allowed = "inf where the labels are not integers"
        raise ConfigError("dirichlet_alpha", alpha, allowed)
