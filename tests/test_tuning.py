"""What a device advances together changes how long it takes and nothing else."""

import json

import jax
import numpy as np
import pytest
from problems import SMALL, small_data

import jaxlossy
from jaxlossy import devices, memory, tuning
from jaxlossy.devices import Live
from jaxlossy.grid import expand, make_groups


def group_of(configs=6):
    configs, _ = expand({**SMALL, "sweep": {"seed": range(configs)}})
    return make_groups(configs, data=small_data(), data_dir=None)[0]


def cost_of(group):
    return memory.footprint(group.problem, group.configs[0], group.examples, group.shards[0])


@pytest.fixture
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_measured", {})
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize(
    ("model", "lives"),
    [("mlp", (Live(3, 4), Live(1, 2), Live(1, 1))), ("cnn", (Live(3, 4), Live(1, 1)))],
)
def test_results_do_not_depend_on_what_is_live(monkeypatch, model, lives):
    sweep = {"drop_probability": (0.0, 0.3, 0.5), "seed": (0, 1)}
    data = small_data()
    if model == "cnn":
        train, test = (d.reshape(-1, 3, 2, 1) for d in (data.train_x, data.test_x))
        data = jaxlossy.from_arrays((train, data.train_y), (test, data.test_y))
    outcomes = []
    for live in lives:
        monkeypatch.setattr(tuning, "choose_live", lambda *_, live=live: live)
        fields = {**SMALL, "model": model, "sweep": sweep}
        outcomes.append(jaxlossy.sweep(fields, data=data, verbose=False))
    first = outcomes.pop(0)
    for ds in outcomes:
        np.testing.assert_array_equal(ds["bytes_sent"], first["bytes_sent"])
        np.testing.assert_array_equal(ds["uplink_delivered"], first["uplink_delivered"])
        np.testing.assert_allclose(ds["test_loss"], first["test_loss"], rtol=1e-5)
        np.testing.assert_allclose(ds["disagreement"], first["disagreement"], rtol=1e-4, atol=1e-9)


def test_choices_are_measured_once_and_kept(cache_directory, monkeypatch):
    group, found = group_of(), jax.local_devices()
    live = tuning.choose_live(group, found, cost_of(group), 10**9, measure=True)
    assert live in tuning.choices(SMALL["workers"], 3)
    assert list(json.loads((cache_directory / tuning.FILE).read_text()).values()) == [list(live)]

    def fail(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(tuning, "_seconds", fail)
    monkeypatch.setattr(tuning, "_measured", {})  # as in a new process
    assert tuning.choose_live(group, found, cost_of(group), 10**9) == live
    # Devices that share workers have all of them live, whatever is kept.
    assert tuning.choose_live(group, found, cost_of(group), 10**9, 2).workers == SMALL["workers"]


def test_a_short_sweep_and_a_broken_file_do_not_matter(cache_directory):
    (cache_directory / tuning.FILE).write_text("{")
    group = group_of()
    cost = cost_of(group)
    assert tuning.choose_live(group, jax.local_devices(), cost, 10**9) == Live(3, 4)
    # One replica at a time where nothing fits, as many as fit where something does.
    assert tuning.choose_live(group, jax.local_devices(), cost, 0) == Live(1, 1)
    budget = cost.total(Live(1, 2), 1)
    assert tuning.choose_live(group, jax.local_devices(), cost, budget) == Live(1, 2)


def test_the_climb_finds_the_fastest_on_either_side():
    options = [Live(1, 1), Live(1, 2), Live(1, 4), Live(2, 4), Live(4, 4)]
    for fastest in range(5):
        tried = []

        def seconds(live, fastest=fastest, tried=tried):
            tried.append(live)
            return 1.0 + abs(options.index(live) - fastest)

        for start in range(5):
            tried.clear()
            assert tuning.climb(options, start, seconds) == options[fastest]
            assert len(tried) == len(set(tried))
    flat = [tuning.climb(options, start, lambda _: 1.0) for start in range(5)]
    assert flat == options  # no faster: the guess stays


def test_a_plan_has_the_memory_that_its_choice_takes():
    cost = devices.Footprint(held=10, config=7, replica=5, shared=100)
    for live in (Live(1, 1), Live(1, 4), Live(2, 4)):
        plan = devices.plan_batches(4, 2, cost, budget=10**6, live=live)
        assert plan.live == live
        assert plan.estimated_bytes == 100 + 2 * 10 + live.configs * (7 + 5 * live.workers)
