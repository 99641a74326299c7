"""Problems and plans as data: the file format, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import jaxlossy
from jaxlossy import topology

FILE = Path(__file__).parent / "data" / "doubleclimb_instances.json"
ALONE = [[None] * 4, *[[0.1] * 4] * 4]
PARTS = [[0, 1, None, None], [1, 0, None, None], [None, None, 0, 1], [None, None, 1, 0]]


def golden():
    return topology.load(FILE)[0]


def test_a_file_is_read_and_written_unchanged(tmp_path):
    instances = topology.load(FILE)
    topology.save(tmp_path / "again.json", instances)
    again = topology.load(tmp_path / "again.json")
    original = json.loads(FILE.read_text())["instances"]
    assert len(instances) == len(original) == 41
    for one, two, raw in zip(instances, again, original, strict=True):
        assert one.name == two.name == raw["name"]
        assert one.problem.to_json() == two.problem.to_json() == raw["instance"]
        assert one.plans == two.plans
        assert one.plans["optimum"].epochs == raw["optimum"]["epochs"]


def test_links_that_can_not_be_are_null():
    fields = golden().problem.to_json()
    fields["cLL"][0][1] = fields["cLL"][1][0] = None
    fields["cIL"][2][3] = None
    problem = topology.Problem.from_json(fields)
    assert np.isinf(problem.cLL[0, 1])
    assert np.isinf(problem.cIL[2, 3])
    assert problem.to_json() == fields


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cL": [-0.1, 1, 1, 1]}, "cL: -0.1"),
        ({"cI": [1, 1, -2, 1, 1]}, "cI: -2"),
        ({"cLL": [[0, 1, 1, 1], [2, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]}, "cLL: '1 from 0 to 1"),
        ({"cLL": PARTS}, "cLL: 'no path from 0 to 2'"),
        ({"cIL": ALONE}, "cIL: 'no link from information node 0'"),
        ({"work": None}, "work: None"),
        ({"dmin": [float("nan"), 1, 1, 1, 1]}, "dmin: nan"),
        ({"eps_max": float("nan")}, "eps_max: nan"),
        ({"X0": [1, 2, float("inf"), 4]}, "X0: inf"),
        ({"strag": ["a", 1, 1, 1]}, "strag: "),
        ({"r": [[1, 2], [3]]}, "r: "),
        ({"r": [1, 2]}, "dmin: 'shape (5,)'"),
        ({"cLL": [[0, 1], [1, 0]]}, "cLL: 'shape (2, 2)'"),
        ({"K_max": 0}, "K_max: 0"),
        ({"K_max": 2.5}, "K_max: 2.5"),
        ({"T_max": 0}, "T_max: 0"),
        ({"tg": -1}, "tg: -1"),
        ({"speed": 3}, "instance: 'speed'"),
    ],
)
def test_wrong_problems_are_refused_with_their_field(change, field):
    with pytest.raises(jaxlossy.ConfigError) as error:
        topology.Problem.from_json(golden().problem.to_json() | change)
    assert str(error.value).startswith(field)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["X0", "cIL", "beta", "K_max"])
def test_a_missing_field_is_named(name):
    fields = golden().problem.to_json()
    del fields[name]
    with pytest.raises(jaxlossy.ConfigError, match=rf"^{name}: 'missing'"):
        topology.Problem.from_json(fields)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "instances: "),
        ("[]", "instances: "),
        ('{"instances": [{"name": "a", "instance": {}}]}', "a: X0: 'missing'"),
        ('{"instances": [{"name": "a"}]}', "instances[0]: "),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, line):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(jaxlossy.ConfigError) as error:
        topology.load(path)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"learning_nodes": (0, 9)}, "learning_nodes"),
        ({"learning_nodes": ()}, "learning_nodes"),
        ({"information_nodes": (1, 1)}, "information_nodes"),
        ({"edges": ((0, 3),)}, "edges"),
        ({"edges": ((0, 1), (1, 0))}, "edges"),
        ({"attached_to": (3,)}, "attached_to"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_wrong_plans_are_refused(change, field):
    fields = {"learning_nodes": (0, 1), "edges": ((0, 1),), "information_nodes": (2,), "epochs": 3}
    problem = golden().problem
    assert topology.evaluate(problem, topology.Plan(**fields)).attached_to == (0,)
    with pytest.raises(jaxlossy.ConfigError, match=rf"^{field}: "):
        topology.evaluate(problem, topology.Plan(**(fields | change)))
