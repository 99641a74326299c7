"""The report of the reproduction, from made-up numbers and from a shrunken run of the script."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from made_up import CONFIGS, load_config, made_up

import jaxlossy
from jaxlossy.grid import expand
from jaxlossy.rps import report
from jaxlossy.rps.influence import Study

ROOT = CONFIGS.parent
#: Programs that run for a few steps need not be fast, but there are seven to compile.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
QUICK = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"


def check_report(directory: Path):
    """The report is complete: its sentences, and the figures that it shows."""
    text = (directory / "report.md").read_text()
    numbers = pd.read_csv(directory / "numbers.csv")
    sentences = numbers["sentence"].dropna()
    assert all(f"- {sentence}\n" in text for sentence in sentences)
    assert set(numbers["finding"].dropna()) == {"a", "b", "c"}
    assert {"mean", "standard_error", "seeds"} <= set(numbers)
    assert numbers["seeds"].notna().all()
    figures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert sorted(figures) == sorted(f"figures/{f.name}" for f in (directory / "figures").iterdir())
    for figure in figures:
        assert (directory / figure).read_bytes()[:4] == b"\x89PNG"
    for config in ("rps_resnet20_cifar10", "rps_resnet110_cifar10", "rps_lstm_atis"):
        assert f"--config=configs/{config}.py" in text
    return text, numbers


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    rng = np.random.default_rng(0)

    def accuracy(row):
        lost = 0.1 if row.aggregation == "gradient_averaging" else 0.1 * row.drop_probability
        return 0.9 - lost * (row.drop_probability > 0) - 0.0001 * rng.normal()

    metrics = {"test_accuracy": accuracy, "replica_test_accuracy": accuracy}
    losses = [
        made_up(load_config(name)["get_config"]("shrink"), **metrics)
        for name in ("rps_digits", "rps_mnist1d")
    ]
    study = Study(servers=(2, 4), workers=2, seeds=3)
    servers = made_up(
        {"steps": 2, "eval_every": 1, "sweep": study.sweep()},
        test_loss=lambda row: 1 + row.drop_probability / row.servers**2 + 0.001 * rng.random(),
        disagreement=lambda row: row.drop_probability * (1 + 0.01 * rng.random()),
    )
    directory = tmp_path_factory.mktemp("report") / "new"
    return directory, report.write(losses, servers, study, directory)


def test_the_report_is_whole(written):
    directory, table = written
    text, numbers = check_report(directory)
    assert len(numbers) == len(table)
    # 2 data sets, 2 skews, 2 aggregations, 4 drop probabilities, 2 measures
    assert (numbers["quantity"] == "accuracy lost").sum() == 64
    assert "## What is not shown here" in text


def test_the_report_says_in_short_what_holds(written):
    text = (written[0] / "report.md").read_text()
    short = text.split("## In short")[1].split("##")[0]
    assert "slightly worse at 20%: **holds** here.\n" in short
    assert '\n  - "as without loss" at 1%: holds in 4 of 4\n' in short
    assert '\n  - "visibly worse" at 1%: holds in 4 of 4\n' in short
    assert "(c) The influence of loss diminishes as n = N = S grows: **holds** here." in short


def test_the_table_has_the_numbers_of_the_file(written):
    directory, table = written
    rows = table[(table["quantity"] == "accuracy lost") & (table["drop_probability"] == 0.2)]
    row = rows[rows["aggregation"] == "model_averaging"].iloc[0]
    cell = f"{100 * row['mean']:.2f} ± {100 * row['standard_error']:.2f}"
    text = (directory / "report.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| digits, iid shards | 20%"))
    assert cell in line
    assert line.count("|") == 7


@pytest.mark.parametrize("name", ["rps_digits", "rps_mnist1d"])
def test_configs_are_the_paper_s_setting(name):
    config = load_config(name)["get_config"]()
    configs, _ = expand(config)
    assert {c.drop_probability for c in configs} == {0.0, 0.01, 0.05, 0.1, 0.2}
    assert {c.aggregation for c in configs} == {"model_averaging", "gradient_averaging"}
    assert len({c.seed for c in configs}) >= 10
    assert {(c.workers, c.optimizer, c.placement) for c in configs} == {(16, "sgd", "random")}
    assert {c.loss_unit for c in configs} == {"message"}
    assert min(c.warmup_steps for c in configs) > 0


def test_the_study_has_seeds_enough():
    assert load_config("rps_servers")["get_study"]().seeds >= 10


def test_the_script_in_its_shrunken_form(tmp_path):
    cache = f"--compilation_cache_dir={jax.config.jax_compilation_cache_dir}"
    result = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts" / "reproduce_rps.py"),
            "--shrink",
            f"--workdir={tmp_path / 'rps'}",
            cache,
        ],
        cwd=tmp_path,  # configs are found from anywhere
        env=os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": QUICK},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    _, numbers = check_report(tmp_path / "rps")
    assert numbers["sentence"].dropna().iloc[-1] in result.stdout
    assert f"the report is {tmp_path / 'rps' / 'report.md'}" in result.stdout
    for name in ("rps_digits", "rps_mnist1d", "rps_servers"):  # where the same command goes on
        assert jaxlossy.load(tmp_path / "rps" / name)["completed"].all()


def test_a_form_that_is_none_is_named():
    with pytest.raises(ValueError, match="form: 'shrunk' is not allowed"):
        load_config("rps_digits")["get_config"]("shrunk")
