"""The commands of the README, shrunken, as a person runs them: a process of their own."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jax
import pytest

import jaxlossy

ROOT = Path(__file__).parent.parent
SHRINK = ["--config.steps=2", "--config.eval_every=2", "--config.workers=4"]


def sweep(*flags):
    cache = f"--compilation_cache_dir={jax.config.jax_compilation_cache_dir}"
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sweep.py"), cache, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_default_job_runs_and_every_field_can_be_overridden(tmp_path):
    workdir = tmp_path / "new" / "digits"
    run = sweep(
        "--config=configs/digits.py",
        f"--workdir={workdir}",
        *SHRINK,
        "--config.sweep.servers=(1,4)",
        "--config.sweep.seed=(0,1)",
        "--config.sweep.learning_rate=(0.1,0.2)",
        "--config.sweep.drop_probability=(0.0,0.1)",
        "--config.downlink_drop_probability=0.5",
        "--config.features=(8,)",
    )
    assert run.returncode == 0, run.stderr
    ds = jaxlossy.load(workdir)
    assert ds.sizes == {"config": 16, "step": 1}
    assert set(ds["features"].values) == {"8"}
    assert set(ds["downlink_drop_probability"].values) == {0.5}
    assert sorted(set(ds["learning_rate"].values)) == [0.1, 0.2]
    table = run.stdout[-1500:]
    assert "final test accuracy of the mean model" in table
    assert f"results, summary and figures are in {workdir}" in table
    assert "config-steps" in run.stderr  # the progress bar


@pytest.mark.parametrize("config", ["mnist1d_cnn"])
def test_the_other_configs_train_in_their_shrunken_form(tmp_path, config):
    run = sweep(
        f"--config=configs/{config}.py",
        f"--workdir={tmp_path}",
        *SHRINK,
        "--config.features=(8,)",
        "--config.sweep.servers=(4,)",
        "--config.sweep.drop_probability=(0.1,)",
    )
    assert run.returncode == 0, run.stderr
    assert jaxlossy.load(tmp_path)["completed"].all()


def test_data_that_is_not_there_is_said_with_the_command_that_prepares_it(tmp_path):
    run = sweep("--config=configs/cifar10_cnn.py", f"--workdir={tmp_path}")
    assert run.returncode == 1
    assert run.stderr.startswith("error: data: 'cifar10' is not allowed")
    assert "download_and_prepare" in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (
            "--config.drop_probability=1.5",
            "drop_probability: 1.5 is not allowed (allowed: a number in [0, 1])",
        ),
        (
            "--config.sweep.seed=()",
            "sweep.seed: () is not allowed (allowed: a sequence of at least one value)",
        ),
        (
            "--config.batch_size=90",
            "batch_size: 90 is not allowed (allowed: at most 89, the examples of digits in a "
            "worker's shard with workers=16)",
        ),
    ],
)
def test_a_wrong_field_is_one_line_and_no_traceback(tmp_path, flag, message):
    run = sweep("--config=configs/digits.py", f"--workdir={tmp_path / 'w'}", flag)
    assert run.returncode == 1
    assert run.stderr == f"error: {message}\n"


def test_an_interrupt_is_one_line_and_the_same_command_goes_on(tmp_path):
    # In a job that was started in the background, processes ignore interrupts from the start.
    start = (
        "import runpy, signal, sys; sys.argv = sys.argv[1:];"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [
        sys.executable,
        "-c",
        start,
        str(ROOT / "scripts" / "sweep.py"),
        "--config=configs/digits.py",
        f"--workdir={tmp_path}",
        f"--compilation_cache_dir={jax.config.jax_compilation_cache_dir}",
        "--config.workers=4",
        "--config.sweep.servers=(1,)",
        "--config.sweep.drop_probability=(0.1,)",
        "--config.sweep.seed=(0,)",  # few enough not to begin with trying how many should be live
    ]
    # Long, in short segments, so that the interrupt comes while a program runs.
    flags = ["--config.steps=100000", "--config.eval_every=5"]
    with subprocess.Popen(
        [*command, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "compiled in" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == f"interrupted; the same command goes on in {tmp_path}"
    assert not jaxlossy.load(tmp_path)["completed"].any()


def test_an_unknown_field_names_itself(tmp_path):
    for flag in ("--config.stepz=3", "--config.sweep.stepz=(3,)"):
        run = sweep("--config=configs/digits.py", f"--workdir={tmp_path}", flag)
        assert run.returncode == 1
        assert run.stderr == (
            'error: no such field of the config: stepz Did you mean "steps" instead of "stepz"?\n'
        )


def test_importing_is_light():
    """No TensorFlow, no flags, no devices, no options of XLA: a notebook stays its own."""
    code = """
import os, sys
before = dict(os.environ)
from absl import flags
import jaxlossy
import jax
assert not {"tensorflow", "tensorflow_datasets", "sklearn", "mnist1d"} & set(sys.modules)
assert not flags.FLAGS.is_parsed()
assert not any(module.startswith("jaxlossy") for module in flags.FLAGS.flags_by_module_dict())
assert dict(os.environ) == before
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("XLA")}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_the_licence_is_the_one_that_is_stated():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert project["name"] == "jaxlossy"
