"""How many replicas a device advances together: measured once per device and model, then kept.

More of them make fewer, larger operations of a step; fewer of them leave its numbers in the cache.
Which counts for more depends on the device and on the model, so a sweep long enough to gain from it
starts by trying.
"""

import functools
import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxlossy import devices as devices_lib
from jaxlossy import draws, memory, program
from jaxlossy.devices import Footprint, Live, Plan
from jaxlossy.files import replacing
from jaxlossy.grid import Group

#: What a CPU device starts from: working bytes of several configs, and of a single one's replicas,
#: for a core's own cache. BUILD_NOTES.md has the measurements; accelerators start from all that
#: fits.
CPU_CONFIGS_BYTES, CPU_WORKERS_BYTES = 4 * 2**20, 2**19
#: A sweep of less than this many seconds, at these FLOP/s of a device, is not worth measuring for.
WORTH_SECONDS, CPU_FLOPS, ACCELERATOR_FLOPS = 60.0, 1e10, 5e12
#: How much faster another choice has to be, and how long a choice is measured at least.
GAIN, MEASURE_SECONDS = 1.03, 0.3
#: Where choices are kept, beside the compiled programs.
FILE = "live.json"


def choices(workers: int, configs: int) -> list[Live]:
    """From a single replica to all replicas of that many configs, doubling.

    >>> [tuple(live) for live in choices(4, 5)]
    [(1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (5, 4)]
    """
    divisors = [n for n in range(1, workers) if workers % n == 0]
    powers = [2**n for n in range(configs.bit_length()) if 2**n < configs]
    return [*(Live(1, n) for n in divisors), *(Live(n, workers) for n in [*powers, configs])]


def choose_live(
    group: Group,
    devices: Sequence[Any],
    cost: Footprint,
    budget: int,
    worker_devices: int = 1,
    *,
    measure: bool | None = None,
) -> Live:
    """What a device should advance together of a group.

    Choices are tried upwards and downwards from a first guess, as long as they get faster. The
    best is kept for the process, and in JAX's compilation cache directory if there is one.

    Args:
      group: what to train.
      devices: that share its configs; those of this process are measured.
      cost: of a config.
      budget: bytes on each device.
      worker_devices: how many of them share the workers of a config; where several do, all of
        these are live, and nothing is measured.
      measure: whether to measure what is not known yet; None: where the sweep is long enough.
    """
    workers = group.configs[0].workers
    each = math.ceil(len(group.configs) * worker_devices / len(devices))
    everything = [o for o in choices(workers, each) if worker_devices == 1 or o.workers == workers]
    options = [o for o in everything if cost.total(o, o.configs) <= budget] or everything[:1]
    guess = first_guess(devices[0].platform, cost, options)
    if len(options) == 1 or worker_devices > 1:
        return guess
    key = _key(group, devices[0], options)
    kept = _load()
    if key in kept:
        return Live(*kept[key])
    if measure is None:
        measure = _worth_measuring(group, devices)
    if not measure:
        return guess
    here = [device for device in devices if device.process_index == jax.process_index()]
    best = climb(options, options.index(guess), functools.partial(_seconds, group, here))
    _keep(key, best)
    return best


def first_guess(platform: str, cost: Footprint, options: Sequence[Live]) -> Live:
    """The largest choice up to which working bytes stay within what is known to be good."""
    if platform != "cpu":
        return options[-1]

    def is_good(live):
        if live.configs > 1:
            return cost.working(live) <= CPU_CONFIGS_BYTES
        return live.workers * cost.replica <= CPU_WORKERS_BYTES

    return [options[0], *itertools.takewhile(is_good, options[1:])][-1]


def climb(options: Sequence[Live], start: int, seconds: Callable[[Live], float]) -> Live:
    """The fastest choice on the way up from the start, or else on the way down.

    >>> time = {1: 3.0, 2: 2.0, 4: 1.5, 8: 1.6}
    >>> climb(list(time), 1, time.get)
    4
    """
    best, least = start, seconds(options[start])
    for direction in (1, -1):
        place = start + direction
        while 0 <= place < len(options):
            found = seconds(options[place])
            if not found * GAIN < least:
                break
            best, least = place, found
            place += direction
        if best != start:
            break
    return options[best]


def halve_plan(num_configs: int, num_devices: int, cost: Footprint, plan: Plan) -> Plan | None:
    """The same configs with half of the memory beyond the least; None for the least itself.

    Never with more of them in a batch, though fewer live ones leave room for that.
    """

    def within(budget, live):
        most = min(num_configs, plan.batch)
        smaller = devices_lib.plan_batches(most, num_devices, cost, budget=budget, live=live)
        return smaller._replace(num_batches=math.ceil(num_configs / smaller.batch))

    least = within(0, Live(1, 1)).estimated_bytes
    if plan.estimated_bytes <= least:
        return None
    half = (least + plan.estimated_bytes) // 2
    fitting = [o for o in choices(plan.live.workers, plan.live.configs) if cost.total(o, 1) <= half]
    return within(half, (fitting or [Live(1, 1)])[-1])


def _worth_measuring(group: Group, devices: Sequence[Any]) -> bool:
    config = group.configs[0]
    steps = len(group.configs) * config.workers * config.steps * config.local_steps
    rate = len(devices) * (CPU_FLOPS if devices[0].platform == "cpu" else ACCELERATOR_FLOPS)
    flops = memory.gradient_flops(group.problem, config, group.examples)
    return steps * flops / rate > WORTH_SECONDS


def _seconds(group: Group, devices: Sequence[Any], live: Live) -> float:
    """Time of one step of one config where every device advances that much; inf if it can not."""
    try:
        return _measure(group, devices, live)
    except jax.errors.JaxRuntimeError as error:
        if not devices_lib.is_out_of_memory(error):
            raise
        return math.inf


def _measure(group: Group, devices: Sequence[Any], live: Live) -> float:
    places = [n % len(group.configs) for n in range(len(devices) * live.configs)]
    mesh = devices_lib.config_mesh(devices)
    config = group.configs[0]
    steps = draws.drawn_together(group.problem, config, config.eval_every)
    run = program.compile_steps(group, live, len(places), mesh, steps)
    items = program.place_items(group, places, mesh)
    state = devices_lib.zeros(program.batch_shapes(group, len(places))[0], mesh)
    elapsed, count = 0.0, 0
    while elapsed < MEASURE_SECONDS:
        count = max(1, 2 * count)
        begin = time.perf_counter()
        state = jax.block_until_ready(run(count, state, items))
        elapsed = time.perf_counter() - begin
    return elapsed / (count * steps * len(places))


def _key(group: Group, device: Any, options: Sequence[Live]) -> str:
    """Names what a choice depends on; the same name for another program would only cost speed."""
    config, layout, examples = group.configs[0], group.problem.layout, group.examples
    parts = (
        (jax.__version__, device.device_kind, tuple(options[-1]), config.workers),
        (config.model, config.batch_size, config.optimizer, config.aggregation, config.channel),
        (layout.shapes, str(layout.dtypes), layout.size, config.matmul_precision),
        (examples.train_x.shape[1:], str(examples.train_x.dtype)),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


_measured: dict[str, Live] = {}


def _file() -> Path | None:
    directory = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    return Path(directory) / FILE if directory else None


def _load() -> dict[str, Any]:
    path = _file()
    try:
        return {**json.loads(path.read_text()), **_measured} if path else dict(_measured)
    except (OSError, ValueError):
        return dict(_measured)  # not there yet, or not ours: it is only a cache


def _keep(key: str, live: Live) -> None:
    kept, path = _load(), _file()
    _measured[key] = live
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps({**kept, key: live}, indent=1))
