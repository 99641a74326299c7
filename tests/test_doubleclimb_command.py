"""scripts/doubleclimb.py as a person runs it, and the study behind its figures."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jaxlossy
from jaxlossy import topology
from jaxlossy.topology import figures
from jaxlossy.topology.study import default_config, study

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "data" / "doubleclimb_instances.json"


def run(*flags):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "doubleclimb.py"), *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_file_of_instances_becomes_a_table(tmp_path):
    content = json.loads(FILE.read_text())
    content["instances"] = content["instances"][:3]
    impossible = {"name": "hopeless", "instance": content["instances"][0]["instance"].copy()}
    impossible["instance"]["T_max"] = 30.0
    content["instances"].append(impossible)
    (tmp_path / "some.json").write_text(json.dumps(content))
    csv = tmp_path / "new" / "table.csv"
    result = run(
        f"--instances={tmp_path / 'some.json'}", f"--csv={csv}", "--algorithms=refined,optimum"
    )
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(csv)
    names = ["name", "algorithm", "cost", "error", "time", "epochs", "seconds"]
    assert list(table.columns) == names
    assert len(table) == 8
    solved = table[table["name"] != "hopeless"]
    costs = [entry["optimum"]["cost"] for entry in content["instances"][:3]]
    np.testing.assert_allclose(solved[solved["algorithm"] == "optimum"]["cost"], costs, rtol=1e-6)
    hopeless = table[table["name"] == "hopeless"]
    assert hopeless[["cost", "time", "epochs"]].isna().all(axis=None)
    assert (hopeless["error"] > 0.055).all()
    assert "hopeless, refined: no plan; T_max: in 30 s" in result.stdout
    assert "cost over the optimal cost" in result.stdout


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--instances=nowhere.json", "--csv=x.csv"], "error: instances: 'nowhere.json'"),
        ([f"--instances={FILE}", "--csv=x.csv", "--algorithms=fast"], "error: algorithms: 'fast'"),
        ([], "error: config: None"),
        (["--config=configs/doubleclimb.py", "--config.seed=3"], "error: no such field"),
    ],
)
def test_wrong_flags_are_one_line(flags, line):
    result = run(*flags)
    assert result.returncode == 1
    assert result.stderr.startswith(line), result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_study_and_its_figures(tmp_path):
    config = default_config()
    config.learning, config.information, config.drawn = 3, 5, (6, 8)
    config.seeds, config.relax_eps_max, config.relax_T_max = (0, 1), (0.5, 1.0, 1.5), (0.4, 1.0)
    config.algorithms = ("refined", "plain", "optimum", "cheapest_first", "all_on")
    result = study(config, tmp_path)
    assert len(result.sweeps) == 5 * (3 + 2)
    assert len(pd.read_csv(tmp_path / "ratios.csv")) == 5 * 2
    assert (result.ratios["ratio"].dropna() >= 1 - 1e-9).all()
    written = topology.load(tmp_path / "networks.json")
    assert [instance.name for instance in written] == ["network-0", "network-1", "drawn"]
    assert written[2].plans["refined"] == result.plan
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "chosen.png", "costs.png", "ratios.png", "topology.png",
    ]  # fmt: skip
    panels = figures.costs(result.sweeps).axes
    rows = result.sweeps[result.sweeps["constraint"] == "T_max"]
    optimum = rows[rows["algorithm"] == "optimum"].sort_values("value")
    drawn = [line.get_ydata() for line in panels[1].lines]
    assert any(np.array_equal(y, optimum["cost"], equal_nan=True) for y in drawn)
    assert panels[0].get_xlabel()
    assert panels[0].get_ylabel()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"speed": 1}, "config: 'speed'"),
        ({"seeds": ()}, r"seeds: \(\)"),
        ({"algorithms": ("refined",)}, r"algorithms: \('refined',\)"),
        ({"learning": 0}, "learning: 0"),
        ({"relax_T_max": (1.0, -1.0)}, r"relax_T_max: -1.0"),
        ({"drawn": (3,)}, "drawn: "),
    ],
)
def test_wrong_studies_are_refused(change, line):
    with pytest.raises(jaxlossy.ConfigError, match=line):
        study(change)
