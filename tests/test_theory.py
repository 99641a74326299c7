"""The theory's numbers against exact arithmetic, enumeration, and the simulator's own exchanges."""

import csv
import decimal
import itertools
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pytest
import reference

from jaxlossy import theory
from jaxlossy.errors import ConfigError
from jaxlossy.rps import measure

REFERENCE = Path(__file__).parent / "data" / "rps_coefficients.csv"
PRECISE = decimal.Context(prec=80, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
TINY, ALMOST_ONE = 1e-12, 1 - 1e-12


def _rows():
    with REFERENCE.open() as file:
        return list(csv.DictReader(file))


def _textbook(placement, n, p):
    """alpha0, alpha1, alpha2 as first derived, terms that cancel and all, in exact numbers."""
    q, e = 1 - p, p**n
    if placement == "random":
        h = (1 - e) / (n * q)
        rho = (1 - e) * (1 + p / (n * q))
        a0 = p * (n - 2 + h) / (n - 1)
        a1 = p + (rho - 1) / (n - 1)
        a2 = (rho - 1) * (n * q + p) + p * (1 - e) * (n - 1) / n
        a2 = (a2 + 2 * p * (1 - h) * (p + (n - 1) * q)) / (n * (n - 1))
        return a0, a1, a2
    h0, pmf = 0 * p, e
    for k in range(1, n + 1):
        pmf = pmf * (n - k + 1) / k * q / p
        h0 += pmf / k
    a0 = (n * (p * (1 - e) + e) + q * (1 - e) - 1) / (n - 1)
    a1 = (n * (q * h0 + p + q * e) - 1) / (n - 1)
    a2 = (n * p * q + n**2 * q**2) * h0 + (1 - e) * (2 * (n - 1) * p * q + n * p) + n * e - n
    return a0, a1, a2 / (n * (n - 1))


@pytest.mark.parametrize("placement", ["random", "separate"])
@pytest.mark.parametrize("workers", [2, 3, 16, 100_000])
def test_coefficients_are_exact_from_nearly_no_loss_to_nearly_nothing_else(placement, workers):
    p = np.array([TINY, 0.1, 0.5, ALMOST_ONE])
    found = theory.coefficients(placement, workers, p)
    with decimal.localcontext(PRECISE):
        for index, probability in enumerate(p.tolist()):
            exact = _textbook(placement, workers, decimal.Decimal(probability))
            exact = [float(value) for value in (*exact, exact[1] - exact[2])]
            np.testing.assert_allclose([c[index] for c in found], exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize("workers", [2, 3, 100_000])
@pytest.mark.parametrize("placement", ["random", "separate"])
def test_coefficients_at_the_ends(placement, workers):
    assert theory.coefficients(placement, workers, 0.0) == (0, 0, 0, 0)
    np.testing.assert_allclose(theory.coefficients(placement, workers, 1.0), (1, 1, 0, 1), 1e-15)
    near = theory.coefficients(placement, workers, 1e-300)
    assert all(0 < value < 1e-299 for value in near)


@pytest.mark.parametrize("placement", ["random", "separate"])
def test_one_worker_has_nothing_to_contract(placement):
    assert theory.coefficients(placement, 1, 0.3) == (0, 0, 0, 0)
    assert theory.coefficients(placement, 1, 1.0) == (0, 0, 0, 0)


def test_coefficients_are_those_of_the_reference_file_to_its_last_digit():
    rows = _rows()
    assert len(rows) == 96
    for row in rows:
        workers, p = int(row["num_workers"]), float(row["drop_probability"])
        found = theory.coefficients(row["placement"], workers, p)
        for name, value in found._asdict().items():
            # It holds 9 significant digits: half a unit of the last one is its rounding.
            digit = 10.0 ** (np.floor(np.log10(value)) - 8) if value > 0 else 0.0
            assert abs(value - float(row[name])) <= 0.501 * digit, (row, name, value)


def test_coefficients_broadcast():
    p, workers = np.array([0.0, 0.2, 1.0]), np.array([[1], [2], [50]])
    for placement in ("random", "separate"):
        table = theory.coefficients(placement, workers, p)
        for (i, n), (j, q) in itertools.product(enumerate(workers[:, 0]), enumerate(p)):
            one = theory.coefficients(placement, n, q)
            assert all(isinstance(value, float) for value in one)
            assert one == tuple(c[i, j] for c in table)


def test_many_workers_reach_the_limits():
    for placement, p in itertools.product(("random", "separate"), (0.01, 0.3, 0.9)):
        found = theory.coefficients(placement, 100_000, p)
        assert found.alpha1 == pytest.approx(p, rel=2e-3)
        assert found.beta == pytest.approx(p, rel=2e-3)
        assert 100_000 * found.alpha2 == pytest.approx(2 * p * (1 - p), rel=2e-3)


def _enumerate(placement, n, p):
    """E[W], E[W W'] and E[W A W'] over every outcome, for the block that worker 0 serves first."""
    identity = np.broadcast_to(np.eye(n)[:, None], (n, 1, n))
    average = np.full((n, n), 1 / n)
    hosts = {"fixed": [0], "random": range(n), "separate": [None]}[placement]
    total, weight = np.zeros((3, n, n)), 0.0
    for host in hosts:
        links = [(way, k) for way in range(2) for k in range(n) if k != host]
        for fate in itertools.product((True, False), repeat=len(links)):
            masks = np.ones((2, n, 1), bool)
            for (way, k), arrived in zip(links, fate, strict=True):
                masks[way, k, 0] = arrived
            chance = (1 - p) ** sum(fate) * p ** (len(fate) - sum(fate)) / len(hosts)
            W = reference.average_arrived(identity, *masks)[:, 0].T
            total += chance * np.stack([W, W @ W.T, W @ average @ W.T])
            weight += chance
    assert weight == pytest.approx(1)
    return total


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("placement", ["fixed", "random", "separate"])
def test_mixing_matrices_are_those_of_all_outcomes(placement, workers, p):
    found = theory.mixing_matrices(placement, workers, p)
    expected = _enumerate(placement, workers, p)
    for matrix, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(matrix, values, rtol=0, atol=1e-14)


def test_every_worker_serving_in_turn_is_random_placement():
    n, p = 40, 0.2
    for fixed, random in zip(
        theory.mixing_matrices("fixed", n, p), theory.mixing_matrices("random", n, p), strict=True
    ):
        turns = np.mean([np.roll(fixed, (k, k), (0, 1)) for k in range(n)], axis=0)
        np.testing.assert_allclose(turns, random, atol=1e-15)


@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("placement", ["random", "separate"])
def test_contraction_and_kick_of_the_simulator_are_the_theorys(placement, workers):
    """Its own channel, placement and averaging, within 4 standard errors."""
    p = sorted(
        float(row["drop_probability"])
        for row in _rows()
        if row["placement"] == placement and int(row["num_workers"]) == workers
    )
    assert len(p) == 8
    exact = theory.coefficients(placement, workers, np.array(p))
    mean, error = measure.measure_coefficients(placement, workers, p, servers=2, trials=3000)
    for name in exact._fields:
        off = np.abs(getattr(mean, name) - getattr(exact, name))
        assert (off <= 4 * getattr(error, name) + 1e-6).all(), (name, off, error)
        # An error bar that any value fits within would show nothing.
        inner = [i for i, q in enumerate(p) if 0 < q < 1]
        assert (getattr(error, name)[inner] < 0.2 * getattr(exact, name)[inner]).all()


def test_fixed_placement_of_the_simulator_is_the_theorys():
    n, p, trials = 5, 0.3, 20_000
    keys = jax.random.split(jax.random.key(3), trials)

    @jax.jit
    @jax.vmap
    def draw(key):
        return measure.mixing_matrix("fixed", workers=n, servers=1, drop_probability=p, key=key)[0]

    W = np.asarray(draw(keys), np.float64)
    row_sums = W.sum(axis=2)
    averaged = row_sums[:, :, None] * row_sums[:, None] / n
    measured = (W, W @ W.transpose(0, 2, 1), averaged)
    for samples, exact in zip(measured, theory.mixing_matrices("fixed", n, p), strict=True):
        error = samples.std(axis=0, ddof=1) / np.sqrt(trials)
        assert (np.abs(samples.mean(axis=0) - exact) <= 4.5 * error + 1e-6).all()
        assert error.max() < 0.02


def test_the_servers_count_does_not_matter():
    exact = theory.coefficients("separate", 3, 0.4)
    for servers in (1, 6):
        mean, error = measure.measure_coefficients(
            "separate", 3, 0.4, servers=servers, trials=3000, seed=1
        )
        for value, off, expected in zip(mean, error, exact, strict=True):
            assert abs(value[0] - expected) <= 4 * off[0]


@pytest.mark.parametrize("step_size", [1.0, 0.3, 1e-6])
def test_server_weight_is_the_fixed_point_of_the_mean_mixing(step_size):
    for n, p in itertools.product((2, 3, 10), (0.0, 0.2, 0.9)):
        M = theory.mixing_matrices("fixed", n, p).mean
        # X_next = ((1 - s) X + s B) W on average, and the mean model is X 1/N.
        weights = (
            step_size * M @ np.linalg.solve(np.eye(n) - (1 - step_size) * M, np.full(n, 1 / n))
        )
        found = theory.server_weight(n, p, step_size)
        assert found == pytest.approx(n * weights[0], rel=1e-9)
    rho = (1 - 0.2**10) * (1 + 0.2 / (10 * 0.8))
    assert theory.server_weight(10, 0.2) == pytest.approx(rho, rel=1e-14)
    tiny = theory.server_weight(10, TINY, step_size) - 1
    assert tiny == pytest.approx(TINY / 10, rel=1e-3)


def test_server_weight_at_the_ends():
    assert theory.server_weight(1, 0.5) == 1
    assert theory.server_weight(4, 1.0) == 1
    assert theory.server_weight(4, 1.0, step_size=0.0) == 1
    assert theory.server_weight(4, 0.0, step_size=0.0) == 1
    # Hardly anything exchanged, and then only with the server.
    assert theory.server_weight(4, ALMOST_ONE, step_size=0.0) == pytest.approx(8 / 5, rel=1e-9)


@pytest.mark.parametrize("p", [0.0, 1e-300, TINY, 0.1, ALMOST_ONE, 1.0])
def test_message_loss(p):
    packets = np.array([1, 2, 7])
    exact = [float(1 - (1 - Fraction(p)) ** int(k)) for k in packets]
    np.testing.assert_allclose(theory.message_loss(packets, p), exact, rtol=1e-12, atol=0)
    assert theory.message_loss(10**9, 1e-9) == pytest.approx(1 - np.exp(-1), rel=1e-8)


def test_slow_down_does_not_vanish_with_many_workers():
    slow = [theory.slow_down(theory.coefficients("random", n, 0.1), n) for n in (2, 16, 100_000)]
    assert slow == pytest.approx([1.80, 2.03, 2.08], abs=0.005)
    assert theory.slow_down(theory.coefficients("random", 4, 0.0), 4) == 1
    assert theory.slow_down(theory.coefficients("random", 4, 1.0), 4) == np.inf


def test_disagreement_under_unit_noise():
    mixing = theory.coefficients("random", 16, 0.1)
    drifting = theory.disagreement("gradient_averaging", mixing, 200)
    mixed = theory.disagreement("model_averaging", mixing, 200)
    np.testing.assert_allclose(drifting, mixing.beta * np.arange(201), rtol=1e-12)
    t = np.arange(201)
    np.testing.assert_allclose(mixed, mixing.beta * (1 - mixing.beta**t) / (1 - mixing.beta))
    assert (drifting[-1], mixed[-1]) == pytest.approx((17.82, 0.098), abs=0.005)


def test_disagreement_of_isolated_workers_is_theirs_alone():
    """Nothing arrives: t steps of noise and a difference that adds up, whatever is averaged."""
    mixing, t = theory.coefficients("separate", 4, 1.0), np.arange(11)
    for aggregation in ("model_averaging", "gradient_averaging"):
        found = theory.disagreement(aggregation, mixing, 10, noise=2.0, spread=3.0)
        np.testing.assert_allclose(found, 2 * t + 3 * t**2, rtol=1e-12)


@pytest.mark.parametrize("aggregation", ["model_averaging", "gradient_averaging"])
def test_disagreement_is_that_of_all_outcomes(aggregation):
    """Second moments of constant gradients, carried through E[W (x) W] instead of coefficients."""
    n, p, steps = 3, 0.4, 5
    rng = np.random.default_rng(0)
    values = rng.normal(size=n)
    offsets = values - values.mean()
    outcomes = []
    for fate in itertools.product((True, False), repeat=2 * n):
        masks = np.array(fate).reshape(2, n, 1)
        W = reference.average_arrived(np.eye(n)[:, None], *masks)[:, 0].T
        outcomes.append(((1 - p) ** sum(fate) * p ** (2 * n - sum(fate)), W))
    # E[x x'] and E[x] of one parameter x (worker,), and of its constant gradient g.
    second, first, gram = np.zeros((n, n)), np.zeros(n), np.outer(values, values)
    Q = np.eye(n) - 1 / n
    expected = [0.0]
    for _ in range(steps):
        if aggregation == "model_averaging":
            cross = np.outer(first, values)
            moved = second + cross + cross.T + gram
            second = sum(chance * W.T @ moved @ W for chance, W in outcomes)
            first = sum(chance * W.T @ (first + values) for chance, W in outcomes)
        else:
            mean = sum(chance * W.T @ values for chance, W in outcomes)
            cross = np.outer(first, mean)
            second = second + cross + cross.T
            second = second + sum(chance * W.T @ gram @ W for chance, W in outcomes)
            first = first + mean
        expected.append(np.trace(Q @ second @ Q) / n)
    found = theory.disagreement(
        aggregation,
        theory.coefficients("separate", n, p),
        steps,
        noise=0.0,
        spread=(offsets**2).mean(),
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


PROBLEM = theory.Constants(smoothness=2.0, sigma=3.0, zeta=1.5, gap=5.0)


def test_gradient_bound():
    settings = {"workers": 8, "learning_rate": 0.1, "steps": 50}
    none = theory.gradient_bound(theory.coefficients("random", 8, 0.0), PROBLEM, **settings)
    assert none == pytest.approx(2 * 5 / (0.1 * 50) + 2 * 0.1 * 9 / 8)
    mixing = theory.Coefficients(0.0, 0.26, 0.01, 0.25)
    kappa = 0.25 / 0.5**2
    drift = 2 * 0.01 * 0.2 * (1 + 6 * kappa) + 2 * kappa * 0.2**2
    some = theory.gradient_bound(mixing, PROBLEM, **settings)
    assert some == pytest.approx(none + drift * (9 + 2 * 2.25))
    many = theory.gradient_bound(
        theory.coefficients("random", 8, np.array([0.0, 0.1])), PROBLEM, **settings
    )
    assert many.shape == (2,)
    assert many[0] == none < many[1]


@pytest.mark.parametrize(
    ("p", "learning_rate"), [(0.0, 0.51), (0.0, 0.0), (0.5, 0.2), (1.0, 1e-9), (0.1, np.nan)]
)
def test_the_bound_is_refused_where_it_does_not_hold(p, learning_rate):
    mixing = theory.coefficients("random", 8, p)
    with pytest.raises(ConfigError, match=r"^learning_rate: .* at most [\d.]+: ") as error:
        theory.gradient_bound(mixing, PROBLEM, workers=8, learning_rate=learning_rate, steps=10)
    assert "\n" not in str(error.value)


def test_recalled_learning_rate():
    mixing = theory.Coefficients(0.0, 0.26, 0.01, 0.25)
    found = theory.recalled_learning_rate(mixing, PROBLEM, workers=4, steps=100)
    assert found == pytest.approx(0.5 / (12 + 3 * 4.5 * 1 + 3 * 5))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.coefficients("fixed", 4, 0.1), "placement"),
        (lambda: theory.coefficients("random", 0, 0.1), "workers"),
        (lambda: theory.coefficients("random", 2.5, 0.1), "workers"),
        (lambda: theory.coefficients("random", 4, 1.1), "drop_probability"),
        (lambda: theory.coefficients("random", 4, np.array([0.1, np.nan])), "drop_probability"),
        (lambda: theory.mixing_matrices("near", 4, 0.1), "placement"),
        (lambda: theory.server_weight(4, 0.1, step_size=1.5), "step_size"),
        (lambda: theory.message_loss(0, 0.1), "num_packets"),
        (lambda: theory.disagreement("fedavg", (0, 0, 0, 0), 1), "aggregation"),
        (lambda: measure.measure_coefficients("random", 4, 0.1, servers=5), "servers"),
        (lambda: measure.measure_coefficients("random", 4, 0.1, trials=1), "trials"),
        (lambda: measure.measure_coefficients("random", 4, -0.1), "drop_probability"),
    ],
)
def test_wrong_input_is_one_line(call, field):
    with pytest.raises(ConfigError) as error:
        call()
    assert error.value.field == field
