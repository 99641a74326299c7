"""scripts/theory.py as a person runs it: a process of its own."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from jaxlossy import theory

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "tests" / "data" / "rps_coefficients.csv"


def run(*flags):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "theory.py"), *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_table_and_its_files(tmp_path):
    file = tmp_path / "new" / "table.csv"
    flags = ["--workers=3", "--servers=1,2", "--drop_probability=0.1,0.5", "--trials=400"]
    result = run(*flags, f"--csv={file}", f"--workdir={tmp_path / 'work'}", "--nofigures")
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(file)
    assert len(table) == 2 * 2 * 2
    columns = [c.replace("mc_", "measured_") for c in pd.read_csv(REFERENCE, nrows=0).columns]
    assert list(table.columns[: len(columns)]) == columns
    row = table[table["placement"] == "separate"].iloc[1]
    exact = theory.coefficients("separate", 3, 0.5)
    assert row["num_servers"] == 1
    assert row["beta"] == pytest.approx(exact.beta)
    assert abs(row["measured_alpha2"] - exact.alpha2) < 5 * row["measured_alpha2_se"]
    assert "standard errors; of all rows" in result.stdout
    assert pd.read_csv(tmp_path / "work" / "theory.csv").equals(table)
    assert not (tmp_path / "work" / "figures").exists()


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("--placement=fixed", "error: placement: 'fixed' is not allowed"),
        ("--workers=two", "error: workers: 'two' is not allowed (allowed: integers)"),
        ("--servers=99", "error: servers: 99 is not allowed (allowed: at most workers=2"),
    ],
)
def test_wrong_flags_are_one_line(flag, line):
    result = run(flag)
    assert result.returncode == 1
    assert result.stderr.startswith(line), result.stderr
    assert len(result.stderr.splitlines()) == 1
