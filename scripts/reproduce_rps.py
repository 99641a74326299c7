"""Reproduces the findings of the RPS paper on data at hand, and says which hold here.

python scripts/reproduce_rps.py --workdir=runs/rps

Trains the sweeps of configs/rps_digits.py, rps_mnist1d.py and rps_servers.py, each in a directory
of its name in the workdir, and writes report.md, numbers.csv and figures/ beside them. Started
again, it goes on where it was interrupted. --shrink takes seconds, and shows nothing but that the
whole works.
"""

import os
import runpy
import sys
from pathlib import Path

import jax
from absl import app, flags, logging

import jaxlossy
from jaxlossy.files import writable_directory
from jaxlossy.rps import report

_WORKDIR = flags.DEFINE_string("workdir", None, "Where sweeps, figures, numbers and report go.")
_SHRINK = flags.DEFINE_bool("shrink", False, "Train a few steps of small models, to try it out.")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Where prepared data sets are.")
_CPU_DEVICES = flags.DEFINE_integer(
    "cpu_devices", len(os.sched_getaffinity(0)), "Devices to make of the CPU, one a core.", 1
)
_CACHE_DIR = flags.DEFINE_string(
    "compilation_cache_dir",
    os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "jaxlossy")),
    "Where compiled programs are kept from run to run; empty: nowhere.",
)

CONFIGS = Path(__file__).parent.parent / "configs"


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_num_cpu_devices", _CPU_DEVICES.value)  # no effect on GPUs and TPUs
    if _CACHE_DIR.value:
        jax.config.update("jax_compilation_cache_dir", _CACHE_DIR.value)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    form, results = "shrink" if _SHRINK.value else "full", {}
    try:
        workdir = writable_directory("workdir", str(_WORKDIR.value))
        for name in ("rps_servers", "rps_digits", "rps_mnist1d"):
            print(f"{name}:", flush=True)
            config = runpy.run_path(str(CONFIGS / f"{name}.py"))["get_config"](form)
            results[name] = jaxlossy.sweep(config, workdir=workdir / name, data_dir=_DATA_DIR.value)
        study = runpy.run_path(str(CONFIGS / "rps_servers.py"))["get_study"](form)
        losses = [results["rps_digits"], results["rps_mnist1d"]]
        numbers = report.write(losses, results["rps_servers"], study, workdir)
    except (jaxlossy.ConfigError, MemoryError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command goes on in {_WORKDIR.value}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(130)  # a program may still be running, and JAX crashes where Python is torn down
    print("", *numbers.loc[numbers["sentence"].fillna("") != "", "sentence"], sep="\n")
    print(f"\nthe report is {workdir / report.REPORT}, with figures and numbers beside it")


if __name__ == "__main__":
    flags.mark_flags_as_required(["workdir"])
    app.run(main)
