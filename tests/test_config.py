import dataclasses
import math
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlossy
from jaxlossy import optimizers
from jaxlossy.config import FIELDS, is_traced, make_config, stack_configs
from jaxlossy.errors import ConfigError
from jaxlossy.grid import expand


def message_of(call, *args):
    with pytest.raises(ConfigError) as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


PROBABILITY = "is not allowed (allowed: a number in [0, 1])"
COUNT = "is not allowed (allowed: an integer in [1, 2**31))"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"drop_probability": 1.5}, f"drop_probability: 1.5 {PROBABILITY}"),
        ({"drop_probability": -0.1}, f"drop_probability: -0.1 {PROBABILITY}"),
        ({"drop_probability": math.nan}, f"drop_probability: nan {PROBABILITY}"),
        ({"drop_probability": "0.1"}, f"drop_probability: '0.1' {PROBABILITY}"),
        ({"drop_probability": None}, f"drop_probability: None {PROBABILITY}"),
        ({"drop_probability": True}, f"drop_probability: True {PROBABILITY}"),
        ({"uplink_drop_probability": 2}, f"uplink_drop_probability: 2 {PROBABILITY}"),
        ({"downlink_drop_probability": math.inf}, f"downlink_drop_probability: inf {PROBABILITY}"),
        ({"workers": 0}, f"workers: 0 {COUNT}"),
        ({"workers": 2.5}, f"workers: 2.5 {COUNT}"),
        ({"workers": math.inf}, f"workers: inf {COUNT}"),
        ({"servers": 0}, f"servers: 0 {COUNT}"),
        ({"batch_size": -1}, f"batch_size: -1 {COUNT}"),
        ({"packet_size": 0}, f"packet_size: 0 {COUNT}"),
        ({"seed": -1}, "seed: -1 is not allowed (allowed: an integer in [0, 2**31))"),
        ({"seed": 2**31}, "seed: 2147483648 is not allowed (allowed: an integer in [0, 2**31))"),
        ({"learning_rate": 0}, "learning_rate: 0 is not allowed (allowed: a finite number > 0)"),
        ({"momentum": 1.0}, "momentum: 1.0 is not allowed (allowed: a number in [0, 1))"),
        (
            {"dirichlet_alpha": 0.0},
            "dirichlet_alpha: 0.0 is not allowed (allowed: a number > 0; inf for iid shards)",
        ),
        (
            {"features": (8, 0)},
            "features: (8, 0) is not allowed (allowed: a tuple of integers >= 1)",
        ),
        (
            {"matmul_precision": "tf32"},
            "matmul_precision: 'tf32' is not allowed (allowed: 'default', 'float32' or 'bfloat16')",
        ),
        (
            {"compute_dtype": "float16"},
            "compute_dtype: 'float16' is not allowed (allowed: 'float32' or 'bfloat16')",
        ),
        (
            {"normalization": "layer"},
            "normalization: 'layer' is not allowed (allowed: 'group' or 'batch')",
        ),
        ({"remat": 1}, "remat: 1 is not allowed (allowed: True or False)"),
        ({"model": 3}, "model: 3 is not allowed (allowed: a name)"),
        (
            {"servers": 17},
            "servers: 17 is not allowed (allowed: at most workers=16 with placement='random', "
            "where every server is a worker)",
        ),
        (
            {"servers": 5, "workers": 4, "placement": "fixed"},
            "servers: 5 is not allowed (allowed: at most workers=4 with placement='fixed', "
            "where every server is a worker)",
        ),
        (
            {"steps": 100, "eval_every": 30},
            "eval_every: 30 is not allowed (allowed: a divisor of steps=100)",
        ),
        ({"drop_probability": 0.1 + 1j}, f"drop_probability: (0.1+1j) {PROBABILITY}"),
        # What a device's float32 would make 0 or infinite.
        (
            {"learning_rate": 1e-60},
            "learning_rate: 1e-60 is not allowed (allowed: a finite number > 0)",
        ),
        (
            {"learning_rate": 1e300},
            "learning_rate: 1e+300 is not allowed (allowed: a finite number > 0)",
        ),
        (
            {"features": (True,)},
            "features: (True,) is not allowed (allowed: a tuple of integers >= 1)",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(fields, message):
    assert message_of(make_config, fields) == message


def test_an_unknown_field_is_refused_with_the_nearest_one():
    assert message_of(make_config, {"drop_probabilty": 0.1}) == (
        f"config field: 'drop_probabilty' is not allowed (allowed: one of {len(FIELDS)} names; "
        "did you mean 'drop_probability'?)"
    )


@pytest.mark.parametrize("axis", [(), [], 0.1, None, np.array([]), np.array(3), {1, 2}])
def test_an_axis_without_values_is_refused(axis):
    if axis is None:  # means not swept
        assert len(expand({"sweep": {"seed": None}})[0]) == 1
        return
    message = message_of(expand, {"sweep": {"drop_probability": axis}})
    assert message.startswith("sweep.drop_probability: ")
    assert message.endswith("is not allowed (allowed: a sequence of at least one value)")


def test_wrong_sweeps_are_refused():
    assert message_of(expand, {"sweep": {"sed": (1,)}}).endswith("did you mean 'seed'?)")
    assert message_of(expand, {"sweep": {"seed": (1, -1)}}).startswith("seed: -1 is not allowed")
    allowed = "(allowed: a mapping of axes, or a sequence of at least one config)"
    assert message_of(expand, {"sweep": []}) == f"sweep: [] is not allowed {allowed}"
    swept = {"workers": 0, "sweep": {"workers": (1, 2)}}  # wrong although the axis replaces it
    assert message_of(expand, swept).startswith("workers: 0 is not allowed")
    assert message_of(expand, {"sweep": [3]}).startswith("sweep: 3 is not allowed")
    assert message_of(expand, {"sweep": 5}).startswith("sweep: 5 is not allowed")
    assert message_of(expand, None).startswith("config: None is not allowed")
    as_flag = message_of(expand, {"sweep": {"dirichlet_alpha": "(inf,0.1)"}})
    assert as_flag.endswith("a sequence of at least one value; as a flag, inf is written 1e999)")
    both = {"uplink_drop_probability": 0.1, "downlink_drop_probability": 0.1}
    message = message_of(expand, {**both, "sweep": {"drop_probability": (0.0, 0.5)}})
    assert message.endswith("(allowed: no axis where both directions are set)")


@pytest.mark.parametrize("sweep", [{"seed": (0, 1, 0)}, [{"seed": 0}, {"servers": 1}]])
def test_equal_configs_are_refused_since_they_would_count_as_seeds(sweep):
    assert "which makes the same config" in message_of(expand, {"sweep": sweep})


def test_errors_cross_process_pools():
    error = pickle.loads(pickle.dumps(ConfigError("workers", 0, "an integer >= 1")))
    assert isinstance(error, ConfigError)
    assert error.field == "workers"


def test_numbers_of_other_types_are_converted():
    config = make_config({"seed": np.int64(3), "steps": 100.0, "drop_probability": np.float32(0)})
    assert (config.seed, config.steps, config.drop_probability) == (3, 100, 0.0)
    assert type(config.seed) is int
    assert make_config({"drop_probability": jnp.float32(0.5)}).drop_probability == 0.5
    assert make_config({"features": np.array([8, 8])}).features == (8, 8)
    assert make_config({"features": [8, 8]}).features == (8, 8)


def test_each_direction_has_its_own_probability_equal_by_default():
    config = make_config({"drop_probability": 0.2, "uplink_drop_probability": 0.0})
    assert (config.uplink_drop_probability, config.downlink_drop_probability) == (0.0, 0.2)


def test_traced_fields_share_a_program_and_static_ones_do_not():
    base = make_config({})
    different = {float: 0.25, int: 2, str: "other", tuple: (3,), bool: True}
    for name, field in FIELDS.items():
        value = different[field.metadata["kind"].type]
        other = dataclasses.replace(base, **{name: value})
        same_program = jax.tree.structure(base) == jax.tree.structure(other)
        assert same_program == is_traced(name), name
    assert {name for name in FIELDS if is_traced(name)} >= {
        "drop_probability",
        "servers",
        "seed",
        "learning_rate",
        "warmup_steps",
        "decay_rate",
        "dirichlet_alpha",
    }


def test_stacked_configs_are_arrays_inside_a_program():
    configs = [make_config({"servers": s, "learning_rate": 0.1 * s}) for s in (1, 2, 3)]

    @jax.vmap
    def inside(config: Any):
        assert isinstance(config.workers, int)
        return config.servers.astype(jnp.float32) * config.learning_rate

    np.testing.assert_allclose(inside(stack_configs(configs)), [0.1, 0.4, 0.9], rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, lambda k: 1.0),
        ({"schedule": "cosine"}, lambda k: 0.5 * (1 + math.cos(math.pi * k / 200))),
        (
            {"schedule": "exponential", "decay_rate": 0.5, "decay_steps": 40},
            lambda k: 0.5 ** (k / 40),
        ),
        (
            {"schedule": "exponential", "decay_rate": 0.5, "decay_begin": 9},
            lambda k: 0.5 ** (max(k - 9, 0) / 100),
        ),
        (
            {"schedule": "steps", "decay_rate": 0.1, "decay_begin": 37, "decay_steps": 40},
            lambda k: {77: 0.1, 200: 1e-4}.get(k, 1.0),
        ),
    ],
)
def test_schedules_with_warm_up(fields, expected):
    config = make_config(
        {"steps": 100, "local_steps": 2, "warmup_steps": 10, "learning_rate": 0.3, **fields}
    )
    rate = optimizers.learning_rate(config)
    for count in (0, 4, 9, 10, 76, 77, 200):
        value = 0.3 * min(1, (count + 1) / 10) * expected(count)
        assert float(rate(jnp.int32(count))) == pytest.approx(value, rel=1e-5, abs=1e-7)


def test_the_config_dict_has_every_field_and_every_axis():
    config = jaxlossy.default_config()
    assert set(config) == {*FIELDS, "sweep"}
    assert set(config.sweep) == set(FIELDS)
    configs, swept = expand(config)
    assert configs == [make_config({})]
    assert swept == []
