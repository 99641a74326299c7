"""Rungs: the graphs over a set of L-nodes that DoubleClimb tries, from sparse to dense."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxlossy.topology.epoch_time import TimeGrid
from jaxlossy.topology.graphs import (
    circulant,
    circulant_gap,
    degrees,
    edges_of,
    mixing_offsets,
    nearest_offsets,
    offset_costs,
    spanning_tree,
    spectral_gap,
    tour,
)
from jaxlossy.topology.model import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class Learners:
    """A set of active L-nodes, what it brings whatever the graph, and its rungs.

    Attributes:
      nodes: the L-nodes, ascending.
      log_product: sum of their log F on the grid.
      rate: their cost an epoch.
      samples: that they hold from the start.
      prices: of each I-node and its cheapest link to them, an epoch.
      link_cost, degree, gap: of each rung.
      graphs: each rung's adjacency, or (order, offsets) of a circulant.
    """

    nodes: Int[np.ndarray, " n"]
    log_product: Float[np.ndarray, " G"]
    rate: float
    samples: float
    prices: Float[np.ndarray, " I"]
    link_cost: Float[np.ndarray, " rung"]
    degree: Int[np.ndarray, " rung"]
    gap: Float[np.ndarray, " rung"]
    graphs: list[Any]

    def edges(self, rung: int) -> tuple:
        """The links of a rung, as plans have them."""
        graph = self.graphs[rung]
        if isinstance(graph, tuple):
            order, offsets = graph
            return edges_of(circulant(len(order), offsets), self.nodes[order])
        return edges_of(graph, self.nodes)


def learners(
    problem: Problem, grid: TimeGrid, nodes: Int[np.ndarray, " n"], *, refine: bool
) -> Learners:
    """Builds the rungs over these L-nodes.

    A circulant on a cheap tour for every degree, with the nearest offsets; to refine, also with
    offsets chosen for their gap, and a minimum spanning tree. Links that can not be are left out.
    """
    cost = problem.cLL[np.ix_(nodes, nodes)]
    order = tour(cost)
    found = _circulants(cost, order, refine)
    tree = spanning_tree(cost) if refine and len(nodes) > 3 else None
    if tree is not None:
        price = float(cost[np.triu(tree)].sum())
        found.append((price, int(tree.sum(axis=1).max()), float(spectral_gap(tree)), tree))
    link_cost, degree, gap, graphs = zip(*found, strict=True) if found else ((), (), (), ())
    return Learners(
        nodes=nodes,
        log_product=grid.log_learning[nodes].sum(axis=0),
        rate=float(problem.cL[nodes].sum()),
        samples=float(problem.X0[nodes].sum()),
        prices=problem.cI + problem.cIL[:, nodes].min(axis=1),
        link_cost=np.array(link_cost, float),
        degree=np.array(degree, int),
        gap=np.array(gap, float),
        graphs=list(graphs),
    )


def _circulants(cost: np.ndarray, order: np.ndarray, refine: bool) -> list[tuple]:
    n = len(order)
    complete = bool(np.isfinite(cost).all())
    around = cost[np.ix_(order, order)]
    by_offset = offset_costs(around)
    found = []
    for degree in degrees(n):
        kinds = {nearest_offsets(n, degree)}
        if refine:
            kinds.add(mixing_offsets(n)[degree])
        for offsets in sorted(kinds):
            price = float(sum(by_offset[k - 1] for k in offsets))
            if complete:
                found.append((price, degree, circulant_gap(n, offsets), (order, offsets)))
                continue
            graph = circulant(n, offsets) & np.isfinite(around)
            gap = float(spectral_gap(graph))
            if gap > 0:
                back = np.argsort(order)
                found.append((price, int(graph.sum(axis=1).max()), gap, graph[np.ix_(back, back)]))
    return found
