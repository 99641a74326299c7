"""Trains all configs of a sweep and writes results.nc, summary.csv and figures/ to a workdir.

python scripts/sweep.py --config=configs/digits.py --workdir=runs/digits

Any field of the config can be given as a flag: --config.steps=200, --config.sweep.seed='(0,1,2)'.

On several hosts the same command runs once on each, with --coordinator_address, --num_processes and
--process_id, or with --distributed where the cluster says what those are.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import jax
from absl import app, flags, logging
from ml_collections import config_flags

import jaxlossy

_CONFIG = config_flags.DEFINE_config_file("config", None, "The sweep, such as configs/digits.py.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where results go; the same sweep goes on there.")
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Where prepared data sets are; default: where tensorflow-datasets keeps them.",
)
_CPU_DEVICES = flags.DEFINE_integer(
    "cpu_devices", len(os.sched_getaffinity(0)), "Devices to make of the CPU, one a core.", 1
)
_WORKER_DEVICES = flags.DEFINE_integer(
    "worker_devices", 1, "Devices that share the workers of a config.", 1
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator_address", None, "Joins several processes: host:port of the first, seen by all."
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes join.", 1)
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this one is.", 0)
_DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Joins the processes of a Slurm or Open MPI job, TPU pod or Kubernetes."
)
_CACHE_DIR = flags.DEFINE_string(
    "compilation_cache_dir",
    os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "jaxlossy")),
    "Where compiled programs are kept from run to run; empty: nowhere.",
)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)  # the progress bar and the table are what people read
    jax.config.update("jax_num_cpu_devices", _CPU_DEVICES.value)  # no effect on GPUs and TPUs
    if _CACHE_DIR.value:
        jax.config.update("jax_compilation_cache_dir", _CACHE_DIR.value)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    try:
        _join()
        ds = jaxlossy.sweep(
            _CONFIG.value,
            workdir=_WORKDIR.value,
            data_dir=_DATA_DIR.value,
            worker_devices=_WORKER_DEVICES.value,
        )
    except (jaxlossy.ConfigError, MemoryError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command goes on in {_WORKDIR.value}", file=sys.stderr)
        _leave(130)
    except Exception:
        if jax.process_count() == 1:
            raise
        traceback.print_exc()
        _leave(1)
    else:
        if jax.process_index() == 0:
            print(f"\n{jaxlossy.table(ds)}\n\nresults, summary and figures are in {_WORKDIR.value}")


def _join() -> None:
    """Joins the processes, where flags say that there are several."""
    given = (_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
    if not _DISTRIBUTED.value and given == (None, None, None):
        return
    try:
        jax.distributed.initialize(*given)
    except (ValueError, RuntimeError) as error:  # nothing detected, or nobody there
        sys.exit(f"error: processes could not be joined: {str(error).splitlines()[0]}")


def _leave(status: int) -> NoReturn:
    """Ends the process at once.

    A program may still be running, and JAX crashes where Python is torn down under it; and other
    processes wait for this one until it is gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _parse(argv: list[str]) -> list[str]:
    try:
        return app.parse_flags_with_usage(argv)
    except AttributeError as error:  # how config flags say that there is no such field
        # Its text is the quoted text of another error, quotes and line break escaped.
        text = str(error).replace("\\n", " ").replace("\\", "").replace("'", "")
        message = " ".join(text.split())
        sys.exit(f"error: no such field of the config: {message}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=_parse)
