"""Topologies, and the paths through them."""

import numpy as np
import pytest

from jaxlossy.errors import ConfigError
from jaxlossy.netsim import topologies
from jaxlossy.netsim.routing import given_paths, shortest_paths

GIGABIT = {"rate_bps": 10**9, "delay_ns": 20}
NETWORKS = {
    "star": (topologies.star(6, **GIGABIT), 6),
    "dumbbell": (topologies.dumbbell(3, 4, bottleneck_bps=10**8, **GIGABIT), 7),
    "leaf_spine": (topologies.leaf_spine(4, 2, 4, **GIGABIT), 16),
    "fat_tree": (topologies.fat_tree(4, **GIGABIT), 16),
}


def _distances(network):
    """Hops between all nodes, by powers of the adjacency matrix."""
    step = np.zeros((network.nodes, network.nodes), bool)
    step[tuple(network.links.T)] = True
    hops = np.where(np.eye(network.nodes, dtype=bool), 0, np.inf)
    reached = np.eye(network.nodes, dtype=bool)
    for distance in range(1, network.nodes):
        reached = reached @ step
        hops[reached & np.isinf(hops)] = distance
    return hops


def _pairs(hosts, repeats=1):
    source, destination = np.divmod(np.arange(hosts * hosts).repeat(repeats), hosts)
    return source[source != destination], destination[source != destination]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_flow_takes_a_shortest_path_there_and_back(name):
    network, hosts = NETWORKS[name]
    hops = _distances(network)
    source, destination = _pairs(hosts, 3)
    for begin, end in ((source, destination), (destination, source)):
        paths = shortest_paths(network, begin, end)
        for flow in range(len(begin)):
            taken = network.links[paths.links[paths.offsets[flow] : paths.offsets[flow + 1]]]
            assert (taken[0, 0], taken[-1, 1]) == (begin[flow], end[flow])
            np.testing.assert_array_equal(taken[1:, 0], taken[:-1, 1])
            assert len(taken) == hops[begin[flow], end[flow]]


@pytest.mark.parametrize(("name", "links", "switches"), [
    ("star", 12, 1), ("dumbbell", 16, 2), ("leaf_spine", 48, 6), ("fat_tree", 96, 20),
])  # fmt: skip
def test_networks_have_the_links_they_should(name, links, switches):
    network, hosts = NETWORKS[name]
    assert (len(network.links), network.nodes) == (links, hosts + switches)
    assert {tuple(link) for link in network.links} == {tuple(link[::-1]) for link in network.links}
    assert (np.bincount(network.links[:, 0])[:hosts] == 1).all()  # a host has one link
    assert np.isfinite(_distances(network)).all()


def test_a_fat_tree_has_equal_ports_everywhere_and_all_cores_between_pods():
    network, hosts = NETWORKS["fat_tree"]
    assert (np.bincount(network.links[:, 0])[hosts:] == 4).all()
    source, destination = np.zeros(400, int), np.full(400, hosts - 1)
    paths = shortest_paths(network, source, destination)
    cores = network.links[paths.links.reshape(400, 6)[:, 2], 1]
    assert set(cores.tolist()) == {32, 33, 34, 35}


def test_tiers_have_their_own_rates():
    network = topologies.leaf_spine(2, 2, 3, rate_bps=10, uplink_bps=40, delay_ns=5)
    between_switches = (network.links >= 6).all(axis=1)
    assert set(network.rate_bps[between_switches]) == {40}
    assert set(network.rate_bps[~between_switches]) == {10}
    assert NETWORKS["dumbbell"][0].rate_bps.tolist() == [10**9] * 14 + [10**8] * 2
    edges = topologies.from_edges([(0, 1), (1, 0)], rate_bps=[1, 2], delay_ns=[3, 4])
    assert (edges.rate_bps.tolist(), edges.delay_ns.tolist()) == ([1, 2], [3, 4])


def test_the_hash_spreads_flows_and_repeats_itself():
    network, hosts = NETWORKS["leaf_spine"]
    rng = np.random.default_rng(0)
    source = rng.integers(0, 4, 40_000)  # on the first leaf
    destination = rng.integers(4, hosts, 40_000)
    paths = shortest_paths(network, source, destination)
    spine = network.links[paths.links.reshape(-1, 4)[:, 1], 1]
    share = np.mean(spine == 20)
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(spine.size)
    neighbours = np.mean(spine[1:] == spine[:-1])
    assert abs(neighbours - 0.5) < 4 * 0.5 / np.sqrt(spine.size)
    again = shortest_paths(network, source, destination)
    np.testing.assert_array_equal(again.links, paths.links)


def _splitmix64(x):
    """In Python's integers."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_the_hash_is_the_documented_one():
    assert _splitmix64(0) == 0xE220A8397B1DCDAF  # the generator's first number from seed 0
    network, hosts = NETWORKS["leaf_spine"]
    source, destination = _pairs(hosts)
    paths = shortest_paths(network, source, destination)
    for flow, (begin, end) in enumerate(zip(source.tolist(), destination.tolist(), strict=True)):
        if begin // 4 == end // 4:
            continue
        leaf = 16 + begin // 4
        key = _splitmix64((_splitmix64(begin * 2**32 + end) + flow) % 2**64)
        spine = 20 + _splitmix64((key + leaf) % 2**64) % 2
        assert network.links[paths.links[paths.offsets[flow] + 1]].tolist() == [leaf, spine]


def test_given_paths_are_taken_as_they_are():
    network, _ = NETWORKS["leaf_spine"]
    nodes = [[6, 17, 20, 16, 1], [2, 16, 3]]
    paths = given_paths(network, nodes)
    assert paths.offsets.tolist() == [0, 4, 6]
    walked = network.links[paths.links]
    assert walked[:, 0].tolist() == [6, 17, 20, 16, 2, 16]
    assert walked[:, 1].tolist() == [17, 20, 16, 1, 16, 3]


def test_what_can_not_be_routed_or_built_is_refused():
    star = NETWORKS["star"][0]
    apart = topologies.from_edges([(0, 1), (1, 0), (2, 3)], **GIGABIT)
    for refused, message in [
        (lambda: shortest_paths(star, [0, 7], [1, 1]), r"^source\[1\]: 7 is not .*below 7 nodes"),
        (lambda: shortest_paths(star, [0], [-1]), r"^destination\[0\]: -1 is not"),
        (lambda: shortest_paths(star, [0, 2], [1, 2]), r"^destination\[1\]: 2 is not .*another"),
        (lambda: shortest_paths(apart, [0, 0], [1, 3]), r"^flow 1: \(0, 3\) is not .*joined"),
        (lambda: given_paths(star, [[0, 1]]), r"^path 0: \(0, 1\) is not .*a link"),
        (lambda: given_paths(star, [[0, 6, 1], [3]]), r"^path 1: \[3\] is not .*two nodes"),
        (lambda: topologies.star(0, **GIGABIT), r"^hosts: 0 is not"),
        (lambda: topologies.fat_tree(3, **GIGABIT), r"^k: 3 is not .*even"),
        (lambda: topologies.leaf_spine(2, 0, 2, **GIGABIT), r"^spines: 0 is not"),
        (lambda: topologies.dumbbell(1, 0, bottleneck_bps=1, **GIGABIT), r"^right: 0 is not"),
        (lambda: topologies.from_edges([], **GIGABIT), r"^edges: \(0,\) is not"),
        (lambda: topologies.star(2, rate_bps=0, delay_ns=0), r"^rate_bps\[0\]: 0 is not"),
    ]:
        with pytest.raises(ConfigError, match=message):
            refused()


def test_many_flows_are_routed_at_once():
    network = topologies.fat_tree(8, **GIGABIT)
    rng = np.random.default_rng(1)
    source = rng.integers(0, 128, 100_000)
    destination = (source + rng.integers(1, 128, 100_000)) % 128
    paths = shortest_paths(network, source, destination)
    last = network.links[paths.links[paths.offsets[1:] - 1], 1]
    np.testing.assert_array_equal(last, destination)
