"""Cheap channels fitted to a recorded trace, and how far off they are.

A link's losses are read in the order in which it carried its packets, message after message and
iteration after iteration: the order in which a channel draws them.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxlossy.channel import Channel, gilbert_elliott
from jaxlossy.config import Config
from jaxlossy.packets import owners
from jaxlossy.trace import Trace


class Estimate(NamedTuple):
    """A number and its standard error, which holds if the fitted channel is the true one."""

    value: float
    error: float

    def __str__(self):
        return f"{self.value:.4g} ± {self.error:.1g}"


@dataclasses.dataclass(frozen=True)
class LinkFit:
    """A channel of one direction, fitted to all its links together.

    Attributes:
      packets: that crossed the network.
      drop_probability: share lost.
      burst_ratio: mean length of a burst over that of independent losses; 1 if taken for granted.
      log_likelihood: nats a packet; larger is closer.
      burst_distance: largest difference of the distribution functions of the lengths of bursts,
        observed and fitted (Kolmogorov-Smirnov), 0 to 1.
      link_spread, iteration_spread: standard deviation of the share lost between links, and
        between iterations, over what the fitted channel would show; 1 where it fits, NaN for one
        link or iteration, or no losses.
    """

    packets: int
    drop_probability: Estimate
    burst_ratio: Estimate
    log_likelihood: float
    burst_distance: float
    link_spread: float
    iteration_spread: float

    def __str__(self):
        how = "independently"
        if self.burst_ratio.error:
            how = f"in bursts {self.burst_ratio} times as long as independent losses"
        return (
            f"{self.drop_probability} of {self.packets:,} packets lost, {how}; off by "
            f"{self.burst_distance:.2f} in the lengths of bursts (0 to 1), by a factor "
            f"{self.link_spread:.2g} in how links differ and {self.iteration_spread:.2g} in how "
            f"iterations differ; {self.log_likelihood:.4g} nats a packet."
        )


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted channel; print it for one sentence a direction.

    Attributes:
      up, down: of the two directions.
    """

    up: LinkFit
    down: LinkFit

    @property
    def channel(self) -> Callable[[Config], Channel]:
        """The fitted channel, packet by packet: ``sweep(..., channel=fit.channel)``.

        Nothing in a config changes it. A burst ratio below 1 counts as 1.
        """
        p = self.up.drop_probability.value, self.down.drop_probability.value
        ratio = [max(1.0, link.burst_ratio.value) for link in (self.up, self.down)]

        def make(config: Config) -> Channel:
            del config
            return gilbert_elliott(*p, *ratio, loss_unit="packet")

        # Tells sweeps with other fits apart.
        make.__name__ = "gilbert_elliott({:.6g}, {:.6g}, {:.6g}, {:.6g})".format(*p, *ratio)
        return make

    def __str__(self):
        return f"Uplink: {self.up}\nDownlink: {self.down}"


def fit_bernoulli(trace: Trace) -> Fit:
    """Independent losses, by maximum likelihood: the share lost.

    >>> arrived = np.random.default_rng(0).uniform(size=(50, 4, 32)) >= 0.1
    >>> print(fit_bernoulli(Trace(arrived, arrived, servers=1, placement="separate")))
    Uplink: 0.1055 ± 0.004 of 6,400 packets lost, independently; off by 0.02 in the lengths ...
    Downlink: ...
    """
    return Fit(*(_fit(trace, lost, bursts=False) for lost in (~trace.up, ~trace.down)))


def fit_gilbert_elliott(trace: Trace) -> Fit:
    """Bursty losses (``channel.gilbert_elliott``), by maximum likelihood given the first packet.

    The chain's states are seen in the losses, so that its two transition probabilities are counted:
    s from delivered to lost, r back. The share lost is s / (s+r) and the burst ratio 1 / (s+r).
    """
    return Fit(*(_fit(trace, lost, bursts=True) for lost in (~trace.up, ~trace.down)))


def _fit(trace: Trace, lost: np.ndarray, *, bursts: bool) -> LinkFit:
    links = _links(trace, lost)
    packets = sum(link.size for link in links)
    in_order = [link.reshape(len(link), -1) for link in links if link.size]
    counts = sum(
        map(_transitions, in_order), np.zeros((2, 2), int)
    )  # [before, now]: 0 delivered, 1 lost
    share = sum(int(link.sum()) for link in links) / max(packets, 1)
    (stay, start), (end, go_on) = counts.tolist()
    if bursts and start and end:
        s, r = start / (start + stay), end / (end + go_on)
        var_s, var_r = s * (1 - s) / (start + stay), r * (1 - r) / (end + go_on)
        p, ratio = s / (s + r), 1 / (s + r)
        drop = Estimate(p, float(np.hypot(r * var_s**0.5, s * var_r**0.5)) * ratio**2)
        burst = Estimate(ratio, float(np.hypot(var_s**0.5, var_r**0.5)) * ratio**2)
    else:  # independent, or too few losses to see how they follow each other
        s, r = share, 1 - share
        drop = Estimate(share, (share * (1 - share) / max(packets, 1)) ** 0.5)
        burst = Estimate(1.0, 0.0)
    chances = np.array([[1 - s, s], [r, 1 - r]])
    surprise = -counts * np.log(np.where(counts > 0, chances, 1.0))
    links_differ, iterations_differ = _spreads(links, drop.value, burst.value)
    return LinkFit(
        packets=packets,
        drop_probability=drop,
        burst_ratio=burst,
        log_likelihood=-float(surprise.sum()) / max(int(counts.sum()), 1),
        burst_distance=_burst_distance(in_order, r),
        link_spread=links_differ,
        iteration_spread=iterations_differ,
    )


def _links(trace: Trace, lost: np.ndarray) -> list[np.ndarray]:
    """The losses on every server's links, each bool (link, iteration, packet)."""
    server = np.asarray(owners(trace.num_packets, trace.servers))
    bounds = np.searchsorted(server, np.arange(trace.servers + 1))
    links = []
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        of_server = lost[:, :, start:end].swapaxes(0, 1)
        if trace.placement == "fixed":  # its own packets never cross the network
            of_server = np.delete(of_server, number, axis=0)
        links.append(of_server)
    return links


def _transitions(link: np.ndarray) -> np.ndarray:
    pairs = 2 * link[:, :-1].astype(np.int8) + link[:, 1:]
    return np.bincount(pairs.ravel(), minlength=4).reshape(2, 2)


def _burst_distance(links: list[np.ndarray], end: float) -> float:
    """Of the lengths observed from geometric ones, which end with this probability."""
    lengths = np.concatenate([np.zeros(0, int), *map(_bursts, links)])
    if not lengths.size:
        return 0.0
    observed = np.bincount(lengths)[1:].cumsum() / lengths.size
    fitted = 1 - (1 - end) ** np.arange(1, observed.size + 1)
    return float(np.abs(observed - fitted).max())


def _bursts(link: np.ndarray) -> np.ndarray:
    """Lengths of the runs of losses."""
    edges = np.diff(np.pad(link, ((0, 0), (1, 1))).astype(np.int8), axis=1).ravel()
    return np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)


def _spreads(links: list[np.ndarray], p: float, burst_ratio: float) -> tuple[float, float]:
    """How much more links, and iterations, differ in their share lost than the fit lets expect."""
    kept = 1 - 1 / burst_ratio

    def variance(length):  # of the number lost among so many packets of a link
        ends = 2 * kept * (1 - kept**length) / (1 - kept) ** 2
        return p * (1 - p) * (length * (1 + kept) / (1 - kept) - ends)

    by_link, by_iteration = [], []  # numbers lost beyond what is expected, and their variances
    for link in links:
        count, iterations, length = link.shape
        beyond = link - p
        by_link.append((beyond.sum(axis=(1, 2)), np.full(count, variance(iterations * length))))
        by_iteration.append((beyond.sum(axis=(0, 2)), count * variance(length)))

    def spread(number, expected):
        if number.size < 2 or not np.all(expected > 0):
            return float("nan")
        return float(np.sqrt((number**2 / expected).mean()))

    return (
        spread(*map(np.concatenate, zip(*by_link, strict=True))),
        spread(*map(sum, zip(*by_iteration, strict=True))),
    )
