"""Speed of training, as one table: worker-steps per second, compile time, estimated memory.

python scripts/benchmark.py --work=mlp64,cnn1d --configs=1,16,256 --system=jaxlossy,plain_vmap

A rate is the median over segments of 20 steps, each with its evaluation. Its floor is what the
device's largest rates allow: floating-point operations of one gradient at the rate of a large
matrix product, or the fewest bytes (a replica read and written, a batch read) at the rate of a
copy, both measured first. `plain_vmap` is the same training without evaluation, written the
straightforward way, as a baseline. Run nothing beside it.
"""

import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags, logging
from flax import linen as nn

import jaxlossy
from jaxlossy import devices as devices_lib
from jaxlossy import program, train
from jaxlossy.config import stack_configs
from jaxlossy.grid import Group, expand, make_groups

_WORK = flags.DEFINE_list("work", ["mlp64"], "Which trainings; the keys of WORK below.")
_SYSTEM = flags.DEFINE_list("system", ["jaxlossy"], "Of: jaxlossy, plain_vmap.")
_CONFIGS = flags.DEFINE_list("configs", ["1", "16", "64"], "Configs in a batch.")
_LIVE = flags.DEFINE_list("live", ["auto"], "Configs that a device advances together.")
_CPU_DEVICES = flags.DEFINE_integer("cpu_devices", os.cpu_count(), "Devices made of the CPU.", 1)
_SECONDS = flags.DEFINE_float("seconds", 5.0, "Least time to measure each row.")
_JSON = flags.DEFINE_string("json", None, "A file for the rows.")


STEPS = 20
HEADING = (
    f"{'work':14}{'system':12}{'configs':>8}{'live':>6}{'worker-steps/s':>16}{'over floor':>12}"
    f"{'compile s':>11}{'estimated MB':>14}"
)


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


def seconds(function: Callable[[], Any], least: float) -> float:
    """The median time of a call, over at least three."""
    times: list[float] = []
    while sum(times) < least or len(times) < 3:
        begin = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def device_rates() -> tuple[float, float]:
    """FLOP/s of a large float32 matrix product, and bytes/s of a copy (read and written)."""
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
    flops = 2 * x.shape[0] ** 3 / seconds(lambda: product(x), 1.0)
    return flops, 2 * long.nbytes / seconds(copy, 1.0)


def make_group(name: str, num_configs: int) -> Group:
    """The configs of a work, which differ in their seeds."""
    work = WORK[name]
    fields = {**work.fields, "steps": STEPS, "eval_every": STEPS, "drop_probability": 0.1}
    configs = expand({**fields, "sweep": {"seed": range(num_configs)}})[0]
    data = random_data(work.shape)
    return make_groups(configs, data=data, data_dir=None, model=work.model)[0]


def floor_seconds(group: Group, flop_rate: float, copy_rate: float) -> float:
    """The least time of a worker-step."""
    problem, config, examples = group.problem, group.configs[0], group.examples
    x, y = (leaf[: config.batch_size] for leaf in (examples.train_x, examples.train_y))
    params = jax.eval_shape(problem.model.init, jax.random.key(0), x)

    def gradient(params, x, y):
        return jax.grad(lambda p: problem.loss(problem.model.apply(p, x), y).mean())(params)

    cost: Any = jax.jit(gradient).lower(params, x, y).cost_analysis()
    num_bytes = 8 * problem.layout.num_parameters + x.nbytes + y.nbytes
    return max(cost["flops"] / flop_rate, num_bytes / copy_rate)


def run_jaxlossy(group: Group) -> dict[str, Any]:
    """Segments of the real program, one batch on all devices."""
    num_configs = len(group.configs)
    devices = jax.local_devices()[:num_configs]
    plan = program.plan_group(group, num_configs, devices, devices_lib.memory_budget(devices))
    if plan.num_batches > 1:
        raise ValueError(f"{num_configs} configs do not fit at once")
    start = time.perf_counter()
    compiled = program.compile_group(group, plan, devices_lib.config_mesh(devices))
    compile_seconds = time.perf_counter() - start
    places = np.resize(np.arange(num_configs), plan.batch)
    items = program.place_items(group, places, compiled.mesh)
    state, _ = compiled.run(True, devices_lib.zeros(compiled.state, compiled.mesh), items)

    def segment():
        nonlocal state
        state, report = compiled.run(False, state, items)
        return report

    return {
        "seconds": seconds(segment, _SECONDS.value),
        "compile_seconds": compile_seconds,
        "live": plan.live,
        "estimated_bytes": plan.estimated_bytes,
    }


def run_plain_vmap(group: Group) -> dict[str, Any]:
    """The training as one would first write it: vmap over configs, masks gathered per parameter."""
    problem, layout = group.problem, group.problem.layout
    packet_of = jnp.arange(layout.num_packets * layout.size) // layout.size
    examples = jax.tree.map(jnp.asarray, group.examples)

    def step(config, shards, replicas, index):
        batch = train.draw_batch(config, shards, index)
        _, delivered, _ = train.draw_delivered(problem, config, (), index)

        def loss_of(flat, x, y):
            params = jax.tree.map(lambda p: p[0], layout.unpack(flat[None]))
            return problem.loss(problem.model.apply(params, x), y).mean()

        grads = jax.vmap(jax.grad(loss_of))(
            replicas, examples.train_x[batch], examples.train_y[batch]
        )
        replicas = replicas - config.learning_rate * grads
        up, down = delivered.up[:, packet_of], delivered.down[:, packet_of]
        count = up.sum(axis=0)
        average = (replicas * up).sum(axis=0) / jnp.maximum(count, 1)
        return jnp.where(down & (count > 0), average, replicas)

    def start(config):
        return train.init(problem, config, examples).replicas.reshape(config.workers, -1)

    def segment(config, shards, replicas):
        return jax.lax.scan(
            lambda r, i: (step(config, shards, r, i), None), replicas, jnp.arange(STEPS)
        )[0]

    configs, shards = stack_configs(group.configs), jnp.asarray(group.shards)
    replicas = jax.jit(jax.vmap(start))(configs)
    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(segment)).lower(configs, shards, replicas).compile()
    compile_seconds = time.perf_counter() - begin
    return {
        "seconds": seconds(lambda: compiled(configs, shards, replicas), _SECONDS.value),
        "compile_seconds": compile_seconds,
        "live": len(group.configs),
        "estimated_bytes": None,
    }


SYSTEMS = {"jaxlossy": run_jaxlossy, "plain_vmap": run_plain_vmap}


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_num_cpu_devices", _CPU_DEVICES.value)
    flop_rate, copy_rate = device_rates()
    print(f"matrix product {flop_rate / 1e9:.0f} GFLOP/s, copy {copy_rate / 1e9:.1f} GB/s")
    print(HEADING)
    rows = []
    for name, configs, system, live in itertools.product(
        _WORK.value, map(int, _CONFIGS.value), _SYSTEM.value, _LIVE.value
    ):
        if live != "auto":
            devices_lib.max_live = lambda *_, live=int(live): live
        group = make_group(name, configs)
        run = SYSTEMS[system](group)
        rate = configs * group.configs[0].workers * STEPS / run.pop("seconds")
        row = {
            "work": name,
            "system": system,
            "configs": configs,
            "worker_steps_per_second": rate,
            "floor_ratio": 1 / (rate * floor_seconds(group, flop_rate, copy_rate)),
            **run,
        }
        rows.append(row)
        print(
            f"{name:14}{system:12}{configs:8}{run['live']:6}{rate:16,.0f}{row['floor_ratio']:12.1f}"
            f"{run['compile_seconds']:11.1f}{(run['estimated_bytes'] or 0) / 1e6:14,.0f}",
            flush=True,
        )
    if _JSON.value:
        with open(_JSON.value, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    app.run(main)
