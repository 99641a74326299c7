"""What a network is: nodes and directed links, each with one output port at its beginning."""

import dataclasses

import numpy as np

from jaxlossy.errors import ConfigError

#: Indices of nodes, links and flows are 32-bit.
MAX_INDEX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Network:
    """Nodes joined by directed links.

    Attributes:
      nodes: how many; hosts and switches alike are numbered from 0.
      links: int32 (link, 2), the node a link begins at and the one it ends at.
      rate_bps: int64 (link,), bits a second.
      delay_ns: int64 (link,), propagation.

    Raises:
      ConfigError: a link to an unknown node or from a node to itself, two links between the same
        nodes, a rate below 1 bit a second, a negative delay.

    >>> Network(2, np.array([[0, 1], [1, 0]]), np.full(2, 10**9), np.full(2, 20)).links.dtype
    dtype('int32')
    """

    nodes: int
    links: np.ndarray
    rate_bps: np.ndarray
    delay_ns: np.ndarray

    def __post_init__(self):
        if not 1 <= self.nodes <= MAX_INDEX:
            raise ConfigError("nodes", self.nodes, f"an integer in [1, {MAX_INDEX}]")
        links = np.asarray(self.links).reshape(-1, 2)
        rate, delay = np.asarray(self.rate_bps), np.asarray(self.delay_ns)
        for name, array in (("rate_bps", rate), ("delay_ns", delay)):
            if array.shape != (len(links),):
                raise ConfigError(name, array.shape, f"one number for each of {len(links)} links")
        for link in np.flatnonzero(((links < 0) | (links >= self.nodes)).any(1))[:1]:
            raise ConfigError(f"links[{link}]", tuple(links[link].tolist()), "nodes that exist")
        for link in np.flatnonzero(links[:, 0] == links[:, 1])[:1]:
            raise ConfigError(f"links[{link}]", tuple(links[link].tolist()), "two different nodes")
        _, first = np.unique(links, axis=0, return_index=True)
        for link in np.setdiff1d(np.arange(len(links)), first)[:1]:
            raise ConfigError(f"links[{link}]", tuple(links[link].tolist()), "each link once")
        for link in np.flatnonzero(rate < 1)[:1]:
            raise ConfigError(f"rate_bps[{link}]", int(rate[link]), "an integer >= 1")
        for link in np.flatnonzero(delay < 0)[:1]:
            raise ConfigError(f"delay_ns[{link}]", int(delay[link]), "an integer >= 0")
        object.__setattr__(self, "links", links.astype(np.int32))
        object.__setattr__(self, "rate_bps", rate.astype(np.int64))
        object.__setattr__(self, "delay_ns", delay.astype(np.int64))
