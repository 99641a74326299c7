"""Many devices, and several processes: the same results as one device of one process gives.

Masks and counts are the same exactly, losses to float32 rounding (sums over workers that several
devices share are taken in another order).
"""

import json
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from apart import SWEEP
from apart import run as run_sweep
from test_sweep import assert_same

import jaxlossy
from jaxlossy import dense, devices, tuning

ROOT = Path(__file__).parent.parent
CACHE = jax.config.jax_compilation_cache_dir
#: A line or so of what moves data between devices, its result's shapes in the first group.
COLLECTIVE = re.compile(
    r"= (.*?) (?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)


@pytest.fixture(scope="module")
def alone():
    return run_sweep(devices=jax.devices()[:1], verbose=False)


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start(*command):
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*started):
    """What each process printed, of its own accord."""
    try:
        printed = []
        for process in started:
            text = "".join(process.communicate(timeout=900))
            assert process.returncode == 0, text
            lines = text.splitlines()
            printed.append("\n".join(line for line in lines if not line.startswith("[Gloo]")))
        return printed
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("shared", ["apart", "four"])
def test_eight_devices_equal_one(faked, alone, shared):
    assert faked[shared].attrs["device"].startswith("8 x ")
    assert_same(faked[shared], alone)


@pytest.fixture(scope="module")
def faked(tmp_path_factory):
    out = tmp_path_factory.mktemp("faked")
    finish(start("tests/apart.py", "faked", out, CACHE))
    return pickle.loads((out / "faked0.pkl").read_bytes())


@pytest.mark.parametrize("rule", ["model_averaging", "gradient_averaging"])
def test_devices_that_share_workers_exchange_one_model_a_step_and_others_nothing(monkeypatch, rule):
    programs, original = [], devices.compile_over_configs
    # In both all workers at once, and products in XLA, as it is where devices share them.
    monkeypatch.setattr(tuning, "choose_live", lambda *_: devices.Live(1, 4))
    monkeypatch.setattr(dense, "platform_dependent", lambda *args, default, **_: default(*args))

    def recording(*args, **kwargs):
        programs.append(original(*args, **kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr(devices, "compile_over_configs", recording)
    config = {**SWEEP, "features": (512,), "packet_size": 61, "aggregation": rule}
    for worker_devices in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            run_sweep(config, worker_devices=worker_devices, memory_budget=1, verbose=False)
    apart, shared = (COLLECTIVE.findall(program.as_text()) for program in programs)
    assert not apart
    shapes = re.findall(r"\w+\[([\d,]*)\]", " ".join(shared))
    sizes = [int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes]
    num_packets = -(-(6 * 512 + 512 + 512 * 3 + 3) // 61)
    assert max(sizes) == num_packets * 61
    # One config on each device, or half of one.
    apart, shared = (program.memory_analysis() for program in programs)
    assert shared.argument_size_in_bytes < 0.6 * apart.argument_size_in_bytes
    assert shared.temp_size_in_bytes < 0.7 * apart.temp_size_in_bytes


@pytest.mark.parametrize(("worker_devices", "workers"), [(0, 4), (3, 4), (2, 3)])
def test_devices_and_workers_divide(worker_devices, workers):
    with pytest.raises(jaxlossy.ConfigError, match=r"^worker_devices: .* a divisor of 2 devices"):
        run_sweep({**SWEEP, "workers": workers}, worker_devices=worker_devices)


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    out, port = tmp_path_factory.mktemp("joined"), free_port()
    started = [start("tests/apart.py", "joined", out, CACHE, i, port) for i in range(2)]
    printed = finish(*started)
    seen = [pickle.loads((out / f"joined{i}.pkl").read_bytes()) for i in range(2)]
    return out, printed, seen


def test_two_processes_return_what_one_does(joined, alone):
    _, printed, (first, second) = joined
    for name in ("workers", "resumed"):
        assert first[name].identical(second[name])
        assert first[name].attrs["device"].startswith("4 x ")
        assert_same(first[name], alone)
    assert first["few"].identical(second["few"])
    assert_same(first["few"], alone.isel(config=[0, 1]))
    assert "finished in" in printed[0]
    assert printed[1] == ""


def test_only_the_first_process_writes_and_all_go_on_from_its_files(joined):
    out, _, (first, second) = joined
    assert first["interrupted"] == second["interrupted"] == "KeyboardInterrupt: "
    assert not (out / "workdir1").exists()
    assert jaxlossy.load(out / "workdir0").identical(first["resumed"])
    # Of three batches of two segments, the first was done and half the second in a checkpoint.
    assert first["segments"] == second["segments"] == 3


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a field", "workers: 0 is not allowed"),
        ("another", "sweep: .* the same in every process"),
        ("a workdir", "workdir: .*file.* is not allowed .*a writable directory"),
        ("its own devices", r"devices: \[(2, 0|0, 2)\] is not allowed"),
    ],
)
def test_what_is_wrong_in_one_process_ends_all(joined, name, line):
    _, _, seen = joined
    for process in seen:
        assert re.match(f"ConfigError: {line}", process[name])


def test_flags_that_join_nobody_are_one_line(tmp_path):
    run = start(
        "scripts/sweep.py",
        "--config=configs/digits.py",
        f"--workdir={tmp_path}",
        "--num_processes=2",
    )
    _, errors = run.communicate(timeout=900)
    assert run.returncode == 1
    assert errors.startswith("error: processes could not be joined: ")
    assert errors.count("\n") == 1


def test_the_script_joins_processes(tmp_path):
    port = free_port()
    flags = [
        "--config=configs/digits.py",
        f"--compilation_cache_dir={CACHE}",
        "--config.steps=2",
        "--config.eval_every=2",
        "--config.workers=4",
        "--config.features=(8,)",
        "--config.sweep.servers=(1,4)",
        "--config.sweep.drop_probability=(0.1,)",
        "--config.sweep.seed=(0,)",
        "--cpu_devices=1",
        "--worker_devices=2",
        f"--coordinator_address=localhost:{port}",
        "--num_processes=2",
    ]
    started = [
        start("scripts/sweep.py", *flags, f"--process_id={i}", f"--workdir={tmp_path / str(i)}")
        for i in range(2)
    ]
    printed = finish(*started)
    assert "final test accuracy of the mean model" in printed[0]
    assert printed[1] == ""
    assert not (tmp_path / "1").exists()
    ds = jaxlossy.load(tmp_path / "0")
    assert ds.attrs["device"].startswith("2 x ")
    assert_same(ds, jaxlossy.sweep(json.loads(ds.attrs["config"]), verbose=False))
