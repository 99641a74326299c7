"""From the network into training: what a case study's learning lost, played back while training.

The same training also meets cheap channels fitted to the recording, independent losses of the same
rate and bursts, so that it shows whether it matters which packets are lost together.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import jaxlossy
from jaxlossy.claims import as_columns, by_seed, difference, estimate
from jaxlossy.files import writable_directory
from jaxlossy.fits import fit_bernoulli, fit_gilbert_elliott
from jaxlossy.netsim import case_study, outcome
from jaxlossy.netsim.case_study import Case, Run, Study
from jaxlossy.netsim.simulation import simulate_many
from jaxlossy.summaries import Frame, config_fields
from jaxlossy.trace import Trace, save_traces

#: What training meets, and what the report calls it.
CHANNELS = {
    "none": "no loss",
    "recorded": "the recording",
    "independent": "independent losses",
    "bursts": "bursts (Gilbert-Elliott)",
}


def record(study: Study) -> list[tuple[Case, float, Trace]]:
    """Simulates the runs of which losses are to be played back.

    Returns:
      For each of ``study.playback``: the case, the web messages a second, and what arrived, all
      iterations of seed 0, then those of seed 1, ....
    """
    found = []
    for learning, priority, threshold, rate in study.playback:
        case = Case("dctcp", learning, priority, threshold)
        scenarios = (
            case_study.scenario(
                study,
                Run(seed, rate, case),
                case_study.network_and_flows(study, seed, rate),
                record=True,
            )
            for seed in range(study.seeds)
        )
        traffic = case_study.learning_traffic(study)
        traces = [
            outcome.to_trace(traffic, ds["delivered"].values) for ds in simulate_many(scenarios)
        ]
        up, down = (np.concatenate([getattr(t, name) for t in traces]) for name in ("up", "down"))
        found.append((case, rate, Trace(up, down, traces[0].servers, traces[0].placement)))
    return found


def train(
    training: Any, trace: Trace | None, workdir: Path | None = None, **arguments: Any
) -> dict[str, xr.Dataset]:
    """Trains on a recording and on the channels fitted to it.

    Args:
      training: the sweep, over seeds and maybe more, with the trace's workers, servers, placement
        and number of packets.
      trace: None: without loss.
      workdir: where the sweeps are kept.
      arguments: of ``jaxlossy.sweep``, such as data.

    Returns:
      By name of `CHANNELS`, the results of each sweep.
    """
    channels: dict[str, Any] = {"none": None}
    if trace is not None:
        channels = {
            "recorded": jaxlossy.recorded(trace),
            "independent": fit_bernoulli(trace).channel,
            "bursts": fit_gilbert_elliott(trace).channel,
        }
    return {
        name: jaxlossy.sweep(
            training,
            channel=channel,
            workdir=None if workdir is None else workdir / name,
            verbose=False,
            **arguments,
        )
        for name, channel in channels.items()
    }


def accuracies(sweeps: dict[str, xr.Dataset], field: str = "aggregation") -> Frame:
    """Final test accuracy of the mean model, and what a channel changes, paired over seeds.

    Args:
      sweeps: by name of `CHANNELS`; 'independent' is what others are compared with.
      field: what else the sweeps vary.

    Returns:
      A row for each channel and value of the field: accuracy and its standard error, lost (share of
      packets) and the estimate of the accuracy beyond that with independent losses.
    """
    rows = []
    for name, ds in sweeps.items():
        fields = config_fields(ds)
        for value in dict.fromkeys(fields[field]):
            ours, theirs = (
                by_seed(s, jaxlossy.final(s)["test_accuracy"].values, **{field: value})
                for s in (ds, sweeps["independent"])
            )
            chosen = (fields[field] == value).to_numpy()
            arrived = ds[["uplink_delivered", "downlink_delivered"]].isel(config=chosen)
            row = {"channel": name, field: value, "accuracy": ours.mean()}
            row |= {"accuracy_error": ours.sem()}
            row |= {"lost": 1 - float(arrived.to_array().mean())}
            rows.append({**row, **as_columns(estimate(difference(ours, theirs)))})
    return pd.DataFrame(rows)


def compare(
    study: Study, workdir: str | os.PathLike[str], **arguments: Any
) -> tuple[Frame, Sequence[str]]:
    """Trains on all that ``record`` finds.

    Args:
      workdir: where each recording is kept, `trace_0.nc` and so on, for ``jaxlossy.load_traces``,
        and each sweep, in a directory of its own, where an interrupted one goes on.
      arguments: of ``jaxlossy.sweep``.

    Returns:
      The rows of ``accuracies`` with the case and web_rate they belong to; for each recording a
      text on the fits, how far they are off.
    """
    directory = writable_directory("workdir", workdir)
    tables, texts = [], []
    without = train(study.training, None, directory / "training", **arguments)
    for i, (case, rate, trace) in enumerate(record(study)):
        save_traces(directory / f"trace_{i}.nc", trace)
        sweeps = train(study.training, trace, directory / f"training_{i}", **arguments)
        tables.append(accuracies({**without, **sweeps}).assign(**case._asdict(), web_rate=rate))
        fits = {"independent": fit_bernoulli(trace), "bursts": fit_gilbert_elliott(trace)}
        texts.append("\n".join(f"{CHANNELS[name]}:\n{fit}" for name, fit in fits.items()))
    return pd.concat(tables, ignore_index=True), texts
