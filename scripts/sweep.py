"""Trains all configs of a sweep and writes results.nc, summary.csv and figures/ to a workdir.

python scripts/sweep.py --config=configs/digits.py --workdir=runs/digits

Any field of the config can be given as a flag: --config.steps=200, --config.sweep.seed='(0,1,2)'.
"""

import os
import sys
from pathlib import Path

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
        ds = jaxlossy.sweep(_CONFIG.value, workdir=_WORKDIR.value, data_dir=_DATA_DIR.value)
    except (jaxlossy.ConfigError, MemoryError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command goes on in {_WORKDIR.value}", file=sys.stderr)
        # A program may still be running, and JAX crashes where Python is torn down under it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    print(f"\n{jaxlossy.table(ds)}\n\nresults, summary and figures are in {_WORKDIR.value}")


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
