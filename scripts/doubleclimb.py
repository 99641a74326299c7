"""Chooses the logical topology of learning tasks at least cost, and compares ways to do so.

python scripts/doubleclimb.py --config=configs/doubleclimb.py --workdir=runs/doubleclimb
python scripts/doubleclimb.py --instances=FILE.json --csv=FILE.csv --algorithms=refined,optimum

The first solves generated networks, then closes the loop: plans chosen by error models that were
fitted to training are trained, and compared with what was predicted. The workdir gets tables, the
networks and figures/. The second solves every instance of a file.
"""

import os
import sys
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging
from ml_collections import config_flags

import jaxlossy
from jaxlossy import topology
from jaxlossy.files import replacing, writable_directory
from jaxlossy.topology.solve import ALGORITHMS, COLUMNS

_CONFIG = config_flags.DEFINE_config_file("config", None, "The study: configs/doubleclimb.py.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where tables, networks and figures/ go.")
_INSTANCES = flags.DEFINE_string("instances", None, "A JSON file of instances to solve.")
_CSV = flags.DEFINE_string("csv", None, "Where the table of the instances goes.")
_ALGORITHMS = flags.DEFINE_list(
    "algorithms", ["refined", "plain"], f"For instances: of {', '.join(ALGORITHMS)}."
)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    try:
        if (_CONFIG.value is None) == (_INSTANCES.value is None):
            raise jaxlossy.ConfigError("config", _CONFIG.value, "given, or else --instances")
        if _INSTANCES.value is not None:
            _solve_instances(_INSTANCES.value)
        else:
            _run_study()
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")


def _solve_instances(path: str) -> None:
    if _CSV.value is None:
        raise jaxlossy.ConfigError("csv", None, "the name of a file")
    file = Path(_CSV.value)
    if not file.name or file.is_dir():
        raise jaxlossy.ConfigError("csv", _CSV.value, "the name of a file")
    instances = topology.load(path)
    file = writable_directory("csv", file.parent) / file.name
    table = topology.table(instances, _ALGORITHMS.value)
    with replacing(file) as temporary:
        table[COLUMNS].to_csv(temporary, index=False)
    print(_text(table))
    print(f"\nthe table is in {_CSV.value}")


def _run_study() -> None:
    from jaxlossy.topology.loop_report import close_loops
    from jaxlossy.topology.study import study

    if _WORKDIR.value is None:
        raise jaxlossy.ConfigError("workdir", None, "a directory")
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))  # of CPUs only
    config = _CONFIG.value.to_dict()
    sentences = close_loops(config.pop("loop", {}), _WORKDIR.value)
    result = study(config, _WORKDIR.value)
    grouped = result.ratios.groupby("algorithm", sort=False)
    print("cost over the optimal cost, and seconds to solve:\n")
    print(
        grouped.agg(
            plans=("ratio", "count"),
            mean=("ratio", "mean"),
            largest=("ratio", "max"),
            seconds=("seconds", "median"),
        ).to_string(float_format="{:.4g}".format)
    )
    print("\nplans chosen with fitted error models, trained:\n", flush=True)
    for sentence in sentences:
        print(f"{sentence}\n", flush=True)
    print(f"tables, networks and figures are in {_WORKDIR.value}")


def _text(table: Any) -> str:
    """The table, reasons where there is no plan, and ratios where the optimum is known."""
    shown = table[COLUMNS].to_string(index=False, float_format="{:.6g}".format, na_rep="")
    lines = [shown]
    for row in table[table["cost"].isna()].itertuples():
        lines.append(f"{row.name}, {row.algorithm}: no plan; {row.reason}")
    known = table[table["algorithm"].isin(["optimum", "milp"]) & table["cost"].notna()]
    if len(known):
        ratio = table["cost"] / table["name"].map(known.groupby("name")["cost"].min())
        grouped = ratio.groupby(table["algorithm"], sort=False)
        summary = grouped.agg(["count", "mean", "max"])
        lines.append("\ncost over the optimal cost:\n")
        lines.append(summary.to_string(float_format="{:.6f}".format))
    return "\n".join(lines)


def _parse(argv: list[str]) -> list[str]:
    try:
        return app.parse_flags_with_usage(argv)
    except AttributeError as error:  # how config flags say that there is no such field
        text = str(error).replace("\\n", " ").replace("\\", "").replace("'", "")
        sys.exit(f"error: no such field of the config: {' '.join(text.split())}")


if __name__ == "__main__":
    app.run(main, flags_parser=_parse)
