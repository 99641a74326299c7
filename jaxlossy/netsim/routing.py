"""Which links a flow takes: shortest paths, spread by a hash, or paths that are given."""

import itertools
from collections.abc import Sequence

import numpy as np

from jaxlossy.errors import ConfigError
from jaxlossy.netsim.flows import Paths
from jaxlossy.netsim.network import Network


def shortest_paths(network: Network, source: np.ndarray, destination: np.ndarray) -> Paths:
    """Equal-cost multi-path routing: a shortest path of every flow, spread by a hash.

    At every node, the flow takes one of the links that lead nearer to its destination, in hops:
    in the order of the network's links, number ``hash mod count``. The hash is

        mix(mix(mix(source * 2^32 + destination) + flow) + node)

    in 64-bit wrapping integers, `flow` being the index in these arrays and mix the finalizer of
    splitmix64. The way back, with source and destination exchanged, may be another.

    Args:
      source, destination: nodes, (flow,).

    Raises:
      ConfigError: an unknown node, a flow to itself, or no path.

    >>> from jaxlossy.netsim.topologies import star
    >>> network = star(3, rate_bps=10**9, delay_ns=20)
    >>> paths = shortest_paths(network, np.array([0, 2]), np.array([1, 0]))
    >>> network.links[paths.links].tolist()
    [[0, 3], [3, 1], [2, 3], [3, 0]]
    """
    source, destination = np.asarray(source, np.int64), np.asarray(destination, np.int64)
    for name, nodes in (("source", source), ("destination", destination)):
        for flow in np.flatnonzero((nodes < 0) | (nodes >= network.nodes))[:1]:
            raise ConfigError(f"{name}[{flow}]", int(nodes[flow]), f"below {network.nodes} nodes")
    for flow in np.flatnonzero(source == destination)[:1]:
        raise ConfigError(f"destination[{flow}]", int(destination[flow]), "another node")
    goals, goal = np.unique(destination, return_inverse=True)
    first, links = _nearer_links(network, goals)
    with np.errstate(over="ignore"):
        key = _mix(source.astype(np.uint64) * np.uint64(2**32) + destination.astype(np.uint64))
        key = _mix(key + np.arange(len(source), dtype=np.uint64))
    node, taken = source.copy(), []
    moving = np.arange(len(source))
    while moving.size:
        place = goal[moving] * network.nodes + node[moving]
        count = first[place + 1] - first[place]
        for flow in moving[count == 0][:1]:
            pair = int(source[flow]), int(destination[flow])
            raise ConfigError(f"flow {flow}", pair, "two nodes joined by a path")
        with np.errstate(over="ignore"):
            hashed = _mix(key[moving] + node[moving].astype(np.uint64))
        choice = (hashed % count.astype(np.uint64)).astype(np.int64)
        hop = np.full(len(source), -1, np.int32)
        hop[moving] = links[first[place] + choice]
        taken.append(hop)
        node[moving] = network.links[hop[moving], 1]
        moving = moving[node[moving] != destination[moving]]
    hops = np.stack(taken, axis=1) if taken else np.zeros((0, 0), np.int32)
    lengths = (hops >= 0).sum(axis=1)
    return Paths(np.concatenate([[0], lengths.cumsum()]), hops[hops >= 0])


def _nearer_links(network: Network, goals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Links that lead nearer to each goal.

    Returns:
      first, links: to goal number g from node v, with i = g * nodes + v, lead
      ``links[first[i] : first[i + 1]]``.
    """
    start, end = network.links.T
    far = network.nodes  # more hops than any path has
    hops = np.full((len(goals), network.nodes), far)
    hops[np.arange(len(goals)), goals] = 0
    for distance in range(network.nodes):  # breadth first, from all goals at once
        goal, link = np.nonzero((hops[:, end] == distance) & (hops[:, start] == far))
        if not goal.size:
            break
        hops[goal, start[link]] = distance + 1
    by_start = np.argsort(start, kind="stable")
    nearer = (hops[:, end] + 1 == hops[:, start])[:, by_start]
    goal, link = np.nonzero(nearer)
    link = by_start[link]
    count = np.bincount(goal * network.nodes + start[link], minlength=hops.size)
    return np.concatenate([[0], count.cumsum()]), link


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, on uint64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def given_paths(network: Network, paths: Sequence[Sequence[int]]) -> Paths:
    """Paths written as nodes, from the source to the destination.

    Raises:
      ConfigError: a path of fewer than two nodes, or over a link that does not exist.

    >>> from jaxlossy.netsim.topologies import star
    >>> given_paths(star(3, rate_bps=10**9, delay_ns=20), [[0, 3, 1]]).links
    array([0, 3], dtype=int32)
    """
    number = {pair: index for index, pair in enumerate(map(tuple, network.links.tolist()))}
    links, offsets = [], [0]
    for flow, path in enumerate(paths):
        if len(path) < 2:
            raise ConfigError(f"path {flow}", list(path), "at least two nodes")
        for pair in itertools.pairwise(path):
            if tuple(pair) not in number:
                raise ConfigError(f"path {flow}", tuple(pair), "a link of the network")
            links.append(number[tuple(pair)])
        offsets.append(len(links))
    return Paths(np.asarray(offsets), np.asarray(links, np.int32))
