"""Channels fitted to traces whose channel is known."""

import numpy as np
import pytest

from jaxlossy.channel import Channel
from jaxlossy.config import Config
from jaxlossy.fits import fit_bernoulli, fit_gilbert_elliott
from jaxlossy.trace import Trace


def _chains(rng, p, burst_ratio, links, length):
    """Losses of independent links, bool (link, packet), by a loop over packets."""
    lost = np.empty((links, length), bool)
    lost[:, 0] = rng.random(links) < p
    for i in range(1, length):
        chance = np.where(lost[:, i - 1], 1 - (1 - p) / burst_ratio, p / burst_ratio)
        lost[:, i] = rng.random(links) < chance
    return lost


def _trace(p, burst_ratio, *, placement="separate", seed=0, iterations=400, share=(4, 4, 3)):
    """Of 5 workers; every server has that many packets of the model."""
    rng, workers = np.random.default_rng(seed), 5
    directions = []
    for _ in range(2):
        runs = [
            _chains(rng, p, burst_ratio, workers, iterations * size)
            .reshape(workers, iterations, size)
            .swapaxes(0, 1)
            for size in share
        ]
        directions.append(~np.concatenate(runs, axis=2))
    return Trace(*directions, servers=len(share), placement=placement)


@pytest.mark.parametrize(("p", "burst_ratio"), [(0.1, 4.0), (0.3, 1.0), (0.05, 8.0)])
def test_the_true_channel_is_found_within_its_errors(p, burst_ratio):
    fits = [fit_gilbert_elliott(_trace(p, burst_ratio, seed=s, iterations=1000)) for s in range(8)]
    links = [link for fit in fits for link in (fit.up, fit.down)]
    for truth, estimates in (
        (p, [link.drop_probability for link in links]),
        (burst_ratio, [link.burst_ratio for link in links]),
    ):
        off = np.array([(value - truth) / error for value, error in estimates])
        assert abs(off.mean()) < 4 / np.sqrt(len(off))
        assert 0.5 < off.std() < 1.6  # 16 of them: errors are neither idle nor flattering
    for name in ("link_spread", "iteration_spread"):
        spread = np.array([getattr(link, name) for link in links])
        assert abs(spread.mean() - 1) < 0.15
    assert np.mean([link.burst_distance for link in links]) < 0.1


def test_independent_losses_are_not_enough_for_bursts():
    trace = _trace(0.1, 6.0)
    independent, bursty = fit_bernoulli(trace).up, fit_gilbert_elliott(trace).up
    assert independent.drop_probability.value == pytest.approx(1 - trace.up.mean())
    assert independent.burst_ratio == (1, 0)
    assert bursty.log_likelihood > independent.log_likelihood + 0.05
    assert bursty.burst_distance < 0.1 < 0.5 < independent.burst_distance
    assert independent.link_spread > 2 > bursty.link_spread
    alone = fit_bernoulli(_trace(0.1, 1.0)).up
    p = alone.drop_probability.value
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    assert alone.log_likelihood == pytest.approx(-entropy, rel=1e-2)


def test_links_and_iterations_that_differ_are_noticed():
    rng = np.random.default_rng(1)
    shape = (300, 6, 10)
    by_worker = np.linspace(0.02, 0.2, 6)[None, :, None]
    by_iteration = np.where(np.arange(300) % 10 == 0, 0.9, 0.05)[:, None, None]
    up, down = rng.random(shape) >= by_worker, rng.random(shape) >= by_iteration
    fit = fit_bernoulli(Trace(up, down, servers=2, placement="separate"))
    assert fit.up.link_spread > 4
    assert fit.up.iteration_spread == pytest.approx(1, abs=0.2)
    assert fit.down.iteration_spread > 4
    assert fit.down.link_spread == pytest.approx(1, abs=0.6)


def test_what_machines_send_to_themselves_is_not_counted():
    up = np.ones((50, 3, 6), bool)
    up[:, 0, 2:] = False  # all that worker 0 sends to the two others is lost
    fixed = fit_bernoulli(Trace(up, up, servers=3, placement="fixed")).up
    assert fixed.packets == 50 * 3 * 4
    assert fixed.drop_probability.value == pytest.approx(1 / 3)
    separate = fit_bernoulli(Trace(up, up, servers=3, placement="separate")).up
    assert separate.drop_probability.value == pytest.approx(4 / 18)


@pytest.mark.parametrize("delivered", [True, False])
def test_nothing_or_everything_lost(delivered):
    mask = np.full((4, 2, 6), delivered)
    fit = fit_gilbert_elliott(Trace(mask, mask, servers=2, placement="separate"))
    assert fit.up.drop_probability == (1 - delivered, 0)
    assert fit.up.log_likelihood == 0
    assert np.isnan(fit.up.link_spread)
    assert "independently" in str(fit)
    one = np.ones((1, 1, 1), bool)  # a worker alone: nothing crosses the network
    assert fit_bernoulli(Trace(one, one, servers=1, placement="fixed")).up.packets == 0


def test_a_fit_is_a_channel_and_says_how_far_off_it_is():
    fit = fit_gilbert_elliott(_trace(0.1, 4.0))
    assert isinstance(fit.channel(Config()), Channel)
    numbers = [
        float(n) for n in fit.channel.__name__.removeprefix("gilbert_elliott")[1:-1].split(",")
    ]
    found = [*(d.drop_probability.value for d in (fit.up, fit.down))]
    assert numbers == pytest.approx(
        [*found, fit.up.burst_ratio.value, fit.down.burst_ratio.value], rel=1e-5
    )
    lines = str(fit).splitlines()
    assert [line.split(":")[0] for line in lines] == ["Uplink", "Downlink"]
    assert "in bursts" in lines[0]
    assert "off by" in lines[1]
