"""Exact mixing coefficients of RPS beside those measured with the simulator's own code.

python scripts/theory.py --workers=2,4,16 --drop_probability=0.01,0.1,0.5 --workdir=runs/theory

Prints a table; the workdir gets it as theory.csv, and figures/, for which small training runs are
compared with the theory's predictions.
"""

import sys
from typing import Any

import numpy as np
from absl import app, flags, logging

import jaxlossy
from jaxlossy import theory
from jaxlossy.files import named_file, replacing, writable_directory
from jaxlossy.rps import measure

_WORKERS = flags.DEFINE_list("workers", ["2", "3", "4", "8", "16", "32"], "Numbers of workers.")
_SERVERS = flags.DEFINE_list("servers", ["1"], "Numbers of servers.")
_DROP_PROBABILITY = flags.DEFINE_list(
    "drop_probability",
    ["0", "0.01", "0.05", "0.1", "0.2", "0.3", "0.5", "0.9"],
    "Drop probabilities of a message, both ways.",
)
_PLACEMENT = flags.DEFINE_list("placement", ["random", "separate"], "Where servers are.")
_TRIALS = flags.DEFINE_integer("trials", 4000, "Simulated exchanges for each row.")
_CSV = flags.DEFINE_string("csv", None, "Also write the table to this file.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where theory.csv and figures/ go.")
_FIGURES = flags.DEFINE_bool("figures", True, "Draw figures if there is a workdir.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    workdir, files = None, []
    try:
        workers, servers = _numbers(_WORKERS, int), _numbers(_SERVERS, int)
        p = _numbers(_DROP_PROBABILITY, float)
        if _CSV.value is not None:
            files.append(named_file("csv", _CSV.value))
        if _WORKDIR.value is not None:
            workdir = writable_directory("workdir", _WORKDIR.value)
            files.append(workdir / "theory.csv")
        table = measure.coefficient_table(
            _PLACEMENT.value, workers, servers, p, trials=_TRIALS.value
        )
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")
    print(_text(table))
    for file in files:
        with replacing(file) as path:
            table.to_csv(path, index=False)
    if workdir is not None and _FIGURES.value:
        from jaxlossy.rps import theory_figures  # brings matplotlib, which a table need not

        theory_figures.save_all(table, workdir / "figures")
        print(f"\nthe table and figures are in {_WORKDIR.value}")


def _numbers(flag: Any, kind: type) -> list[Any]:
    try:
        return [kind(text) for text in flag.value]
    except ValueError:
        what = "integers" if kind is int else "numbers"
        raise jaxlossy.ConfigError(flag.name, ",".join(flag.value), what) from None


def _text(table: Any) -> str:
    """Exact and measured values, and how far apart they are."""
    names = theory.Coefficients._fields
    rounding = 1e-6  # of float32 sums, where every trial gives the same
    off = np.abs(np.stack([table[f"measured_{name}"] - table[name] for name in names]))
    error = np.stack([table[f"measured_{name}_se"] for name in names])
    deviation = np.where(off < rounding, 0, off / np.maximum(error, rounding / 100)).max(axis=0)
    columns = ["placement", "num_workers", "num_servers", "drop_probability"]
    columns += [column for name in names for column in (name, f"measured_{name}")]
    shown = table[columns].assign(deviation=deviation).round(6)
    shown.columns = [c.replace("num_", "").replace("measured_", "~") for c in shown.columns]
    return (
        f"{shown.to_string(index=False, float_format='{:.4g}'.format)}\n\n"
        f"~ is measured, over {_TRIALS.value} exchanges; deviation is the largest of a row, in "
        f"standard errors; of all rows {deviation.max():.2f}"
    )


if __name__ == "__main__":
    app.run(main)
