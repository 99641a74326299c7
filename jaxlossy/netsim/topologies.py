"""Networks of usual shapes. Hosts are the first nodes, switches come behind them.

All links go both ways, the second direction right behind the first.
"""

from collections.abc import Sequence

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.netsim.network import Network


def star(hosts: int, *, rate_bps: int, delay_ns: int) -> Network:
    """Hosts 0 to hosts-1 on one switch, node `hosts`.

    Args:
      hosts: at least 1.
      rate_bps, delay_ns: of every link; for others, replace these arrays of the network.

    Raises:
      ConfigError: a number out of range, here as in all of this module.

    >>> star(2, rate_bps=10**9, delay_ns=20).links.tolist()
    [[0, 2], [2, 0], [1, 2], [2, 1]]
    """
    _check("hosts", hosts)
    return _both_ways([(host, hosts) for host in range(hosts)], rate_bps, delay_ns)


def dumbbell(
    left: int, right: int, *, rate_bps: int, bottleneck_bps: int, delay_ns: int
) -> Network:
    """Two switches with hosts on either side, and one link between them, the last one.

    Args:
      left, right: hosts on either side; those on the left come first, and so does their switch.
      rate_bps: of the hosts' links.
      bottleneck_bps: of the link between the switches.
      delay_ns: of every link.

    >>> dumbbell(1, 1, rate_bps=10**9, bottleneck_bps=10**8, delay_ns=20).links.tolist()
    [[0, 2], [2, 0], [1, 3], [3, 1], [2, 3], [3, 2]]
    """
    _check("left", left)
    _check("right", right)
    hosts = left + right
    pairs = [(host, hosts + (host >= left)) for host in range(hosts)]
    rates = [rate_bps] * hosts + [bottleneck_bps]
    return _both_ways([*pairs, (hosts, hosts + 1)], rates, delay_ns)


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    *,
    rate_bps: int,
    uplink_bps: int | None = None,
    delay_ns: int,
) -> Network:
    """Every leaf switch has hosts and a link to every spine switch.

    Args:
      leaves, spines: switches; the leaves come first. Host h is on leaf h // hosts_per_leaf.
      hosts_per_leaf: at least 1.
      rate_bps: of the hosts' links.
      uplink_bps: of the links between switches; None: as the hosts'.
      delay_ns: of every link.

    >>> network = leaf_spine(4, 2, 4, rate_bps=10**10, delay_ns=20)
    >>> network.nodes, len(network.links)
    (22, 48)
    """
    for name, count in (("leaves", leaves), ("spines", spines), ("hosts_per_leaf", hosts_per_leaf)):
        _check(name, count)
    hosts = leaves * hosts_per_leaf
    down = [(host, hosts + host // hosts_per_leaf) for host in range(hosts)]
    up = [(hosts + leaf, hosts + leaves + s) for leaf in range(leaves) for s in range(spines)]
    rates = [rate_bps] * len(down) + [rate_bps if uplink_bps is None else uplink_bps] * len(up)
    return _both_ways(down + up, rates, delay_ns)


def fat_tree(k: int, *, rate_bps: int, delay_ns: int) -> Network:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches, k^3/4 hosts.

    The switches are the edges of all pods, their aggregations, and the cores. Aggregation switch a
    of every pod has links to the cores a * k/2 to (a+1) * k/2 - 1. (Al-Fares et al., A Scalable,
    Commodity Data Center Network Architecture, 2008.)

    Args:
      k: ports of a switch, even.
      rate_bps, delay_ns: of every link.

    >>> network = fat_tree(4, rate_bps=10**10, delay_ns=20)
    >>> network.nodes, len(network.links)
    (36, 96)
    """
    _check("k", k)
    if k % 2:
        raise ConfigError("k", k, "an even integer >= 2")
    half = k // 2
    hosts, layer = k * half * half, k * half
    edge, aggregation, core = hosts, hosts + layer, hosts + 2 * layer
    pairs = [(host, edge + host // half) for host in range(hosts)]
    for switch in range(layer):
        pod, place = divmod(switch, half)
        pairs += [(edge + switch, aggregation + pod * half + other) for other in range(half)]
        pairs += [(aggregation + switch, core + place * half + other) for other in range(half)]
    return _both_ways(pairs, rate_bps, delay_ns)


def from_edges(
    edges: Sequence[tuple[int, int]] | np.ndarray,
    *,
    rate_bps: int | Sequence[int] | np.ndarray,
    delay_ns: int | Sequence[int] | np.ndarray,
) -> Network:
    """A network of given links.

    Args:
      edges: (from, to) of every directed link.
      rate_bps, delay_ns: of every link, or of each.

    >>> from_edges([(0, 1), (1, 0)], rate_bps=10**9, delay_ns=20).nodes
    2
    """
    links = np.asarray(edges, np.int64)
    if links.ndim != 2 or links.shape[1] != 2 or not len(links):
        raise ConfigError("edges", links.shape, "at least one link, (link, 2)")
    rate = np.broadcast_to(rate_bps, len(links)) if np.ndim(rate_bps) == 0 else rate_bps
    delay = np.broadcast_to(delay_ns, len(links)) if np.ndim(delay_ns) == 0 else delay_ns
    return Network(int(links.max()) + 1, links, np.asarray(rate), np.asarray(delay))


def _both_ways(pairs, rate_bps, delay_ns):
    links = np.asarray([link for a, b in pairs for link in ((a, b), (b, a))])
    rate = rate_bps if np.ndim(rate_bps) == 0 else np.repeat(rate_bps, 2)
    return from_edges(links, rate_bps=rate, delay_ns=delay_ns)


def _check(name: str, count: int) -> None:
    if count < 1:
        raise ConfigError(name, count, "an integer >= 1")
