"""Closes the loop for both tasks: plans chosen by fitted error models are trained and compared.

python scripts/doubleclimb_loop.py --workdir=runs/loop

Prints what was found; the workdir gets, for each task, <task>.json (fit and summary),
<task>_plans.csv, <task>_grid.csv and figures/<task>.png. A few minutes on two CPU cores, both tasks
together.
"""

import os
import sys

import jax
from absl import app, flags, logging

import jaxlossy
from jaxlossy.errors import check_name
from jaxlossy.files import writable_directory
from jaxlossy.topology import loop, loop_report, tasks

_TASK = flags.DEFINE_list("task", ["digits", "diabetes"], "What is learnt.")
_DROP_PROBABILITY = flags.DEFINE_float("drop_probability", 0.0, "Of a packet on every link.")
_QUICK = flags.DEFINE_bool("quick", False, "A small part of it, to try it out.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the problems and of training.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where results go.", required=True)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))  # of CPUs only
    try:
        workdir = writable_directory("workdir", _WORKDIR.value)
        for name in _TASK.value:
            check_name("task", name, loop.SCALES)
        for name in _TASK.value:
            scale = loop.SCALES[name].quick() if _QUICK.value else loop.SCALES[name]
            task = getattr(tasks, name)(drop_probability=_DROP_PROBABILITY.value)
            found = loop.close_loop(task, scale, seed=_SEED.value)
            loop_report.save(found, workdir)
            print(f"{loop_report.sentence(found)}\n")
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")
    print(f"results are in {_WORKDIR.value}")


if __name__ == "__main__":
    app.run(main)
