"""How fast the network simulation is, compilation apart.

python scripts/netsim_benchmark.py
python scripts/netsim_benchmark.py --reference=DIR --only=b_

One thread, best of --repeats; then as many runs at once as there are cores. With a reference (its
summary.csv has the seconds that Netbench took), all of its runs of scenarios with --only in their
names.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
from absl import app, flags, logging

import jaxlossy
from jaxlossy.netsim import Scenario, reference, scenario, simulation

_SCENARIO = flags.DEFINE_string(
    "scenario",
    str(Path(__file__).parent.parent / "tests" / "data" / "netbench" / "c_a2a_bg30"),
    "A folder with edges.csv and flows.csv.",
)
_RUN = flags.DEFINE_string("run", "lossy5g_fifo_thr30k_budget10", "Transport and discipline.")
_REFERENCE = flags.DEFINE_string("reference", None, "A directory of scenario folders.")
_ONLY = flags.DEFINE_string("only", "", "Of the reference: scenarios with this in their name.")
_REPEATS = flags.DEFINE_integer("repeats", 3, "Runs of which the fastest counts.", 1)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    try:
        jobs, seconds_of = [(Path(_SCENARIO.value), _RUN.value)], {}
        if _REFERENCE.value is not None:
            runs = reference.runs(_REFERENCE.value)
            jobs = [job for job in runs if _ONLY.value in job[0].name]
            seconds_of = _reference_seconds(Path(_REFERENCE.value))
        given = scenario.read(*jobs[0])[0]
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")
    before = time.perf_counter()
    simulation.run(given)
    first = time.perf_counter() - before

    rows = []
    for folder, run in jobs:
        given = scenario.read(folder, run)[0]
        seconds, events = min(_timed(given) for _ in range(_REPEATS.value))
        row = {"scenario": folder.name, "run": run, "events": events, "seconds": seconds}
        row["events_per_us"] = events / seconds / 1e6
        if (folder.name, run) in seconds_of:
            row["times_faster"] = seconds_of[folder.name, run] / seconds
        rows.append(row)
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3g}".format))

    cores = len(os.sched_getaffinity(0))
    alone, together = (_throughput(given, threads) for threads in (1, cores))
    print(
        f"\nfirst run, compiling or reading what was compiled: {first:.1f} s"
        f"\n{cores} threads: {together / alone:.2f} times the throughput of one"
    )


def _timed(given: Scenario) -> tuple[float, int]:
    before = time.perf_counter()
    s = simulation.run(given)
    return time.perf_counter() - before, int(s.clock[0]["events"])


def _throughput(given: Scenario, threads: int) -> float:
    """Runs a second; twice as many as there are threads, at least a second's worth."""
    count = threads * max(2, round(1 / _timed(given)[0]))
    with ThreadPoolExecutor(threads) as pool:
        before = time.perf_counter()
        list(pool.map(_timed, [given] * count))
        return count / (time.perf_counter() - before)


def _reference_seconds(directory: Path) -> dict[tuple[str, str], float]:
    files = sorted(directory.glob("summary*.csv"))
    table = pd.concat([pd.read_csv(file) for file in files]) if files else pd.DataFrame()
    if not {"scenario", "run", "wall_s"} <= set(table.columns):
        return {}
    return table.groupby(["scenario", "run"])["wall_s"].first().to_dict()


if __name__ == "__main__":
    app.run(main)
