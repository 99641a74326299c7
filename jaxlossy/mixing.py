"""What one exchange does to the replicas, on average: coefficients and matrices, exactly.

One exchange of one block is ``X_next = V W``, the columns of V the workers' blocks: column k of W
is ``1_R / |R|`` where worker k received the average over the set R that arrived, else ``e_k``.
Columns of W sum to 1, rows do not. ``A = 11' / N`` and ``Q = I - A``, N the number of workers.

Everything is float64 on the host. Public as part of ``jaxlossy.theory``, where the marks are
explained.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxlossy.errors import check_integers, check_name, check_range
from jaxlossy.packets import PLACEMENTS

Number = Any  # a float or an array of floats; arrays broadcast


class Coefficients(NamedTuple):
    """What one exchange does to the replicas on average, for exchangeable workers.

    Attributes:
      alpha0, alpha1, alpha2: E[W], E[W W'] and E[W A W'] are ``alpha I + (1 - alpha) A``.
      beta: alpha1 - alpha2, the contraction of the disagreement: E|V W Q|^2 = beta |V Q|^2. The
        kick to the mean model is E|(V W - V) 1/N|^2 = (alpha2 / N) |V Q|^2.
    """

    alpha0: Number
    alpha1: Number
    alpha2: Number
    beta: Number


def coefficients(placement: str, workers: Any, drop_probability: Number) -> Coefficients:
    """The exact coefficients of one exchange. [derived; the form of E[W W'] is from the paper]

    Every term summed is positive, so they are accurate to about 1e-12 of their value for any N and
    any p in [0, 1]. They do not depend on the number of servers. As N grows alpha1 and beta tend to
    p, and N alpha2 to 2p(1-p). At p = 1 nothing is mixed: 1, 1, 0, 1. With one worker I = A, so
    that any value fits; 0 is given, for there is nothing to contract.

    Args:
      placement: 'random' or 'separate'. With 'fixed' the workers are not exchangeable: see
        ``mixing_matrices``.
      workers: N, an integer >= 1, or an array of them.
      drop_probability: p of a message, either way, or an array.

    Raises:
      ConfigError: another placement, or a number outside its range.

    >>> coefficients("random", 16, 0.1)
    Coefficients(alpha0=0.0937..., alpha1=0.1004..., alpha2=0.0113..., beta=0.0891...)
    """
    check_name("placement", placement, ("random", "separate"))
    n, p = _checked(workers, drop_probability)
    q, pairs = 1 - p, np.maximum(n * (n - 1), 1)
    sums = _arrival_sums(n, p)
    if placement == "random":
        # R holds the server's own copy. Var and mean of (W - I) 1 give alpha2's two parts.
        h = (1 + sums.excess) / n
        alpha0 = p * (n - 2 + h) * n / pairs
        alpha1 = (p * (n - 1) ** 2 + (n * q + p) * sums.excess) / pairs
        variance = p * q * ((n + 1) * sums.excess + (n - 1) ** 2) / n
        alpha2 = (variance + n * q**2 * sums.excess + p**2 * sums.others) / pairs
    else:
        heard = _one_minus_power(p, n)
        alpha0 = p + q * p**n
        alpha1 = alpha0 + q * sums.separate * n / pairs
        alpha2 = q * ((p + n * q) * sums.separate + p * (n - 1) * heard) / pairs
    alphas = [np.where(n == 1, 0.0, alpha) for alpha in (alpha0, alpha1, alpha2)]
    return Coefficients(*map(plain, (*alphas, alphas[1] - alphas[2])))


class MixingMatrices(NamedTuple):
    """Moments of W, Float[from to] of N x N.

    Attributes:
      mean: E[W]: what a worker holds after an exchange, from what everyone held.
      second: E[W W'].
      averaged: E[W A W'], so that averaged.sum() is N.
    """

    mean: Float[np.ndarray, "worker worker"]
    second: Float[np.ndarray, "worker worker"]
    averaged: Float[np.ndarray, "worker worker"]


def mixing_matrices(placement: str, workers: int, drop_probability: float) -> MixingMatrices:
    """E[W], E[W W'] and E[W A W'] of any placement, for the block that worker 0 serves. [derived]

    For 'random' and 'separate' they are ``alpha I + (1 - alpha) A``. For 'fixed' the server has a
    row and a column of its own: three free values each, because columns of W sum to 1.
    Entries are accurate to about 1e-15.

    Raises:
      ConfigError: an unknown placement, or a number outside its range.

    >>> mixing_matrices("fixed", 2, 0.5).mean  # the server's copy counts more
    array([[0.75 , 0.375],
           [0.25 , 0.625]])
    """
    check_name("placement", placement, PLACEMENTS)
    if placement != "fixed":
        identity, average = np.eye(workers), np.full((workers, workers), 1 / workers)
        alphas = coefficients(placement, workers, drop_probability)[:3]
        return MixingMatrices(*(alpha * identity + (1 - alpha) * average for alpha in alphas))

    n, p = (array.item() for array in _checked(workers, drop_probability))
    sums, other = _arrival_sums(n, p), max(n - 1, 1)
    h = (1 + sums.excess) / n  # E[1/|R|]
    mean_inverse = (sums.separate + _one_minus_power(p, n)) / n  # the same with separate servers
    square = mean_inverse / (n * (1 - p)) if p < 1 else 1.0  # E[1/|R|^2]
    arrived = np.r_[h, np.full(n - 1, sums.others / other)]  # E[1_R/|R|]
    both = np.full((n, n), (1 - 3 * h + 2 * square) / (other * max(n - 2, 1)))  # E[1_R 1_R'/|R|^2]
    np.fill_diagonal(both, (h - square) / other)
    both[0] = both[:, 0] = (h - square) / other
    both[0, 0] = square

    # Column k is (received) 1_R/|R| + (not received) e_k, and receiving is independent of R.
    lost = np.r_[0.0, np.full(n - 1, p)]
    receivers = (1 - lost).sum()
    crossed = np.outer(arrived, lost * (receivers - (1 - lost)))
    row_sums = (
        (receivers**2 + (lost * (1 - lost)).sum()) * both
        + crossed
        + crossed.T
        + np.outer(lost, lost)
        + np.diag(lost * (1 - lost))
    )
    return MixingMatrices(
        mean=np.outer(arrived, 1 - lost) + np.diag(lost),
        second=receivers * both + np.diag(lost),
        averaged=row_sums / n,
    )


def server_weight(workers: Any, drop_probability: Number, step_size: Number = 1.0) -> Number:
    """How much more than 1/N the serving worker's data weigh on its block if 'fixed'. [derived]

    Its weight is this times 1/N, that of each other worker what is left. Where the workers' data
    differ this moves the fixed point of training. On a quadratic of curvature c it is exact for
    any learning rate: ``1 + (rho - 1) / (1 - (1 - lr c) p h)``, ``h = E[1/|R|]``.

    Args:
      workers: N.
      drop_probability: p.
      step_size: learning rate times curvature, in [0, 1]. At 1 the weight is rho = (1-p^N)(1 +
        p/(Nq)), that of one exchange; towards 0 later exchanges add to it.

    Raises:
      ConfigError: a number outside its range.

    >>> server_weight(16, 0.1), server_weight(16, 0.1, step_size=0.01)
    (1.0069..., 1.0069...)
    >>> server_weight(2, 0.5), server_weight(2, 0.5, step_size=0.01)
    (1.125, 1.19...)
    """
    n, p = _checked(workers, drop_probability)
    s = check_range("step_size", step_size, 0, 1)
    sums = _arrival_sums(n, p)
    rest = (1 - p) + p * sums.others + s * p * (1 - sums.others)  # 1 - (1 - s) p h
    # Where both are 0 (p = 1, no step) nothing is exchanged: all workers weigh the same.
    return plain(1 + sums.skew / np.where(rest > 0, rest, 1.0))


def message_loss(num_packets: Any, drop_probability: Number) -> Number:
    """How often a block of k packets is lost that needs all of them: 1 - (1-p)^k. [derived]

    Args:
      num_packets: k >= 1.
      drop_probability: p of a packet.

    Raises:
      ConfigError: a number outside its range.

    >>> message_loss(100, 0.001), message_loss(1, 1e-12)
    (0.0952..., 1e-12)
    """
    k = check_integers("num_packets", num_packets)
    p = check_range("drop_probability", drop_probability, 0, 1)
    with np.errstate(divide="ignore"):  # p = 1
        return plain(-np.expm1(k * np.log1p(-p)))


class _ArrivalSums(NamedTuple):
    """Averages over the set R of copies that arrive, as sums of positive terms.

    Attributes:
      excess: E[N/|R| - 1] where the server's own copy always arrives.
      others: E[1 - 1/|R|], likewise: the share of the average that is not the server's.
      skew: rho - 1, see ``server_weight``.
      separate: E[N/|R| - 1; |R| > 0] where every copy may be lost.
    """

    excess: Number
    others: Number
    skew: Number
    separate: Number


def _arrival_sums(workers: Any, p: Number) -> _ArrivalSums:
    """Sums over j of p^j and 1 - p^j, which no p near 0 or 1 cancels; O(N) each."""

    def one(n, p):
        j = np.arange(1, n)
        with np.errstate(divide="ignore"):  # p = 0
            exponent = j * np.log(p)
        power, rest = np.exp(exponent), -np.expm1(exponent)
        pairs = power * rest[::-1]  # p^j (1 - p^(N-j))
        return power.sum(), rest.sum() / n, pairs.sum() / n, (pairs / j[::-1]).sum() * n

    return _ArrivalSums(*np.vectorize(one, otypes=[float] * 4)(workers, p))


def _one_minus_power(p: Number, n: Any) -> Number:
    with np.errstate(divide="ignore"):
        return -np.expm1(n * np.log(p))


def _checked(workers: Any, drop_probability: Number) -> tuple[np.ndarray, np.ndarray]:
    return check_integers("workers", workers), check_range(
        "drop_probability", drop_probability, 0, 1
    )


def plain(values: Any) -> Number:
    """A Python float where there is only one number."""
    array = np.asarray(values)
    return array.item() if array.ndim == 0 else array
