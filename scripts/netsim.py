"""Simulates a network packet by packet.

python scripts/netsim.py --scenario=DIR --transport=lossy5g --discipline=fifo_thr30k --csv=fct.csv

DIR has edges.csv and flows.csv in the format of Netbench's reference runs. --transport takes one of
simple_dctcp, simple_tcp, dctcp, paced_dctcp, lossy5g, paced, burst, bounded10, bounded10_controlled
and web_alone; --discipline one of fifo150k, fifo_thr30k, fifo_thr30k_budget10 and prio_low30k, with
other numbers too. --run takes both in one, as the reference names its runs (reliable_dctcp,
lossy5g_fifo_thr30k_budget10). The names other than the first three are about the flows of class
`train`; all others are then sent as simple_dctcp.

python scripts/netsim.py --check --reference=DIR

compares with all of the reference's runs, to the nanosecond.

python scripts/netsim.py --config=configs/colocated_web.py --workdir=runs/colocated_web

runs a case study, web load times priority times transport times seeds, and trains on what learning
lost; the workdir gets runs.nc, report.md, numbers.csv, figures/, trace_0.nc and so on. Started
again, it goes on where it was interrupted. Any field of the config is a flag: --config.seeds=20.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import xarray as xr
from absl import app, flags, logging
from ml_collections import config_flags
from tqdm import tqdm

import jaxlossy
from jaxlossy.files import named_file, replacing
from jaxlossy.netsim import case_study, playback, reference, report, scenario, simulate, study_runs

_SCENARIO = flags.DEFINE_string("scenario", None, "A folder with edges.csv and flows.csv.")
_TRANSPORT = flags.DEFINE_string("transport", "simple_dctcp", "How flows are sent.")
_DISCIPLINE = flags.DEFINE_string("discipline", None, "The rules of the ports; default: fifo150k.")
_RUN = flags.DEFINE_string("run", None, "Transport and discipline by the reference's name.")
_CSV = flags.DEFINE_string("csv", None, "Where completion times go, flow by flow.")
_CHECK = flags.DEFINE_bool("check", False, "Compare with the runs of --reference.")
_REFERENCE = flags.DEFINE_string("reference", None, "A directory of scenario folders, with runs.")
_ONLY = flags.DEFINE_string("only", "", "With --check: only scenarios whose names have this in it.")
_CONFIG = config_flags.DEFINE_config_file("config", None, "A study: configs/colocated_web.py.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the study goes, and goes on.")
_CACHE_DIR = flags.DEFINE_string(
    "compilation_cache_dir",
    os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "jaxlossy")),
    "Where compiled training programs are kept from run to run; empty: nowhere.",
)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    try:
        if _CHECK.value:
            sys.exit(_check())
        if _CONFIG.value is not None:
            _study()
        else:
            _simulate()
    except jaxlossy.ConfigError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        if _CONFIG.value is None:
            raise
        print(f"\ninterrupted; the same command goes on in {_WORKDIR.value}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(130)  # a program may still be running, and JAX crashes where Python is torn down


def _study() -> None:
    if _WORKDIR.value is None:
        raise jaxlossy.ConfigError("workdir", None, "a directory, with --config")
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    if _CACHE_DIR.value:
        jax.config.update("jax_compilation_cache_dir", _CACHE_DIR.value)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    study = case_study.make_study(_CONFIG.value)
    ds = study_runs.run(study, _WORKDIR.value)
    print("training on what was lost:", flush=True)
    training = playback.compare(study, _WORKDIR.value)
    report.write(ds, _WORKDIR.value, training)
    text = (Path(_WORKDIR.value) / report.REPORT).read_text()
    print("\n" + text.split("## In short")[1].split("##")[0].strip())
    print(f"\nthe report is {Path(_WORKDIR.value) / report.REPORT}, with figures beside it")


def _simulate() -> None:
    if _SCENARIO.value is None:
        raise jaxlossy.ConfigError("scenario", None, "a folder, or --check with --reference")
    file = None if _CSV.value is None else named_file("csv", _CSV.value)
    parts = [_RUN.value or _TRANSPORT.value, _DISCIPLINE.value]
    run = "_".join(part for part in parts if part)
    given, numbers = scenario.read(_SCENARIO.value, run)
    before = time.perf_counter()
    ds = simulate(given)
    seconds = time.perf_counter() - before
    ran = np.array([given.transports[name] is not None for name in given.flows.names], bool)
    ds = ds.assign(number=("flow", numbers)).isel(flow=np.flatnonzero(ran[given.flows.traffic]))
    if file is not None:
        with replacing(file) as path:
            _table(ds).to_csv(path, index=False)
    print(_summary(ds))
    print(
        f"\n{ds.attrs['end_ns'] / 1e6:.3f} ms simulated in {seconds:.2f} s, "
        f"{ds.attrs['events']} events; {ds.attrs['packets_sent']} packets sent, "
        f"{ds.attrs['packets_dropped']} dropped"
    )


def _table(ds: xr.Dataset) -> pd.DataFrame:
    """Completion times, and for lossy flows the packets."""
    table = ds[["bytes_acked", "fct_ns", "completed"]].to_dataframe().astype(np.int64)
    table.insert(0, "flow", ds["number"])
    unreliable = ~ds["reliable"].to_series()
    if unreliable.any():
        for name in ("packets_sent", "packets_received"):
            table[name] = ds[name].to_series().astype("Int64").where(unreliable)
    return table


def _summary(ds: xr.Dataset) -> str:
    """One line a kind of traffic."""
    flows = ds[["traffic", "fct_ns", "completed", "packets", "packets_received"]].to_dataframe()
    flows["us"] = flows["fct_ns"] / 1e3
    flows["loss"] = 1 - flows["packets_received"] / flows["packets"].clip(lower=1)
    groups = flows.groupby("traffic", sort=False)
    table = groups.agg(
        flows=("us", "size"),
        completed=("completed", "sum"),
        mean_us=("us", "mean"),
        median_us=("us", "median"),
        max_us=("us", "max"),
        mean_loss=("loss", "mean"),
        max_loss=("loss", "max"),
    )
    table.insert(4, "p99_us", groups["us"].quantile(0.99))
    return table.reset_index().to_string(index=False, float_format="{:.6g}".format)


def _check() -> int:
    """Prints how every run compares; returns how many differ."""
    if _REFERENCE.value is None:
        raise jaxlossy.ConfigError("reference", None, "a directory of scenario folders")
    jobs = [job for job in reference.runs(_REFERENCE.value) if _ONLY.value in job[0].name]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        rows = pool.map(lambda job: reference.compare(*job), jobs)
        table = pd.DataFrame(tqdm(rows, total=len(jobs), unit="run", file=sys.stderr))
    print(table.to_string(index=False))
    off = np.count_nonzero(table[["flows_off", "ports_off", "lossy_off"]].any(axis=1))
    print(f"\n{len(table) - off} of {len(table)} runs are exact")
    return int(off > 0)


if __name__ == "__main__":
    app.run(main)
