"""Graphs over learning nodes: their mixing matrix and spectral gap, tours, trees, circulants."""

import functools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int


def metropolis(adjacency: Bool[np.ndarray, "*batch n n"]) -> Float[np.ndarray, "*batch n n"]:
    """The mixing matrix: ``1 / (1 + max(deg a, deg b))`` on edges, the rest on the diagonal.

    >>> metropolis(np.array([[0, 1], [1, 0]], bool))
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    degree = adjacency.sum(axis=-1)
    larger = np.maximum(degree[..., :, None], degree[..., None, :])
    weights = adjacency / (1.0 + larger)
    rest = 1 - weights.sum(axis=-1)
    return weights + rest[..., None] * np.eye(adjacency.shape[-1])


def spectral_gap(adjacency: Bool[np.ndarray, "*batch n n"]) -> Float[np.ndarray, "*batch"]:
    """1 less the second largest absolute eigenvalue of the mixing matrix; 1 for a single node.

    0 for a graph in several parts.

    >>> round(float(spectral_gap(~np.eye(4, dtype=bool))), 6)  # a clique mixes at once
    1.0
    """
    mixing = metropolis(adjacency) - 1 / adjacency.shape[-1]
    gap = 1 - np.abs(np.linalg.eigvalsh(mixing)).max(axis=-1)
    return np.where(gap < 1e-12, 0.0, gap)


def edges_of(adjacency: Bool[np.ndarray, "n n"], nodes: Iterable[int]) -> tuple:
    """The links of a graph over these nodes, each pair once and in order."""
    nodes, pairs = list(nodes), np.argwhere(np.triu(adjacency | adjacency.T, 1))
    named = (sorted((int(nodes[a]), int(nodes[b]))) for a, b in pairs)
    return tuple(sorted((a, b) for a, b in named))


def adjacency_of(edges: Iterable[tuple[int, int]], nodes: Iterable[int]) -> Bool[np.ndarray, "n n"]:
    """The graph over these nodes, in their order, with these links."""
    place = {node: index for index, node in enumerate(nodes)}
    adjacency = np.zeros((len(place), len(place)), bool)
    for a, b in edges:
        adjacency[place[a], place[b]] = adjacency[place[b], place[a]] = True
    return adjacency


def circulant(n: int, offsets: Sequence[int]) -> Bool[np.ndarray, "n n"]:
    """The graph that links each of n nodes in a ring to those this many places away."""
    away = np.arange(n)[:, None] - np.arange(n)
    return np.isin(away % n, [x % n for x in (*offsets, *(-o for o in offsets))])


def degrees(n: int) -> list[int]:
    """The degrees that a connected regular graph of n nodes can have; 0 for a single node."""
    return [d for d in range(2 if n > 2 else n - 1, n) if n * d % 2 == 0]


def nearest_offsets(n: int, degree: int) -> tuple[int, ...]:
    """Offsets 1 to degree // 2, and n / 2 if the degree is odd.

    >>> nearest_offsets(10, 5)
    (1, 2, 5)
    """
    across = (n // 2,) if degree % 2 else ()
    return (*range(1, degree // 2 + 1), *across)


@functools.lru_cache(maxsize=1024)
def mixing_offsets(n: int) -> dict[int, tuple[int, ...]]:
    """For each degree, offsets with a large spectral gap: 1, then one after the other the best.

    >>> mixing_offsets(10)[4], nearest_offsets(10, 4)
    ((1, 4), (1, 2))
    """
    found = {degree: nearest_offsets(n, degree) for degree in degrees(n)}
    half = np.arange(1, (n + 1) // 2)  # offsets that give every node two neighbours
    waves = np.cos(2 * np.pi * np.outer(half, np.arange(1, n // 2 + 1)) / n)
    for across in range(1 + (n % 2 == 0)):
        if not len(half):
            continue
        chosen, total = [0], 1 + 2 * waves[0]
        if across:
            total = total + (-1.0) ** np.arange(1, n // 2 + 1)
        while True:
            degree = 2 * len(chosen) + across
            if degree in found:
                found[degree] = (*sorted(int(half[i]) for i in chosen), *((n // 2,) * across))
            if len(chosen) == len(half):
                break
            worst = np.abs(total + 2 * waves).max(axis=1)
            worst[chosen] = np.inf
            chosen.append(int(np.argmin(np.round(worst, 9))))
            total = total + 2 * waves[chosen[-1]]
    return found


@functools.lru_cache(maxsize=65536)
def circulant_gap(n: int, offsets: tuple[int, ...]) -> float:
    """The spectral gap of a circulant, from its eigenvalues in closed form."""
    turns = np.cos(2 * np.pi * np.outer(np.arange(1, n), offsets) / n)
    twice = np.array([1.0 if 2 * offset == n else 2.0 for offset in offsets])
    eigenvalues = (1 + turns @ twice) / (1 + twice.sum())
    gap = 1 - np.abs(eigenvalues).max(initial=0.0)
    return gap if gap > 1e-12 else 0.0


def offset_costs(cost: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " half"]:
    """What the links between nodes k places apart in the ring cost together, for k = 1 to n // 2.

    Links that can not be cost nothing, since they are left out.
    """
    n = len(cost)
    places = np.arange(n)
    offsets = np.arange(1, n // 2 + 1)
    costs = cost[places, (places + offsets[:, None]) % n]
    total = np.where(np.isfinite(costs), costs, 0.0).sum(axis=1)
    return total / np.where(2 * offsets == n, 2, 1)


def tour(cost: Float[np.ndarray, "n n"]) -> Int[np.ndarray, " n"]:
    """A cheap closed tour over all nodes: nearest neighbour from node 0, then 2-opt.

    >>> tour(np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))).tolist()
    [0, 1, 2, 3]
    """
    n = len(cost)
    finite = np.isfinite(cost)
    cost = np.where(finite, cost, 1 + 2 * n * cost[finite].max(initial=0.0))
    left = np.ones(n, bool)
    order = [0]
    left[0] = False
    for _ in range(n - 1):
        order.append(int(np.argmin(np.where(left, cost[order[-1]], np.inf))))
        left[order[-1]] = False
    return improve_tour(cost, np.array(order))


def improve_tour(cost: Float[np.ndarray, "n n"], order: Int[np.ndarray, " n"]) -> np.ndarray:
    """Reverses the best stretch of a tour while that makes it cheaper (2-opt)."""
    n = len(order)
    if n < 4:
        return order
    while True:
        after = np.roll(order, -1)
        step = cost[order, after]
        change = cost[np.ix_(order, order)] + cost[np.ix_(after, after)]
        change -= step[:, None] + step
        change[np.tril_indices(n)] = 0.0
        best = int(np.argmin(change))
        if change.flat[best] >= -1e-12 * max(1.0, step.sum()):
            return order
        a, b = divmod(best, n)
        order = order.copy()
        order[a + 1 : b + 1] = order[a + 1 : b + 1][::-1]


def spanning_tree(cost: Float[np.ndarray, "n n"]) -> Bool[np.ndarray, "n n"] | None:
    """A cheapest tree over all nodes (Prim), None where links do not connect them."""
    n = len(cost)
    adjacency = np.zeros((n, n), bool)
    outside = np.ones(n, bool)
    outside[0] = False
    nearest, price = np.zeros(n, int), cost[0].copy()
    for _ in range(n - 1):
        node = int(np.argmin(np.where(outside, price, np.inf)))
        if not outside[node] or not np.isfinite(price[node]):
            return None
        adjacency[node, nearest[node]] = adjacency[nearest[node], node] = True
        outside[node] = False
        closer = cost[node] < price
        nearest[closer], price[closer] = node, cost[node][closer]
    return adjacency
