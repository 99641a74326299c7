"""Simulates a case study: all runs side by side, kept in a workdir, where it can go on."""

import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from jaxlossy.errors import ConfigError
from jaxlossy.files import replacing, writable_directory
from jaxlossy.netsim import case_study, outcome
from jaxlossy.netsim.case_study import MS, TRAINING, WEB, Case, Run, Study
from jaxlossy.netsim.simulation import simulate

RUNS = "runs.nc"
_SECONDS_BETWEEN_SAVES = 10.0
_EVENTS_A_SECOND = 25e6  # of one core, about


#: What is measured of a run.
MEASURES = {
    "web_messages": "web messages",
    "web_mean_ms": "mean completion time of web messages, ms",
    "web_median_ms": "median completion time of web messages, ms",
    "web_p99_ms": "99th percentile of the completion times of web messages, ms",
    "learning_loss": "share of its packets that a learning message lacks, mean over messages",
    "learning_loss_max": "the largest share that one message lacks",
    "iteration_ms": "mean time of an iteration, computing and both phases, ms",
    "iteration_max_ms": "longest iteration, ms",
    "dropped": "packets dropped, of any kind",
    "events": "events simulated",
}


def run(study: Study, workdir: str | os.PathLike[str], *, verbose: bool = True) -> xr.Dataset:
    """Simulates all runs of a study that are not in the workdir yet.

    Args:
      study: what to simulate.
      workdir: where `runs.nc` goes; an interrupted study goes on there.
      verbose: whether to say what is planned, and to show a progress bar.

    Returns:
      A row a run (dimension ``run``): coordinates seed, web_rate, the fields of ``Case``, and
      completed; the measures of `MEASURES`; seconds, that its simulation took.

    Raises:
      ConfigError: a workdir that can not be written to, or that holds another study.
    """
    plan = case_study.runs(study)
    directory = writable_directory("workdir", workdir)
    ds = _opened(directory, study, plan)
    todo = np.flatnonzero(~ds["completed"].values)
    threads = len(os.sched_getaffinity(0))
    if verbose:
        print(_plan_text(study, [plan[i] for i in todo], len(plan), threads), flush=True)
    if not todo.size:
        return ds
    given = functools.lru_cache(maxsize=2 * threads)(
        functools.partial(case_study.network_and_flows, study)
    )
    bar = tqdm(total=len(plan), initial=len(plan) - todo.size, unit="run", file=sys.stderr,
               disable=not verbose)  # fmt: skip
    pool, saved, jobs = ThreadPoolExecutor(threads), time.monotonic(), {}
    try:
        jobs = {pool.submit(_simulate, study, plan[i], given): i for i in todo.tolist()}
        for job in as_completed(jobs):
            _fill(ds, jobs[job], job.result())
            bar.update()
            if time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                save(ds, directory)
                saved = time.monotonic()
    finally:
        pool.shutdown(cancel_futures=True)
        for job, i in jobs.items():  # those under way when it was interrupted
            if not (ds["completed"].values[i] or job.cancelled() or job.exception()):
                _fill(ds, i, job.result())
        save(ds, directory)
        bar.close()
    return ds


def save(ds: xr.Dataset, directory: Path) -> None:
    """Writes `runs.nc`, whole or not at all."""
    with replacing(directory / RUNS) as path:
        ds.to_netcdf(path, engine="h5netcdf")


def empty(study: Study, plan: list[Run]) -> xr.Dataset:
    """The results of runs that have not been simulated yet."""
    columns: dict[str, Any] = {
        "seed": np.array([r.seed for r in plan]),
        "web_rate": np.array([r.web_rate for r in plan], float),
        **{name: np.array([getattr(r.case, name) for r in plan]) for name in Case._fields},
        "completed": np.zeros(len(plan), bool),
    }
    values = {
        name: ("run", np.full(len(plan), np.nan), {"long_name": text})
        for name, text in {**MEASURES, "seconds": "of simulation"}.items()
    }
    coordinates = {name: ("run", column) for name, column in columns.items()}
    described = json.dumps(dataclasses.asdict(study), sort_keys=True)
    return xr.Dataset(values, coordinates, {"study": described, "identity": _digest(described)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _opened(directory: Path, study: Study, plan: list[Run]) -> xr.Dataset:
    """What an earlier run has left in the directory, or nothing yet."""
    new, path = empty(study, plan), directory / RUNS
    if not path.exists():
        return new
    try:
        ds = xr.load_dataset(path, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise ConfigError("workdir", str(directory), f"a readable {RUNS}; {error}") from None
    if ds.attrs.get("identity") != new.attrs["identity"]:
        allowed = "a new or empty directory, or one with this same study; this one holds another"
        raise ConfigError("workdir", str(directory), allowed)
    return ds


def _simulate(study: Study, planned: Run, given: Any) -> dict[str, float]:
    before = time.perf_counter()
    ds = simulate(case_study.scenario(study, planned, given(planned.seed, planned.web_rate)))
    seconds = time.perf_counter() - before
    return {**measure(study, planned, ds), "seconds": seconds}


def _fill(ds: xr.Dataset, index: int, values: dict[str, float]) -> None:
    for name, value in values.items():
        ds[name].values[index] = value
    ds["completed"].values[index] = True


def _plan_text(study: Study, todo: list[Run], count: int, threads: int) -> str:
    """How much there is to do; a packet of data is five events, and one with answers ten."""
    exchange = study.exchange
    packets = {
        "web": -(-study.message_bytes // exchange.payload),
        "train": 2 * study.iterations * (exchange.workers - 1) * exchange.num_packets,
    }
    events = 0.0
    for planned in todo:
        events += 8.5 * planned.web_rate * study.duration_ms / 1e3 * packets["web"]
        answered = planned.case.learning not in ("none", "paced", "burst", "deadline")
        events += (5 + 5 * answered) * packets["train"] * (planned.case.learning != "none")
    minutes = events / _EVENTS_A_SECOND / threads / 60
    return (
        f"{count} runs, {len(todo)} of them to be simulated: {len(case_study.cases(study))} ways "
        f"to send learning traffic and treat it, {study.seeds} seeds; about {events / 1e9:.1f} "
        f"billion events, {minutes:.1f} minutes on {threads} cores"
    )


def measure(study: Study, run: Run, ds: xr.Dataset) -> dict[str, float]:
    """The numbers of `MEASURES`; those of learning are NaN where there is none.

    A phase lasts until its last message is complete: a reliable one acknowledged, one of bounded
    loss with enough packets, a lossy one with the last packet that arrives at all (receivers would
    have to know), or with what has arrived at the deadline.

    Raises:
      RuntimeError: a web message that did not complete.
    """
    is_web = ds["traffic"].values == WEB
    if not ds["completed"].values[is_web].all():
        raise RuntimeError(f"a web message of {run} did not complete")
    web = ds["fct_ns"].values[is_web] / MS
    values = dict.fromkeys(MEASURES, float("nan"))
    values |= {"web_messages": web.size, "web_mean_ms": web.mean()}
    values |= {"web_median_ms": np.median(web), "web_p99_ms": np.quantile(web, 0.99)}
    values |= {"dropped": ds.attrs["packets_dropped"], "events": ds.attrs["events"]}
    if run.case.learning != "none":
        lost = 1 - (ds["packets_received"] / ds["packets"]).values[~is_web]
        times = (
            outcome.iteration_times(case_study.learning_traffic(study), _finished(study, run, ds))
            / MS
        )
        values |= {"learning_loss": lost.mean(), "learning_loss_max": lost.max()}
        values |= {"iteration_ms": times.mean(), "iteration_max_ms": times.max()}
    return {name: float(value) for name, value in values.items()}


def _finished(study: Study, run: Run, ds: xr.Dataset) -> np.ndarray:
    """When every learning message had, in ns; -1: never."""
    train = ds.isel(flow=np.flatnonzero(ds["traffic"].values == TRAINING))
    took, complete = train["fct_ns"].values, train["completed"].values
    if run.case.learning == "deadline":
        took = np.where(complete, took, round(study.deadline_ms * MS))
    elif run.case.learning not in ("paced", "burst") and not complete.all():
        raise RuntimeError(f"a learning message of {run} did not complete")
    return np.where(took < 0, -1, train["start_ns"].values + took)
