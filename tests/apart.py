"""What the processes of test_distributed.py do, and leave in a file for it to look at.

python tests/apart.py faked OUT CACHE
python tests/apart.py joined OUT CACHE PROCESS PORT
"""

import pickle
import sys
from pathlib import Path

import jax
from problems import SMALL, small_data

import jaxlossy
from jaxlossy import checkpoint, results, train

#: Twelve configs, with an optimizer that remembers, so that the state has every kind of array.
SWEEP = {
    **SMALL,
    "optimizer": "momentum",
    "sweep": {"drop_probability": (0.0, 0.3), "servers": (1, 3), "seed": (0, 1, 2)},
}


def run(config=SWEEP, **options):
    return jaxlossy.sweep(config, data=small_data(), **options)


def outcome(*args, **options):
    """The results of a sweep, or the line it ends with."""
    try:
        return run(*args, **options)
    except (jaxlossy.ConfigError, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"


def faked():
    """Eight devices in one process."""
    return {
        "apart": run(verbose=False),  # four of sixteen places are filled up
        "four": run(worker_devices=4, verbose=False),
    }


def joined(out, process):
    """Two processes of two devices; nothing on disk is common to them."""
    few = {**SWEEP, "sweep": {"seed": (0, 1)}}  # fewer configs than devices
    tight = {"memory_budget": 1}  # batches of four configs, one on each device
    seen = {"few": run(few, **tight), "workers": run(worker_devices=4)}
    wrong = {"a field": {**SWEEP, "workers": 0}, "another": {**SWEEP, "steps": 2}}
    for name, config in wrong.items():
        seen[name] = outcome(config if process == 1 else SWEEP)
    (out / "file").write_text("")
    seen["a workdir"] = outcome(workdir=out / ("file" if process == 0 else "unused"))
    seen["its own devices"] = outcome(devices=jax.local_devices())

    options = {"workdir": out / f"workdir{process}", **tight}
    checkpoint.INTERVAL, fill, calls = 0.0, results.fill, []

    def interrupt(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        fill(*args)

    results.fill = interrupt
    seen["interrupted"] = outcome(**options)
    results.fill = fill
    metrics, segments = train.metrics, []
    train.metrics = lambda *args: (segments.append(1), metrics(*args))[1]
    seen["resumed"] = outcome(**options)
    seen["segments"] = len(segments)
    return seen


def main(what, out, cache, process="0", port=""):
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_num_cpu_devices", 8 if what == "faked" else 2)
    out = Path(out)
    if what == "joined":
        # Machines that run tests may be busy with other things for long.
        jax.distributed.initialize(
            f"localhost:{port}", 2, int(process), heartbeat_timeout_seconds=1000
        )
    seen = faked() if what == "faked" else joined(out, int(process))
    (out / f"{what}{process}.pkl").write_bytes(pickle.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
