"""Small networks and flows for tests of the network simulation."""

import numpy as np

from jaxlossy.netsim import Flows, Network, Paths


def star(hosts, *, rate_bps=10**10, delay_ns=20):
    """Hosts 0 to hosts - 1 around a switch: links 2h to it, 2h + 1 from it."""
    links = [pair for h in range(hosts) for pair in ((h, hosts), (hosts, h))]
    rates = np.broadcast_to(rate_bps, 2 * hosts)
    return Network(hosts + 1, np.array(links), rates, np.full(2 * hosts, delay_ns))


def flows(sources, destinations, sizes, *, starts=0, traffic=0, names=("web",)):
    """Flows through a star."""
    source = np.asarray(sources)
    count = len(source)
    destination, size, start, kind = (
        np.broadcast_to(array, count) for array in (destinations, sizes, starts, traffic)
    )
    offsets = 2 * np.arange(count + 1)
    there = np.stack([2 * source, 2 * destination + 1], axis=1).ravel()
    back = np.stack([2 * destination, 2 * source + 1], axis=1).ravel()
    return Flows(
        start, source, destination, size, kind, names, Paths(offsets, there), Paths(offsets, back)
    )


def all_to_all(hosts, size, **more):
    """Each host sends to each other one."""
    pairs = [(i, j) for i in range(hosts) for j in range(hosts) if i != j]
    return flows([i for i, _ in pairs], [j for _, j in pairs], size, **more)
