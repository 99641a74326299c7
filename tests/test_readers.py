"""Networks from files that the tests write."""

import numpy as np
import pytest

from jaxlossy.errors import ConfigError
from jaxlossy.topology import readers
from jaxlossy.topology.instances import edge_network
from jaxlossy.topology.model import Problem

CITIES = {"Milan": (45.4642, 9.19), "Turin": (45.0703, 7.6869), "Rome": (41.9028, 12.4964)}


def graphml(path, nodes, edges, *, directed=False):
    """A file as the Topology Zoo writes them: nodes with label, Latitude and Longitude."""
    keys = sorted({key for values in nodes.values() for key in values})
    kinds = {key: "double" if key in ("Latitude", "Longitude") else "string" for key in keys}
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        *(f'<key attr.name="{k}" attr.type="{kinds[k]}" for="node" id="{k}"/>' for k in keys),
        f'<graph edgedefault="{"directed" if directed else "undirected"}">',
    ]
    for name, values in nodes.items():
        data = "".join(f'<data key="{key}">{value}</data>' for key, value in values.items())
        lines.append(f'<node id="{name}">{data}</node>')
    lines += [f'<edge source="{a}" target="{b}"/>' for a, b in edges]
    path.write_text("\n".join([*lines, "</graph></graphml>"]))
    return path


def cities(**more):
    return {
        name: {"Latitude": lat, "Longitude": lon, **more.get(name, {})}
        for name, (lat, lon) in CITIES.items()
    }


ROLES = {
    "Milan": {"role": "learning"}, "Turin": {"role": "learning"}, "Rome": {"role": "information"}
}  # fmt: skip


def test_graphml_with_positions_and_roles(tmp_path):
    path = graphml(
        tmp_path / "zoo.graphml", cities(**ROLES), [("Turin", "Milan"), ("Milan", "Rome")]
    )
    problem, names, positions = readers.read_graphml(path, seed=0)
    assert names == ("Milan", "Turin", "Rome")
    np.testing.assert_allclose(positions[0], CITIES["Milan"][::-1])
    milan_turin, milan_rome = 125.6, 476.8  # km along great circles
    widest = milan_turin + milan_rome  # Turin to Rome leads through Milan
    assert problem.cLL[0, 1] == pytest.approx(0.1 + milan_turin / widest, rel=2e-3)
    assert problem.cIL[0, 0] == pytest.approx(0.1 + milan_rome / widest, rel=2e-3)
    assert problem.cIL[0, 1] == pytest.approx(1.1)
    assert 0.2 + milan_rome / widest - 1e-3 < problem.dmin[0] < 0.5 + milan_rome / widest


def test_parallel_edges_loops_and_directions_make_no_difference(tmp_path):
    edges = [("Turin", "Milan"), ("Milan", "Rome")]
    one = graphml(tmp_path / "one.graphml", cities(), edges)
    more = [*edges, ("Milan", "Turin"), ("Milan", "Turin"), ("Rome", "Rome")]
    for directed in (False, True):
        many = graphml(tmp_path / "many.graphml", cities(), more, directed=directed)
        first, second = (readers.read_graphml(path, seed=3) for path in (one, many))
        assert first.names == second.names
        np.testing.assert_allclose(first.problem.cLL, second.problem.cLL)
        np.testing.assert_allclose(first.problem.cIL, second.problem.cIL)


def test_edge_list(tmp_path):
    path = tmp_path / "net.edges"
    path.write_text("# a ring with a short cut\na b 1\nb c 2\nc d 1\nd a 4  # long\na b 3\n")
    problem, names, positions = readers.read_edges(path, seed=1, learning_share=1 / 4)
    assert (problem.learning, problem.information, positions) == (1, 3, None)
    assert set(names) == set("abcd")
    path.write_text("a b\nb c\nc d\n")
    problem, names, _ = readers.read_edges(path, seed=1, learning_share=0.5)
    hops = abs(ord(names[0]) - ord(names[1]))
    assert problem.cLL[0, 1] == pytest.approx(0.1 + hops / 3)


def test_positions(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text("name, X ,y,role\nv,0,0,learning\nw,3,4,information\nu,0,5,learning\n")
    problem, names, positions = readers.read_positions(path, seed=0)
    assert names == ("v", "u", "w")
    np.testing.assert_allclose(positions, [[0, 0], [0, 5], [3, 4]])
    np.testing.assert_allclose(problem.cLL, [[0, 1.1], [1.1, 0]])
    np.testing.assert_allclose(problem.cIL, [[1.1, 0.1 + np.sqrt(10) / 5]])


def test_the_seed_draws_what_the_file_does_not_say(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{lat:.4f},{lon:.4f}" for lat, lon in rng.uniform(45, 46, (20, 2))]
    path = tmp_path / "cells.csv"
    path.write_text("\n".join(["latitude,longitude", *rows]))
    first, again, other = (readers.read_positions(path, seed=s) for s in (1, 1, 2))
    assert first.problem.learning == 10
    assert first.names == again.names != other.names
    np.testing.assert_array_equal(first.problem.X0, again.problem.X0)
    assert not np.array_equal(first.problem.X0, other.problem.X0)
    share = readers.read_positions(path, seed=1, learning_share=0.25)
    assert (share.problem.learning, share.problem.information) == (5, 15)
    assert share.problem.cLL.max() <= 1.1


@pytest.mark.parametrize(
    ("nodes", "edges", "line"),
    [
        ({"a": {"label": "A"}}, [], "no positions' is not allowed (allowed: Latitude"),
        (
            {**cities(), "Oslo": {"label": "Oslo"}},
            [],
            "bad.graphml: latitude of Oslo: 'missing' is not allowed (allowed: a number from -90",
        ),
        (
            {**cities(), "Oslo": {"Latitude": 95, "Longitude": 10}},
            [],
            "bad.graphml: latitude of Oslo: 95.0 is not allowed (allowed: a number from -90 to 90)",
        ),
        (cities(), [("Rome", "Milan")], "bad.graphml: edges: '2 parts' is not allowed"),
        (
            cities(Rome={"role": "reads"}),
            [("Rome", "Milan"), ("Rome", "Turin")],
            "bad.graphml: role of Milan: None is not allowed (allowed: 'learning'",
        ),
    ],
)
def test_graphml_that_is_refused(tmp_path, nodes, edges, line):
    path = graphml(tmp_path / "bad.graphml", nodes, edges)
    with pytest.raises(ConfigError) as caught:
        readers.read_graphml(path, seed=0)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reader", "text", "line"),
    [
        ("read_graphml", "not xml", "net: network: 'no GraphML' is not allowed"),
        ("read_graphml", None, "net: network: 'no GraphML' is not allowed"),
        ("read_edges", None, "net: network: 'unreadable' is not allowed"),
        ("read_edges", "# nothing\n", "net: network: 'no nodes' is not allowed"),
        ("read_edges", "a b 1\na b c d\n", "net: line 2: 'a b c d' is not allowed"),
        ("read_edges", "a b -1\n", "net: line 1: 'a b -1' is not allowed"),
        ("read_edges", "a b\nc d\n", "net: edges: '2 parts' is not allowed"),
        ("read_positions", None, "net: network: 'unreadable' is not allowed"),
        ("read_positions", "name,role\na,b\n", "net: network: 'no positions' is not allowed"),
        ("read_positions", "x,y\n1,nan\n", "net: y of 0: 'nan' is not allowed"),
        ("read_positions", "x,y,name\n1,2,a\n1,3,a\n", "net: name: 'a' is not allowed"),
        (
            "read_positions",
            "x,y,role\n1,2,information\n3,4,information\n",
            "net: role: 'no learning node' is not allowed",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, reader, text, line):
    path = tmp_path / "net"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        getattr(readers, reader)(path, seed=0)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_shares_that_are_refused(tmp_path):
    path = tmp_path / "net"
    path.write_text("a b\n")
    with pytest.raises(ConfigError, match="learning_share"):
        readers.read_edges(path, seed=0, learning_share=0.0)


@pytest.mark.parametrize(("learning", "information"), [(10, 15), (50, 50), (200, 300)])
def test_generated_networks_are_problems_of_their_size(learning, information):
    problem, positions = edge_network(learning, information, seed=0)
    assert isinstance(problem, Problem)
    assert (problem.learning, problem.information) == (learning, information)
    distance = np.linalg.norm(positions[0] - positions[learning - 1])
    assert problem.cLL[0, learning - 1] == pytest.approx(0.1 + distance)
    again, other = (edge_network(learning, information, seed=seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(problem.cIL, again.cIL)
    assert not np.array_equal(problem.cIL, other.cIL)
