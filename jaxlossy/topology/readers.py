"""Networks from files, as topology problems: GraphML, edge lists, and tables of positions.

Distances come from positions: along great circles, in km, for latitude and longitude, straight for
x and y. Where the file has edges, two nodes are as far apart as the shortest path over edges; a
logical link may run over several. All are then divided by the largest, so that costs and delays
(``instances.problem_on``) are those of a network one unit across.

A node is an L-node or an I-node by its attribute `role`, 'learning' or 'information'. Where no node
has one, a share of them, drawn with the seed, learns.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np
import pandas as pd
from jaxtyping import Float

from jaxlossy.errors import ConfigError
from jaxlossy.topology.instances import problem_on
from jaxlossy.topology.model import Problem

#: Mean radius of the earth, km.
EARTH = 6371.0088
ROLES = ("learning", "information")
COORDINATES = (("latitude", "longitude"), ("x", "y"))


class Network(NamedTuple):
    """A network read from a file.

    Attributes:
      problem: its problem.
      names: of the nodes, L-nodes first, then I-nodes, each in the order of the problem.
      positions: of the same, (longitude, latitude) or (x, y); None for an edge list.
    """

    problem: Problem
    names: tuple[str, ...]
    positions: Float[np.ndarray, "L+I 2"] | None


def read_graphml(
    path: str | os.PathLike[str], *, seed: int, learning_share: float = 0.5
) -> Network:
    """Reads GraphML, as of the Internet Topology Zoo.

    Nodes need the attributes Latitude and Longitude, or x and y, in any case. Directions, loops and
    the number of parallel edges make no difference.

    Args:
      path: the file.
      seed: of what the file does not say.
      learning_share: of the nodes that learn where the file does not say which, in (0, 1).

    Raises:
      ConfigError: no such file, no GraphML, nodes without position, several parts, no L-nodes.
    """
    path = Path(path)
    try:
        graph = nx.Graph(nx.read_graphml(path))
    except (OSError, ParseError, nx.NetworkXError, KeyError, ValueError) as error:
        raise _refuse(path, "no GraphML", f"a readable GraphML file; {_first(error)}") from None
    attributes = {name: _lower(values) for name, values in graph.nodes(data=True)}
    keys = _coordinates(path, attributes.values())
    positions = _positions(path, attributes, keys)
    for a, b in graph.edges:
        graph.edges[a, b]["length"] = float(_distance(positions[a], positions[b], keys))
    roles = {name: values.get("role") for name, values in attributes.items()}
    where = np.array(list(positions.values()))[:, :: -1 if keys == COORDINATES[0] else 1]
    return _network(path, _paths(path, graph), roles, where, seed, learning_share)


def read_edges(path: str | os.PathLike[str], *, seed: int, learning_share: float = 0.5) -> Network:
    """Reads lines of two nodes and, where links are not of equal length, their distance.

    Names have no spaces; # starts a comment. Of several edges between two nodes
    the shortest counts.

    Args:
      path: the file.
      seed, learning_share: as for ``read_graphml``.

    Raises:
      ConfigError: no such file, other lines, distances that are not numbers > 0, several parts.
    """
    path, graph = Path(path), nx.Graph()
    for number, line in enumerate(_lines(path), 1):
        parts = line.split("#")[0].split()
        if not parts:
            continue
        try:
            a, b = parts[:2]
            (length,) = map(float, parts[2:] or ["1"])
            if not 0 < length < np.inf:
                raise ValueError
        except ValueError:
            allowed = "two nodes and, if any, a distance > 0"
            raise _refuse(path, line.strip(), allowed, f"line {number}") from None
        known = graph.get_edge_data(a, b, {}).get("length", np.inf)
        graph.add_edge(a, b, length=min(length, known))
    roles = dict.fromkeys(graph.nodes)
    return _network(path, _paths(path, graph), roles, None, seed, learning_share)


def read_positions(
    path: str | os.PathLike[str], *, seed: int, learning_share: float = 0.5
) -> Network:
    """Reads a CSV table of nodes: latitude and longitude, or x and y; name and role if given.

    Args:
      path: the file; its first line names the columns.
      seed, learning_share: as for ``read_graphml``.

    Raises:
      ConfigError: no such file, no such columns, positions that are not numbers, no L-nodes.
    """
    path = Path(path)
    _lines(path)
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError as error:  # pandas' own errors are of this kind
        raise _refuse(path, "no table", f"a CSV file; {_first(error)}") from None
    rows = [_lower(row) for row in table.to_dict("records")]
    names = [str(row.get("name", index)) for index, row in enumerate(rows)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _refuse(path, twice, "different names", "name")
    attributes = dict(zip(names, rows, strict=True))
    keys = _coordinates(path, rows)
    points = np.array(list(_positions(path, attributes, keys).values()))
    roles = {name: values.get("role") or None for name, values in attributes.items()}
    distance = _distance(points[:, None], points, keys)
    where = points[:, ::-1] if keys == COORDINATES[0] else points
    return _network(path, distance, roles, where, seed, learning_share)


def _network(path, distance, roles, positions, seed, learning_share) -> Network:
    """The problem on these distances, its L-nodes in front."""
    names, count = list(roles), len(roles)
    rng = np.random.default_rng(seed)
    given = [name for name in names if roles[name] is not None]
    if given:
        for name in names:
            if roles[name] not in ROLES:
                allowed = "'learning' or 'information', for all nodes or for none"
                raise _refuse(path, roles[name], allowed, f"role of {name}")
        learns = np.array([roles[name] == "learning" for name in names])
    else:
        if not 0 < learning_share < 1:
            raise ConfigError("learning_share", learning_share, "a number in (0, 1)")
        learning = max(1, round(learning_share * count))
        learns = np.isin(np.arange(count), rng.permutation(count)[:learning])
    if not learns.any():
        raise _refuse(path, "no learning node", "at least one", "role")
    order = np.argsort(~learns, kind="stable")
    distance = distance[np.ix_(order, order)] / max(distance.max(), np.finfo(float).tiny)
    split = int(learns.sum())
    problem = problem_on(distance[:split, :split], distance[split:, :split], rng=rng)
    where = None if positions is None else positions[order]
    return Network(problem, tuple(names[i] for i in order), where)


def _paths(path: Path, graph: nx.Graph) -> Float[np.ndarray, "n n"]:
    """Lengths of shortest paths between all nodes."""
    if not len(graph):
        raise _refuse(path, "no nodes", "at least one")
    parts = nx.number_connected_components(graph)
    if parts > 1:
        raise _refuse(path, f"{parts} parts", "a connected network", "edges")
    place = {name: index for index, name in enumerate(graph)}
    distance = np.zeros((len(place), len(place)))
    for name, lengths in nx.all_pairs_dijkstra_path_length(graph, weight="length"):
        for other, length in lengths.items():
            distance[place[name], place[other]] = length
    return np.minimum(distance, distance.T)  # sums of the two directions may differ by rounding


def _distance(a, b, keys: Sequence[str]) -> np.ndarray:
    """Between points of (..., 2): great-circle km of degrees (haversine), or straight."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    if keys != COORDINATES[0]:
        return np.linalg.norm(a - b, axis=-1)
    a, b = np.radians(a), np.radians(b)
    half = np.sin((a - b) / 2) ** 2
    chord = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    return 2 * EARTH * np.arcsin(np.sqrt(np.minimum(chord, 1)))


def _coordinates(path: Path, nodes) -> tuple[str, str]:
    """The first pair of attributes that some node has."""
    for keys in COORDINATES:
        if any(set(keys) <= set(node) for node in nodes):
            return keys
    allowed = "Latitude and Longitude, or x and y; an edge list can do without"
    raise _refuse(path, "no positions", allowed)


def _positions(path: Path, attributes, keys: Sequence[str]) -> dict[str, tuple[float, float]]:
    positions = {}
    bounds = (90.0, 180.0) if keys == COORDINATES[0] else (np.inf, np.inf)
    for name, values in attributes.items():
        for key, bound in zip(keys, bounds, strict=True):
            try:
                fine = np.isfinite(float(values[key])) and abs(float(values[key])) <= bound
            except (KeyError, TypeError, ValueError):
                fine = False
            if not fine:
                allowed = f"a number{f' from -{bound:g} to {bound:g}' if bound < np.inf else ''}"
                raise _refuse(path, values.get(key, "missing"), allowed, f"{key} of {name}")
        positions[name] = tuple(float(values[key]) for key in keys)
    return positions


def _lower(values) -> dict[str, object]:
    return {str(key).strip().lower(): value for key, value in values.items()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _refuse(path, "unreadable", f"a text file; {_first(error)}") from None


def _first(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return reason.splitlines()[0]


def _refuse(path: Path, value, allowed: str, field: str = "network") -> ConfigError:
    return ConfigError(f"{path.name}: {field}", value, allowed)
