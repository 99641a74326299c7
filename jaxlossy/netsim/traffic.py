"""Who sends what to whom: messages drawn at random or given, and the flows that carry them."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.netsim.flows import Flows
from jaxlossy.netsim.network import Network
from jaxlossy.netsim.routing import shortest_paths


@dataclasses.dataclass(frozen=True)
class Messages:
    """What one kind of traffic sends, in order of time (equal times as given).

    Attributes:
      start_ns: int64 (message,), when the sender has it.
      source, destination: int32 (message,), hosts.
      size: int64 (message,), bytes of payload.

    >>> Messages([5, 0], [0, 1], [1, 0], [100, 200]).size
    array([200, 100])
    """

    start_ns: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    size: np.ndarray

    def __post_init__(self):
        start = np.asarray(self.start_ns, np.int64)
        order = np.argsort(start, kind="stable")
        for name, dtype in zip(
            ("start_ns", "source", "destination", "size"),
            (np.int64, np.int32, np.int32, np.int64),
            strict=True,
        ):
            array = np.asarray(getattr(self, name), dtype)
            if array.shape != start.shape or start.ndim != 1:
                raise ConfigError(name, array.shape, f"(message,), as start_ns, {start.shape}")
            object.__setattr__(self, name, array[order])


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A distribution of message sizes.

    Attributes:
      size: bytes, int64 (size,).
      share: of the messages that have this size; sums to 1.
    """

    size: np.ndarray
    share: np.ndarray

    def __post_init__(self):
        size, share = np.asarray(self.size, np.int64), np.asarray(self.share, float)
        if size.ndim != 1 or size.shape != share.shape or (size < 0).any():
            raise ConfigError("size", self.size, "integers >= 0, as many as shares")
        if (share < 0).any() or abs(share.sum() - 1) > 1e-9:
            raise ConfigError("share", self.share, "numbers >= 0 whose sum is 1")
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "share", share)

    @property
    def mean(self) -> float:
        """Bytes."""
        return float(self.size @ self.share)

    def divided(self, by: int) -> "Sizes":
        """All sizes so many times smaller, rounded down."""
        return Sizes(self.size // by, self.share)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Sizes of so many messages."""
        return rng.choice(self.size, count, p=self.share)


#: Flow sizes of a web search and of data mining, as far as pFabric gives them: every flow at the
#: upper end of its bracket. (Alizadeh et al., pFabric, SIGCOMM 2013.)
WEB_SEARCH = Sizes(
    np.array([10, 20, 30, 50, 80, 200, 1000, 2000, 5000, 10_000, 30_000]) * 1000,
    np.array([0.15, 0.05, 0.10, 0.10, 0.13, 0.07, 0.10, 0.10, 0.10, 0.07, 0.03]),
)
DATA_MINING = Sizes(
    np.array([180, 216, 560, 900, 1100, 1870, 3160, 10_000, 400_000, 3_160_000, 10**8, 10**9]),
    np.array([0.1] * 9 + [0.05, 0.03, 0.02]),
)


def poisson(
    hosts: int, rate: float, duration_ns: int, size: int | Sizes, *, seed: int, start_ns: int = 0
) -> Messages:
    """Messages between all hosts: Poisson arrivals, ordered pairs of different hosts at random.

    Args:
      hosts: nodes 0 to hosts-1, at least two.
      rate: messages a second, of all hosts together.
      duration_ns: arrivals begin at `start_ns` and end so much later.
      size: bytes of every message, or their distribution.
      seed: of everything drawn.

    Raises:
      ConfigError: fewer than two hosts, a rate or duration that is not > 0.

    >>> web = poisson(16, 2000.0, 10**9, 100_000, seed=0)
    >>> len(web.start_ns), bool((web.source != web.destination).all())
    (2018, True)
    """
    if hosts < 2:
        raise ConfigError("hosts", hosts, "an integer >= 2")
    for name, value in (("rate", rate), ("duration_ns", duration_ns)):
        if not 0 < value < np.inf:
            raise ConfigError(name, value, "a finite number > 0")
    rng = np.random.default_rng(seed)
    # Given how many there are, the arrivals of a Poisson process are independent and uniform.
    count = rng.poisson(rate * duration_ns * 1e-9)
    start = start_ns + np.sort(rng.integers(0, int(duration_ns), count))
    source = rng.integers(0, hosts, count)
    destination = (source + rng.integers(1, hosts, count)) % hosts
    drawn = size.draw(rng, count) if isinstance(size, Sizes) else np.full(count, size)
    return Messages(start, source, destination, drawn)


def make_flows(network: Network, kinds: Mapping[str, Messages]) -> Flows:
    """Flows in order of their start, routed over shortest paths (``routing.shortest_paths``).

    Messages that start together keep the order of the kinds, so that the flows of one kind are its
    messages in their order.

    Args:
      kinds: name to messages, such as {"web": ..., "train": ...}.

    Raises:
      ConfigError: as ``Flows`` and ``routing.shortest_paths``.

    >>> from jaxlossy.netsim.topologies import star
    >>> network = star(2, rate_bps=10**9, delay_ns=20)
    >>> flows = make_flows(network, {"web": Messages([7], [0], [1], [10]),
    ...                              "train": Messages([3, 7], [0, 1], [1, 0], [20, 30])})
    >>> flows.size, flows.traffic
    (array([20, 10, 30]), array([1, 0, 1], dtype=int8))
    """
    everything = list(kinds.values())
    start = np.concatenate([messages.start_ns for messages in everything])
    order = np.argsort(start, kind="stable")

    def merged(name):
        return np.concatenate([getattr(messages, name) for messages in everything])[order]

    traffic = np.repeat(np.arange(len(everything)), [len(m.start_ns) for m in everything])
    source, destination = merged("source"), merged("destination")
    return Flows(
        start_ns=start[order],
        source=source,
        destination=destination,
        size=merged("size"),
        traffic=traffic[order].astype(np.int8),
        names=tuple(kinds),
        data_path=shortest_paths(network, source, destination),
        ack_path=shortest_paths(network, destination, source),
    )
