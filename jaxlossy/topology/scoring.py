"""Thousands of plans at once, in JAX, in float64 whatever JAX's default is.

The model is that of ``evaluate.py``, and so are the results, to rounding. What makes it fast: plans
with the same number of L-nodes share a grid of times on which every node's log F is tabulated, so
that an expected maximum is a row of a matrix product; and gaps of circulants are known.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxlossy.topology.epoch_time import time_grid
from jaxlossy.topology.evaluate import ROUNDING, SLACK, error_formula
from jaxlossy.topology.model import Problem


class Graphs(NamedTuple):
    """What a batch of graphs over active L-nodes contributes to plans.

    Attributes:
      learning: the active L-nodes.
      link_cost: of the links, an epoch.
      degree: the largest.
      gap: spectral gap.
    """

    learning: Bool[np.ndarray, "plan L"]
    link_cost: Float[np.ndarray, " plan"]
    degree: Int[np.ndarray, " plan"]
    gap: Float[np.ndarray, " plan"]


class Scores(NamedTuple):
    """A batch of plans, each with its least K that meets the error, or with all its time allows.

    Attributes:
      epochs: K; 0 where there is no time for one.
      cost: of all epochs.
      error: after them; inf where there are none.
      time: of all epochs, seconds.
      feasible: meets both constraints.
    """

    epochs: Int[np.ndarray, " plan"]
    cost: Float[np.ndarray, " plan"]
    error: Float[np.ndarray, " plan"]
    time: Float[np.ndarray, " plan"]
    feasible: Bool[np.ndarray, " plan"]


def describe(
    problem: Problem, learning: Bool[np.ndarray, "plan L"], adjacency: Bool[np.ndarray, "plan L L"]
) -> Graphs:
    """Link cost, degree and gap of any graphs; links of nodes that are not active are left out."""
    with jax.enable_x64(True):
        cost, degree, gap = _describe(problem.cLL, jnp.asarray(learning), jnp.asarray(adjacency))
    return Graphs(learning, np.asarray(cost), np.asarray(degree, int), np.asarray(gap))


def circulants(
    problem: Problem,
    order: Int[np.ndarray, " L"],
    learning: Bool[np.ndarray, "plan L"],
    degree: Int[np.ndarray, " plan"],
) -> Graphs:
    """Circulants with the nearest offsets on rings of the active L-nodes.

    Args:
      problem: the problem.
      order: of all L-nodes around a ring; those that are not active are skipped.
      learning: the active L-nodes of each plan.
      degree: of each plan, one that its number of L-nodes can have; links that can not be are left
        out.
    """
    if not np.isfinite(problem.cLL).all():
        return describe(problem, learning, ring_links(problem, order, learning, degree))
    with jax.enable_x64(True):
        cost, gap = _circulants(*map(jnp.asarray, (problem.cLL, order, learning, degree)))
    return Graphs(learning, np.asarray(cost), np.asarray(degree), np.asarray(gap))


def ring_links(
    problem: Problem,
    order: Int[np.ndarray, " L"],
    learning: Bool[np.ndarray, "plan L"],
    degree: Int[np.ndarray, " plan"],
) -> Bool[np.ndarray, "plan L L"]:
    """The adjacency of these circulants; arguments as for ``circulants``."""
    with jax.enable_x64(True):
        arrays = map(jnp.asarray, (problem.cLL, order, learning, degree))
        return np.asarray(_ring_links(*arrays))


class _Fields(NamedTuple):
    """A problem's fields inside a compiled program."""

    X0: Any
    cL: Any
    r: Any
    cI: Any
    cIL: Any
    tg: Any
    c0: Any
    c1: Any
    c2: Any
    alpha: Any
    beta: Any
    eps_max: Any
    T_max: Any
    K_max: Any


class Scorer:
    """Scores plans of one problem in batches, in float64 whatever JAX's default is.

    >>> from jaxlossy.topology.instances import edge_network
    >>> problem, _ = edge_network(4, 6, seed=0)
    >>> graphs = Graphs(np.array([[True] * 4]), np.array([6.0]), np.array([3]), np.array([1.0]))
    >>> Scorer(problem)(graphs, np.ones((1, 6), bool)).epochs.shape
    (1,)
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        # Sizes are filled up, so that problems, and numbers of L-nodes, share compiled programs.
        self._more = (-problem.learning % 8, -problem.information % 8)
        first, second = ((0, more) for more in self._more)
        fields = {name: np.asarray(getattr(problem, name)) for name in _Fields._fields}
        fields["K_max"] = fields["K_max"].astype(np.int64)
        for name in ("X0", "cL"):
            fields[name] = np.pad(fields[name], first)
        for name in ("r", "cI"):
            fields[name] = np.pad(fields[name], second)
        fields["cIL"] = np.pad(fields["cIL"], (second, first), constant_values=np.inf)
        with jax.enable_x64(True):
            self._fields = jax.tree.map(jnp.asarray, _Fields(**fields))
        self._tables = functools.lru_cache(maxsize=64)(self._table)

    def __call__(self, graphs: Graphs, information: Bool[np.ndarray, "plan I"]) -> Scores:
        """Scores plans: a graph and a set of I-nodes, each at its cheapest active L-node.

        Args:
          graphs: one for each plan, with at least one L-node each.
          information: the active I-nodes.
        """
        counts = graphs.learning.sum(axis=1)
        sets = zip((graphs.learning, information), self._more, strict=True)
        active = np.concatenate([np.pad(part, ((0, 0), (0, more))) for part, more in sets], axis=1)
        result = Scores(*(np.zeros(len(counts), t) for t in (int, float, float, float, bool)))
        with jax.enable_x64(True):
            for count in np.unique(counts):  # a grid for each number of L-nodes
                some = np.flatnonzero(counts == count)
                padded = np.resize(some, max(256, 1 << (len(some) - 1).bit_length()))
                scores = _score(
                    self._fields,
                    self._tables(int(count)),
                    active[padded],
                    *(np.asarray(field[padded], np.float64) for field in graphs[1:]),
                )
                for whole, piece in zip(result, scores, strict=True):
                    whole[some] = np.asarray(piece)[: len(some)]
        return result

    def _table(self, count: int) -> tuple[jax.Array, ...]:
        grid = time_grid(self.problem, count)
        short = (0, -len(grid.weights) % 128)
        logs = zip((grid.log_learning, grid.log_information), self._more, strict=True)
        log = np.concatenate([np.pad(log, ((0, more), short)) for log, more in logs])
        return tuple(map(jnp.asarray, (grid.start, np.pad(grid.weights, short), log)))


@jax.jit
def _describe(cost, learning, adjacency):
    count = learning.sum(axis=1, dtype=cost.dtype)[:, None, None]
    both = learning[:, :, None] & learning[:, None, :]
    diagonal = jnp.eye(len(cost), dtype=bool)[None]
    adjacency = adjacency & both & ~diagonal
    degree = adjacency.sum(axis=2, dtype=cost.dtype)
    larger = jnp.maximum(degree[:, :, None], degree[:, None, :])
    weights = jnp.where(adjacency, 1 / (1.0 + larger), 0.0)
    rest = jnp.where(learning, 1 - weights.sum(axis=2), 0.0)
    # Without its eigenvalue 1, and with eigenvalue 0 for every node that is not active.
    mixing = weights + jnp.where(diagonal, rest[:, :, None], 0.0) - jnp.where(both, 1 / count, 0.0)
    gap = 1 - jnp.abs(jnp.linalg.eigvalsh(mixing)).max(axis=1)
    links = jnp.where(adjacency, cost[None], 0.0).sum(axis=(1, 2)) / 2
    return links, degree.max(axis=1), jnp.where(gap < 1e-12, 0.0, gap)


@jax.jit
def _ring_links(cost, order, learning, degree):
    count = learning.sum(axis=1)[:, None, None]
    place = jnp.cumsum(learning[:, order], axis=1)[:, jnp.argsort(order)]
    apart = jnp.abs(place[:, :, None] - place[:, None, :])
    apart = jnp.minimum(apart, count - apart)
    degree = degree[:, None, None]
    linked = (apart > 0) & (apart <= degree // 2)
    linked |= (degree % 2 == 1) & (2 * apart == count)
    return linked & learning[:, :, None] & learning[:, None, :] & jnp.isfinite(cost)[None]


@jax.jit
def _circulants(cost, order, learning, degree):
    linked = _ring_links(cost, order, learning, degree)
    links = jnp.where(linked, cost[None], 0.0).sum(axis=(1, 2)) / 2
    # Eigenvalues of the mixing matrix: 1 and a Dirichlet kernel for each wave around the ring.
    count = learning.sum(axis=1, dtype=cost.dtype)[:, None]
    degree = degree.astype(cost.dtype)[:, None]
    across = degree % 2
    wave = jnp.arange(1, len(cost) + 1, dtype=cost.dtype)[None]
    angle = wave * (jnp.pi / count)
    kernel = jnp.sin((degree - across + 1) * angle)
    kernel = kernel / jnp.where(wave < count, jnp.sin(angle), 1.0)
    value = jnp.abs(kernel + across * (1 - 2 * (wave % 2))) / (1 + degree)
    value = jnp.where(wave < count, value, 0.0)
    return links, 1 - value.max(axis=1)


@jax.jit
def _score(problem, table, active, link_cost, degree, gap):
    start, weights, log = table
    split = len(problem.X0)
    on = active.astype(log.dtype)
    learning, sources = on[:, :split], on[:, split:]
    # A sum of products: as a matrix-vector product XLA's CPU backend takes twice as long.
    ready = (jnp.expm1(on @ log) * weights[None]).sum(axis=1)
    epoch = start - ready + problem.tg * degree
    near = jnp.where(active[:, :split, None], problem.cIL.T[None], jnp.inf).min(axis=1)
    prices = jnp.where(active[:, split:], problem.cI[None] + near, 0.0)
    rate = learning @ problem.cL + link_cost + prices.sum(axis=1)
    samples, supplied = learning @ problem.X0, sources @ problem.r

    def error(epochs):
        return error_formula(jnp, problem, gap, samples, supplied, epochs.astype(log.dtype))

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        met = (error(middle) <= problem.eps_max * (1 + ROUNDING)) | (middle > problem.K_max)
        low = jnp.where(met, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(met, middle, high)

    bounds = (jnp.ones(len(rate), jnp.int64), jnp.full(len(rate), problem.K_max + 1))
    steps = 65 - jax.lax.clz(problem.K_max)  # halvings of 1 to K_max + 1, until one is left
    _, least = jax.lax.fori_loop(0, steps, halve, bounds)
    most = jnp.floor(problem.T_max / epoch * (1 + SLACK)).astype(jnp.int64)
    most = jnp.minimum(most, problem.K_max)
    epochs = jnp.minimum(least, most)
    feasible = (least <= most) & jnp.isfinite(rate)
    after = jnp.where(epochs > 0, error(epochs), jnp.inf)
    k = epochs.astype(log.dtype)
    return epochs, k * rate, after, k * epoch, feasible
