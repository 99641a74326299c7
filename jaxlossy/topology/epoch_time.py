"""How long an epoch takes: the expected maximum of shifted exponential times.

``E[max] = int (1 - prod_j F_j(t)) dt`` with ``F_j(t) = 1 - exp(-(t - shift_j) / mean_j)`` from the
shift on. Two quadratures, which know nothing of each other: one for a single set of nodes, from
their latest shift on; and a grid for all sets of a problem with the same number of L-nodes, on
which a further node is one multiplication.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxlossy.topology.model import Problem

NEVER = -800.0  # stands for log 0: its exponential is 0, and sums of it stay finite
ORDERS = (0.03, 0.25, 0.5)  # widths of panels, in means, up to which 2, 3 and 4 points do
WIDEST = 1.5  # panel, in means; it has 8 points
REACH = 35.0  # means after which nothing of an exponential is left in float64


def expected_maximum(shift: Float[np.ndarray, " n"], mean: Float[np.ndarray, " n"]) -> float:
    """E[max_j (shift_j + Exp(mean_j))], to about 12 digits.

    From the latest shift on the integrand is smooth, with tails at the scale of each mean; the
    substitution ``x = exp(u - exp(-u))`` has the trapezoidal rule converge exponentially.

    Args:
      shift: least times, seconds.
      mean: means of the exponentials on top, seconds; 0 is none.

    >>> round(expected_maximum(np.zeros(4), np.ones(4)), 9), round(1 + 1/2 + 1/3 + 1/4, 9)
    (2.083333333, 2.083333333)
    """
    start = float(shift.max())
    late = start - shift[mean > 0]
    mean = mean[mean > 0]
    if not len(mean):
        return start
    end = math.log(REACH + math.log(len(mean)))
    u = np.linspace(-3.7, end, 257)
    x = mean.max() * np.exp(u - np.exp(-u))
    weight = x * (1 + np.exp(-u)) * (u[1] - u[0])
    with np.errstate(divide="ignore"):
        below = np.log1p(-np.exp(-(late[:, None] + x) / mean[:, None])).sum(axis=0)
    return start - float(weight @ np.expm1(below))


class TimeGrid(NamedTuple):
    """The times at which the distributions of a problem's nodes are tabulated, for n L-nodes.

    For sets A of n L-nodes and S of I-nodes, ``E[max] = start + weights @ (1 - product)``, where
    the product is that of the rows of A and S.

    Attributes:
      start: a time before which no set of n L-nodes is ready, seconds.
      weights: of the quadrature.
      log_learning: log F of each L-node; NEVER where F is 0.
      log_information: log F of each I-node.
      information: F of each I-node.
    """

    start: float
    weights: Float[np.ndarray, " G"]
    log_learning: Float[np.ndarray, "L G"]
    log_information: Float[np.ndarray, "I G"]
    information: Float[np.ndarray, "I G"]

    def expected_maximum(self, log_product: Float[np.ndarray, "*batch G"]) -> np.ndarray:
        """E[max] of sets with these sums of log F."""
        return self.start - np.expm1(log_product) @ self.weights


def time_grid(problem: Problem, learners: int) -> TimeGrid:
    """The grid for sets of this many L-nodes.

    It ends where the last node is surely ready that can be before ``T_max``; sets with others,
    which have no time for one epoch, are ready by then as far as the grid knows.

    Gauss-Legendre panels, cut at every shift, where a product has a kink, and no wider than a
    node's mean for some means after its shift, then wider and wider.
    """
    shift = np.concatenate([problem.work / learners, problem.dmin])
    mean = np.concatenate([problem.strag, problem.dexp])
    start = float(np.sort(problem.work)[learners - 1] / learners)
    early = shift <= max(problem.T_max, start)
    t, weights = _panels(shift[early], mean[early], start)
    x = t - shift[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        distribution = np.where(x > 0, -np.expm1(-x / mean[:, None]), 0.0)
        log = np.where(x > 0, np.log1p(-np.exp(-np.maximum(x, 0) / mean[:, None])), NEVER)
    log = np.maximum(log, NEVER)
    split = problem.learning
    return TimeGrid(start, weights, log[:split], log[split:], distribution[split:])


def _panels(shift: np.ndarray, mean: np.ndarray, start: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of the quadrature from ``start`` to where all is over."""
    end = float(np.max(shift + mean * (REACH + math.log(len(mean))), initial=start))
    cuts = np.unique(np.append(shift[(shift > start) & (shift < end)], end))
    over = shift + REACH * mean
    lefts, rights, left = [], [], start
    for cut in cuts:
        while left < cut:
            acting = (shift <= left) & (left < over)
            room = WIDEST * mean + np.maximum(left - shift - 8 * mean, 0) / 4
            room = float(np.min(room, where=acting, initial=np.inf))
            parts = math.ceil((cut - left) / room) if room < cut - left else 1
            right = cut if parts == 1 else left + (cut - left) / parts
            lefts.append(left)
            rights.append(right)
            left = right
    left, width = np.array(lefts), np.subtract(rights, lefts)
    relative = width / np.min(mean[mean > 0], initial=np.inf)
    points, weights = [], []
    for order, least, most in zip((2, 3, 4, 8), (-1, *ORDERS), (*ORDERS, np.inf), strict=True):
        some = (relative > least) & (relative <= most)
        x, w = np.polynomial.legendre.leggauss(order)
        points.append((left[some, None] + width[some, None] * (1 + x) / 2).ravel())
        weights.append((width[some, None] * w / 2).ravel())
    t, w = np.concatenate(points), np.concatenate(weights)
    order = np.argsort(t)
    return t[order], w[order]
