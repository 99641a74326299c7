"""Speed of training, as one table: worker-steps per second, compile time, estimated memory.

python scripts/benchmark.py --work=mlp64,cnn1d --configs=1,16,256

The rate is the median over segments, without evaluations' share taken out. Run nothing beside it.
"""

import json
import math
import os
import statistics
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags, logging
from flax import linen as nn

import jaxlossy
from jaxlossy import devices as devices_lib
from jaxlossy import program
from jaxlossy.grid import expand, make_groups

_WORK = flags.DEFINE_list("work", ["mlp64"], "Which trainings; the keys of WORK below.")
_CONFIGS = flags.DEFINE_list("configs", ["1", "16", "64"], "Configs in a batch.")
_LIVE = flags.DEFINE_list("live", ["auto"], "Configs that a device advances together.")
_CPU_DEVICES = flags.DEFINE_integer("cpu_devices", os.cpu_count(), "Devices made of the CPU.", 1)
_SECONDS = flags.DEFINE_float("seconds", 5.0, "Least time to measure each row.")
_JSON = flags.DEFINE_string("json", None, "A file for the rows.")


class NativeCNN(nn.Module):
    """The built-in CNN with XLA's own convolutions and pooling, to compare with."""

    features: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        space = x.ndim - 2
        for width in self.features:
            x = nn.Conv(width, (3,) * space)(x)
            x = nn.relu(nn.GroupNorm(num_groups=math.gcd(width, 8))(x))
            x = nn.max_pool(x, (2,) * space, strides=(2,) * space)
        return nn.Dense(10)(x.mean(axis=range(1, 1 + space)))


class Work(NamedTuple):
    """A training: the shape of an example, config fields, and a model in place of the named one."""

    shape: tuple[int, ...]
    fields: dict[str, Any]
    model: Any = None


WORK = {
    "mlp64": Work((8, 8, 1), {"model": "mlp", "features": (64,)}),
    "mlp256": Work((8, 8, 1), {"model": "mlp", "features": (256,)}),
    "cnn1d": Work((40, 1), {"model": "cnn", "features": (16, 32)}),
    "cnn1d_native": Work((40, 1), {}, NativeCNN((16, 32))),
    "cnn2d": Work((28, 28, 1), {"model": "cnn", "features": (8, 16)}),
    "cnn2d_native": Work((28, 28, 1), {}, NativeCNN((8, 16))),
}


def random_data(shape: tuple[int, ...]) -> jaxlossy.Data:
    """2,000 random examples of ten classes: speed does not depend on what they are."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, *shape)), rng.integers(0, 10, 2000)
    return jaxlossy.from_arrays((x[:1900], y[:1900]), (x[1900:], y[1900:]), name="random")


def measure(name: str, num_configs: int) -> dict[str, Any]:
    """One row: trains that many configs of the work for a while."""
    work, data = WORK[name], random_data(WORK[name].shape)
    steps = 20
    fields = {**work.fields, "steps": steps, "eval_every": steps}
    axes = {"drop_probability": (0.1,), "seed": range(num_configs)}
    configs = expand({**fields, "sweep": axes})[0]
    group = make_groups(configs, data=data, data_dir=None, model=work.model)[0]
    config = group.configs[0]
    devices = jax.local_devices()[:num_configs]
    plan = program.plan_group(group, num_configs, devices, devices_lib.memory_budget(devices))
    if plan.num_batches > 1:
        raise ValueError(f"{name}: {num_configs} configs do not fit at once")
    start = time.perf_counter()
    compiled = program.compile_group(group, plan, devices_lib.config_mesh(devices))
    compile_seconds = time.perf_counter() - start
    items = program.place_items(group, np.resize(np.arange(num_configs), plan.batch), compiled.mesh)
    state, _ = compiled.run(True, devices_lib.zeros(compiled.state, compiled.mesh), items)
    times = []
    while sum(times) < _SECONDS.value or len(times) < 3:
        begin = time.perf_counter()
        state, report = compiled.run(False, state, items)
        jax.block_until_ready(report)
        times.append(time.perf_counter() - begin)
    return {
        "work": name,
        "system": "jaxlossy",
        "configs": num_configs,
        "devices": len(devices),
        "live": plan.live,
        "worker_steps_per_second": round(
            num_configs * config.workers * steps / statistics.median(times)
        ),
        "compile_seconds": round(compile_seconds, 2),
        "estimated_bytes": plan.estimated_bytes,
    }


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_num_cpu_devices", _CPU_DEVICES.value)
    rows = []
    for name in _WORK.value:
        for configs in map(int, _CONFIGS.value):
            for live in _LIVE.value:
                if live != "auto":
                    devices_lib.max_live = lambda *_, live=int(live): live
                rows.append(measure(name, configs))
                if len(rows) == 1:
                    print("".join(f"{key:>24}" for key in rows[0]))
                print(
                    "".join(
                        f"{value:>24,}" if isinstance(value, int | float) else f"{value:>24}"
                        for value in rows[-1].values()
                    ),
                    flush=True,
                )
    if _JSON.value:
        with open(_JSON.value, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    app.run(main)
