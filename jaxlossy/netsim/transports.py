"""How flows are sent: one set of rules for each kind of traffic.

What the rules do is in `reliable.py` and `unreliable.py`.
"""

import dataclasses

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.netsim.reliable import AT_EACH_MARK, ONCE_A_WINDOW
from jaxlossy.netsim.state import MSS, TRANSPORT


@dataclasses.dataclass(frozen=True)
class Transport:
    """The rules by which one kind of traffic is sent; the functions below make the usual ones.

    Attributes:
      reliable: whether everything arrives in the end.
      low: whether ports treat its data as of the lossy class.
      ecn: what marks do to the window: 0 nothing, 1 cut it each time, 2 once a window.
      fast: losses are found from later arrivals, and by one timer a flow instead of one a packet.
      initial_window, threshold: packets; of a reliable flow, and of its slow start.
      min_timeout_ns: no timer of a sender is shorter.
      gap_ns: between packets of a flow, 0 for none (reliable transports only).
      stagger_ns, hosts: the first packet leaves ((destination - source - 1) mod hosts) *
        stagger_ns after the flow's start.
      jitter: packets leave later by something uniform in [0, gap_ns).
      seed: of the jitter, in [0, 2**16).
      feedback: an unreliable receiver acknowledges.
      loss: with feedback, the part of the packets that may be missing in the end.
      rate_control: with feedback, gaps follow the losses.
      deadline_ns: after the start, when an unreliable sender stops and what arrives is late; 0:
        never.

    Raises:
      ConfigError: a value out of range.
    """

    reliable: bool
    low: bool = False
    ecn: int = 0
    fast: bool = False
    initial_window: float = 3
    threshold: float = 30
    min_timeout_ns: int = 1_000_000
    gap_ns: int = 0
    stagger_ns: int = 0
    hosts: int = 1
    jitter: bool = False
    seed: int = 0
    feedback: bool = False
    loss: float = 0.0
    rate_control: bool = False
    deadline_ns: int = 0

    def __post_init__(self):
        least = {"initial_window": 1, "threshold": 1, "min_timeout_ns": 1, "hosts": 1}
        least |= {"gap_ns": int(not self.reliable), "stagger_ns": 0, "deadline_ns": 0, "seed": 0}
        for name, bound in least.items():
            most = 2**16 if name == "seed" else 2**40
            if not bound <= getattr(self, name) < most:
                raise ConfigError(name, getattr(self, name), f"a number in [{bound}, {most})")
        if not 0 <= self.loss < 1:
            raise ConfigError("loss", self.loss, "a number in [0, 1)")

    def row(self) -> np.ndarray:
        """The rules as a record."""
        row = np.zeros((), TRANSPORT)
        for name in TRANSPORT.names or ():
            row[name] = getattr(self, name)
        return row


def simple_tcp() -> Transport:
    """Netbench's simple TCP: a timer for each packet, no fast retransmit, marks ignored."""
    return Transport(reliable=True)


def simple_dctcp() -> Transport:
    """Netbench's simple DCTCP: as its TCP, and the window is cut at every mark."""
    return Transport(reliable=True, ecn=AT_EACH_MARK)


def dctcp(*, gap_ns: int = 0, seed: int = 0, min_timeout_ns: int = 1_000_000) -> Transport:
    """DCTCP of RFC 8257 with fast retransmit; with a gap paced, with jitter.

    10 packets in the first window (RFC 6928). A gap makes it a *paced reliable* transport: its
    packets leave as those of `paced` do, as long as the window lets them.
    """
    return Transport(
        reliable=True,
        ecn=ONCE_A_WINDOW,
        fast=True,
        initial_window=10,
        threshold=2**30,
        min_timeout_ns=min_timeout_ns,
        gap_ns=gap_ns,
        jitter=gap_ns > 0,
        seed=seed,
    )


def paced(*, gap_ns: int, seed: int = 0, deadline_ns: int = 0) -> Transport:
    """Every packet once, ``gap_ns`` apart, give or take half a gap; with a deadline or without.

    The jitter matters: with constant gaps flows lock phases, and some lose nearly all.
    """
    return Transport(
        reliable=False, low=True, gap_ns=gap_ns, jitter=True, seed=seed, deadline_ns=deadline_ns
    )


def round_robin(*, interval_ns: int, hosts: int) -> Transport:
    """A packet every ``interval_ns`` from each host, in turn to each of the others, no jitter."""
    return Transport(
        reliable=False, low=True, gap_ns=(hosts - 1) * interval_ns, stagger_ns=interval_ns,
        hosts=hosts,
    )  # fmt: skip


def bounded(*, loss: float, gap_ns: int, seed: int = 0, rate_control: bool = False) -> Transport:
    """Paced until all but a part ``loss`` of the packets have arrived; that part may be missing."""
    return Transport(
        reliable=False,
        low=True,
        gap_ns=gap_ns,
        jitter=True,
        seed=seed,
        feedback=True,
        loss=loss,
        rate_control=rate_control,
    )


def gap(rate_bps: float, flows: int = 1) -> int:
    """ns between the full packets of a flow, where so many of them share a rate.

    >>> gap(300e6, flows=15)
    600000
    """
    return round(flows * (MSS + 120) * 8e9 / rate_bps)
