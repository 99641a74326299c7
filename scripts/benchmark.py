"""Speed of training, as one table: ours and its rivals, against what the device could do.

python scripts/benchmark.py --suite=quick
python scripts/benchmark.py --work=mlp64 --system=jaxlossy,plain_vmap,torch_vmap --configs=16,256

A rate is the median over rounds, in each of which every system of a case takes its turn; so is the
ratio to the first of the case. Evaluation is left out, as the rivals have none. The floor of a step
is the larger of its floating-point operations at the rate of a large matrix product and the fewest
bytes (a replica read and written, a batch read) at the rate of a copy, both measured first.
The rivals are in ``rivals.py`` and, where PyTorch is installed, ``torch_rivals.py``. Run nothing
beside it.
"""

import importlib.util
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import rivals
from absl import app, flags, logging
from flax import linen as nn

import jaxlossy
from jaxlossy import devices as devices_lib
from jaxlossy import memory, program, tuning
from jaxlossy.aggregation import average_arrived
from jaxlossy.channel import Delivered
from jaxlossy.errors import check_name
from jaxlossy.grid import Group, expand, make_groups

_SUITE = flags.DEFINE_enum("suite", None, ["quick", "full", "gpu"], "Cases listed in this file.")
_WORK = flags.DEFINE_list("work", ["mlp64"], "Without a suite: of WORK below.")
_SYSTEM = flags.DEFINE_list("system", ["jaxlossy"], "Without a suite: of SYSTEMS below.")
_CONFIGS = flags.DEFINE_list("configs", ["1", "16", "256"], "Without a suite: in a batch.")
_LIVE = flags.DEFINE_list("live", None, "Configs and workers to advance together; as measured.")
_CPU_DEVICES = flags.DEFINE_integer("cpu_devices", os.cpu_count(), "Devices made of the CPU.", 1)
_SECONDS = flags.DEFINE_float("seconds", 3.0, "Least time to measure each case.")
_JSON = flags.DEFINE_string("json", None, "A file for the rows.")

WORKERS, BATCH_SIZE, DROP_PROBABILITY, CLASSES = 16, 32, 0.1, 10
HEADING = (
    f"{'work':14}{'system':18}{'configs':>8}{'live':>8}{'worker-steps/s':>16}{'over floor':>12}"
    f"{'ratio':>8}{'compile s':>11}{'peak MB':>10}{'estimate':>10}"
)


class NativeMLP(nn.Module):
    """The built-in MLP with flax's own dense layers, which are XLA's products."""

    features: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        x = x.reshape(len(x), -1)
        for width in self.features:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(CLASSES)(x)


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
        return nn.Dense(CLASSES)(x.mean(axis=range(1, 1 + space)))


class NativeResNet20(nn.Module):
    """The built-in ResNet-20 with XLA's own convolutions, to compare with."""

    @nn.compact
    def __call__(self, x):
        def conv(x, features, stride=1):
            x = nn.Conv(features, (3, 3), stride, padding=1, use_bias=False)(x)
            return nn.GroupNorm(num_groups=8)(x)

        x = nn.relu(conv(x, 16))
        for features in (16, 32, 64):
            for _ in range(3):
                stride = features // x.shape[-1]
                y = conv(nn.relu(conv(x, features, stride)), features)
                more = (features - x.shape[-1]) // 2
                x = x[:, ::stride, ::stride]
                x = nn.relu(y + jnp.pad(x, [(0, 0)] * 3 + [(more, more)]))
        return nn.Dense(CLASSES)(x.mean(axis=(1, 2)))


class Work(NamedTuple):
    """A training.

    Attributes:
      shape: of an example.
      model, features: the built-in model.
      native: a flax module of the same function with XLA's own products and convolutions.
      steps: in a turn.
    """

    shape: tuple[int, ...]
    model: str
    features: tuple[int, ...]
    native: nn.Module
    steps: int = 20


WORK = {
    "mlp64": Work((8, 8, 1), "mlp", (64,), NativeMLP((64,))),
    "mlp256": Work((8, 8, 1), "mlp", (256,), NativeMLP((256,))),
    "cnn1d": Work((40, 1), "cnn", (16, 32), NativeCNN((16, 32)), 4),
    "cnn": Work((28, 28, 1), "cnn", (8, 16), NativeCNN((8, 16)), 2),
    "resnet20": Work((32, 32, 3), "resnet20", (), NativeResNet20(), 1),
}
#: Parameters of the replicas in the averaging step alone.
AVERAGING = {"average_270k": 270_000, "average_1.7M": 1_700_000}


class Timed(NamedTuple):
    """A system at work: ``advance(steps)`` trains on and waits; what else is known of it."""

    advance: Callable[[int], Any]
    compile_seconds: float | None = None
    live: devices_lib.Live | None = None
    peak_bytes: int | None = None
    estimated_bytes: int | None = None


def make_group(work: Work, num_configs: int, *, native: bool = False) -> Group:
    """The configs of a work, which differ in their seeds, on random data of its shape."""
    rng = np.random.default_rng(0)  # speed does not depend on what the examples are
    x, y = rng.normal(size=(2000, *work.shape)), rng.integers(0, CLASSES, 2000)
    data = jaxlossy.from_arrays((x[:1900], y[:1900]), (x[1900:], y[1900:]), name="random")
    fields = {
        "model": work.model,
        "features": work.features or (1,),
        "workers": WORKERS,
        "batch_size": BATCH_SIZE,
        "drop_probability": DROP_PROBABILITY,
        "steps": work.steps,
        "eval_every": work.steps,
        "sweep": {"seed": range(num_configs)},
    }
    model = work.native if native else None
    return make_groups(expand(fields)[0], data=data, data_dir=None, model=model)[0]


def run_jaxlossy(work: Work, num_configs: int, *, native: bool = False) -> Timed:
    """What a sweep runs, one batch on all devices."""
    group = make_group(work, num_configs, native=native)
    devices = jax.local_devices()[:num_configs]
    budget = devices_lib.memory_budget(devices)
    cost = memory.footprint(group.problem, group.configs[0], group.examples, group.shards[0])
    if _LIVE.value:
        live = devices_lib.Live(*map(int, _LIVE.value))
    else:
        measure = _SUITE.value in (None, "full")  # the others have little time
        live = tuning.choose_live(group, devices, cost, budget, measure=measure)
    plan = devices_lib.plan_batches(num_configs, len(devices), cost, budget=budget, live=live)
    if plan.num_batches > 1:
        raise ValueError(f"{num_configs} configs do not fit at once")
    mesh = devices_lib.config_mesh(devices)
    run = program.compile_steps(group, plan.live, plan.batch, mesh, work.steps)
    items = program.place_items(group, np.resize(np.arange(num_configs), plan.batch), mesh)
    # Zeros will do: speed does not depend on the values.
    state = devices_lib.zeros(program.batch_shapes(group, plan.batch)[0], mesh)

    def advance(steps):
        nonlocal state
        state = jax.block_until_ready(run(steps // work.steps, state, items))

    if _SUITE.value == "quick":  # no time for the sweep's own program, with its evaluation
        return Timed(advance, None, plan.live, None, plan.estimated_bytes)
    begin = time.perf_counter()
    compiled = program.compile_group(group, plan, mesh)
    seconds = time.perf_counter() - begin
    return Timed(advance, seconds, plan.live, compiled.peak_bytes, plan.estimated_bytes)


def run_torch(name: str) -> Callable[..., Timed]:
    """A rival of ``torch_rivals``, imported when it is asked for."""

    def run(work, num_configs):
        import torch_rivals

        layout = make_group(work, 1).problem.layout
        advance = getattr(torch_rivals, name)(
            work.shape,
            work.model,
            work.features,
            num_configs,
            workers=WORKERS,
            batch_size=BATCH_SIZE,
            packet_size=layout.size,
            learning_rate=0.1,
            drop_probability=DROP_PROBABILITY,
        )
        return Timed(advance)

    return run


#: Name to a function of a work and the number of configs.
SYSTEMS: dict[str, Callable[..., Timed]] = {
    "jaxlossy": run_jaxlossy,
    "jaxlossy_native": lambda work, configs: run_jaxlossy(work, configs, native=True),
    "plain_vmap": lambda work, configs: Timed(
        *rivals.plain_vmap(make_group(work, configs, native=True), work.steps)
    ),
    "one_at_a_time": lambda work, configs: Timed(
        *rivals.one_at_a_time(make_group(work, configs), work.steps)
    ),
    "native_one_by_one": lambda work, configs: Timed(
        *rivals.replica_at_a_time(make_group(work, configs, native=True))
    ),
    "torch_loop": run_torch("torch_loop"),
    "torch_vmap": run_torch("torch_vmap"),
}

#: Work, then systems with the number of configs of each; ratios are to the first of a case.
Case = tuple[str, Sequence[tuple[str, int]]]
SUITES: dict[str, list[Case]] = {
    "quick": [
        (
            "mlp64",
            [
                ("jaxlossy", 256),
                ("jaxlossy", 1024),
                ("plain_vmap", 64),
                ("torch_vmap", 64),
                ("torch_loop", 1),
            ],
        ),
        ("mlp256", [("jaxlossy", 64)]),
        ("cnn", [("jaxlossy", 4), ("one_at_a_time", 1), ("torch_loop", 1)]),
        ("resnet20", [("jaxlossy", 2), ("torch_loop", 1)]),
        ("average_270k", [("jaxlossy", 2)]),
        ("average_1.7M", [("jaxlossy", 2)]),
    ],
    "full": [
        *(
            (
                work,
                [
                    ("jaxlossy", 256),
                    *(("jaxlossy", configs) for configs in (1, 16, 64, 1024)),
                    *(("plain_vmap", configs) for configs in (16, 256)),
                    *(("torch_vmap", configs) for configs in (8, 16, 32)),
                    ("torch_loop", 1),
                    ("one_at_a_time", 16),
                ],
            )
            for work in ("mlp64", "mlp256")
        ),
        *(
            (
                work,
                [
                    ("jaxlossy", 16),
                    *(("jaxlossy", configs) for configs in (1, 4)),
                    ("one_at_a_time", 1),
                    ("native_one_by_one", 1),
                    ("torch_loop", 1),
                    ("torch_vmap", 1),
                ],
            )
            for work in ("cnn", "resnet20")
        ),
        ("average_270k", [("jaxlossy", 2)]),
        ("average_1.7M", [("jaxlossy", 2)]),
    ],
    "gpu": [
        (
            "mlp64",
            [("jaxlossy", 256), ("jaxlossy", 16), ("jaxlossy", 1024), ("plain_vmap", 256)],
        ),
        ("mlp256", [("jaxlossy", 256), ("jaxlossy", 1024), ("plain_vmap", 256)]),
        ("resnet20", [("jaxlossy", 256), ("jaxlossy_native", 256), ("jaxlossy", 16)]),
        ("cnn", [("jaxlossy", 256), ("jaxlossy_native", 256)]),
        ("average_270k", [("jaxlossy", 64)]),
        ("average_1.7M", [("jaxlossy", 16)]),
    ],
}


def device_rates() -> tuple[float, float]:
    """FLOP/s of a large float32 matrix product, and bytes/s of a copy (read and written)."""

    def seconds(function):
        times = []
        while sum(times) < 1.0 or len(times) < 3:
            begin = time.perf_counter()
            jax.block_until_ready(function())
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    x = jnp.ones((3000, 3000))
    product = jax.jit(lambda x: jnp.dot(x, x, precision="highest"))
    jax.block_until_ready(product(x))
    # On all devices, and in place: new memory would cost more than the copy.
    mesh = devices_lib.config_mesh(jax.local_devices())
    long = devices_lib.place(jnp.ones((mesh.size, 2**25)), mesh, split=True)
    add = jax.jit(lambda x: x + 1, donate_argnums=0)

    def copy():
        nonlocal long
        long = add(long)
        return long

    jax.block_until_ready(copy())
    return 2 * x.shape[0] ** 3 / seconds(lambda: product(x)), 2 * long.nbytes / seconds(copy)


def floor_seconds(work: Work, flop_rate: float, copy_rate: float) -> float:
    """The least time of a worker-step."""
    group = make_group(work, 1, native=True)  # without products with padding
    problem, config, examples = group.problem, group.configs[0], group.examples
    flops = memory.gradient_flops(problem, config, examples)
    batch = config.batch_size * (examples.train_x[0].nbytes + examples.train_y[0].nbytes)
    num_bytes = 8 * problem.layout.num_parameters + batch
    return max(flops / flop_rate, num_bytes / copy_rate)


def run_averaging(parameters: int, num_configs: int) -> Timed:
    """The averaging step alone, on replicas of that many parameters."""
    size = 365
    shape = (num_configs, WORKERS, math.ceil(parameters / size))
    mesh = devices_lib.config_mesh(jax.local_devices()[:num_configs])
    rng = np.random.default_rng(0)
    masks = Delivered(*(rng.random((2, *shape)) >= DROP_PROBABILITY))
    masks = devices_lib.place(masks, mesh, split=True)
    rows = jax.ShapeDtypeStruct((num_configs, WORKERS, shape[-1] * size), jnp.float32)
    state = devices_lib.zeros(rows, mesh)

    def steps(count, rows, masks):
        def step(index, rows):  # other masks in every step; on rows, as in training
            delivered = Delivered(*(jnp.roll(m, index, 1) for m in masks))
            packets = rows.reshape(*masks[0].shape, size)
            return average_arrived(packets, delivered).reshape(rows.shape)

        return jax.lax.fori_loop(0, count, step, rows), ()

    run = devices_lib.compile_over_configs(steps, 0, state, masks, mesh=mesh, live=1)

    def advance(count):
        nonlocal state
        state = jax.block_until_ready(run(count, state, masks)[0])

    return Timed(advance, live=devices_lib.Live(1, WORKERS))


def run_case(name: str, systems: Sequence[tuple[str, int]], rates: tuple[float, float]):
    """Rows of a case: its systems in turns, for as long as asked."""
    if name in AVERAGING:
        steps, floor = 10, 8 * AVERAGING[name] / rates[1]
        timed = [run_averaging(AVERAGING[name], configs) for _, configs in systems]
    else:
        work = WORK[name]
        steps, floor = work.steps, floor_seconds(work, *rates)
        timed = [SYSTEMS[system](work, configs) for system, configs in systems]
    for one in timed:
        one.advance(steps)
    rounds = []
    while len(rounds) < 3 or sum(map(sum, rounds)) < _SECONDS.value:
        turn = []
        for one in timed:
            begin = time.perf_counter()
            one.advance(steps)
            turn.append(time.perf_counter() - begin)
        rounds.append(turn)
    counts = [configs * WORKERS * steps for _, configs in systems]
    speeds = np.asarray(counts) / np.asarray(rounds)  # (round, system)
    for place, ((system, configs), one) in enumerate(zip(systems, timed, strict=True)):
        rate = float(np.median(speeds[:, place]))
        yield {
            "work": name,
            "system": system,
            "configs": configs,
            "live": one.live,
            "worker_steps_per_second": rate,
            "floor_ratio": 1 / (rate * floor),
            "ratio_to_first": float(np.median(speeds[:, place] / speeds[:, 0])),
            "compile_seconds": one.compile_seconds,
            "peak_bytes": one.peak_bytes,
            "estimated_bytes": one.estimated_bytes,
        }


def as_line(row: dict[str, Any]) -> str:
    """A row of the table; empty where a system does not say."""

    def number(value, form, scale=1.0):
        return "" if value is None else format(value / scale, form)

    live = "x".join(map(str, row["live"])) if row["live"] else ""
    return (
        f"{row['work']:14}{row['system']:18}{row['configs']:8}{live:>8}"
        f"{row['worker_steps_per_second']:16,.0f}{row['floor_ratio']:12.1f}"
        f"{row['ratio_to_first']:8.3f}{number(row['compile_seconds'], '.1f'):>11}"
        f"{number(row['peak_bytes'], ',.0f', 1e6):>10}"
        f"{number(row['estimated_bytes'], ',.0f', 1e6):>10}"
    )


def cases() -> Sequence[Case]:
    """What the flags ask for; without PyTorch, a suite goes without its systems."""
    if not _SUITE.value:
        systems = [(system, int(n)) for n in _CONFIGS.value for system in _SYSTEM.value]
        return [(name, systems) for name in _WORK.value]
    found = SUITES[_SUITE.value]
    if importlib.util.find_spec("torch") is None and _SUITE.value != "gpu":
        print("PyTorch is not installed: its systems are left out")
        return [(w, [s for s in systems if not s[0].startswith("torch")]) for w, systems in found]
    return found


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_num_cpu_devices", _CPU_DEVICES.value)
    try:
        for name in _WORK.value:
            check_name("work", name, [*WORK, *AVERAGING])
        for name in _SYSTEM.value:
            check_name("system", name, SYSTEMS)
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")
    rates = device_rates()
    device = jax.local_devices()[0]
    print(
        f"{len(jax.local_devices())} x {device.device_kind}, Python {platform.python_version()}, "
        f"JAX {jax.__version__}, {time.strftime('%Y-%m-%d')}\n"
        f"matrix product {rates[0] / 1e9:.0f} GFLOP/s, copy {rates[1] / 1e9:.1f} GB/s\n{HEADING}"
    )
    rows = []
    for name, systems in cases():
        for row in run_case(name, systems, rates):
            rows.append(row)
            print(as_line(row), flush=True)
    if _JSON.value:
        with open(_JSON.value, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    app.run(main)
