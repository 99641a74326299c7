"""The benchmark runs and says what it promises; no time is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import benchmark
import jax
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def run_benchmark(*flags):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "benchmark.py"), "--seconds=0", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_rows_say_what_was_measured(tmp_path):
    path = tmp_path / "rows.json"
    run = run_benchmark(
        "--work=mlp64",
        "--configs=2",
        "--system=jaxlossy,plain_vmap",
        "--live=1,16",
        f"--json={path}",
    )
    assert run.returncode == 0, run.stderr
    ours, plain = json.loads(path.read_text())
    assert (ours["work"], ours["system"], ours["configs"]) == ("mlp64", "jaxlossy", 2)
    assert plain["system"] == "plain_vmap"
    for row in (ours, plain):
        assert row["worker_steps_per_second"] > 0
        assert row["compile_seconds"] > 0
        # A rate above the floor's would mean that one of the two is wrong.
        assert row["floor_ratio"] > 1
        assert f"{row['worker_steps_per_second']:,.0f}" in run.stdout
    assert ours["ratio_to_first"] == 1
    # What the estimate is for: the peak is never far above it.
    assert ours["peak_bytes"] < 1.3 * ours["estimated_bytes"]
    assert plain["estimated_bytes"] is None


def test_a_work_that_is_not_there_is_named():
    run = run_benchmark("--work=mlp65", "--configs=1")
    assert run.returncode == 1
    assert run.stderr.strip() == (
        "error: work: 'mlp65' is not allowed (allowed: average_1.7M, average_270k, cnn, cnn1d, "
        "mlp256, mlp64, resnet20; did you mean 'mlp64'?)"
    )


@pytest.mark.parametrize("name", ["mlp64", "cnn1d", "cnn"])
def test_native_modules_are_the_same_functions(name):
    work = benchmark.WORK[name]
    ours, native = (
        benchmark.make_group(work, 1, native=native).problem.model for native in (False, True)
    )
    x = np.random.default_rng(0).normal(size=(3, *work.shape)).astype(np.float32)
    params = ours.init(jax.random.key(0), x)
    expected = ours.apply(params, x, ours.start(x))
    np.testing.assert_allclose(native.apply(params, x, native.start(x)), expected, 1e-4, 1e-4)
