"""The report of a case study: sentences made from its numbers, tables and figures, in a workdir."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from jaxlossy.figures import save_figures
from jaxlossy.files import replacing, writable_directory
from jaxlossy.netsim import capacity, figures, gains, sentences
from jaxlossy.netsim.case_study import LEARNING, RELIABLE, Case
from jaxlossy.netsim.gains import Results
from jaxlossy.summaries import Frame

REPORT, NUMBERS = "report.md", "numbers.csv"

HEAD = """\
# What allowing loss buys

The case study of Yu et al., *Distributed Learning over Unreliable Networks*, ICML 2019 (arXiv
1810.07766), on a documented network of our own: the paper's trace of learning traffic is not
public, so that its curve can be compared in its shape, not in its numbers. A web service and
learning share {hosts} hosts on links of {gbps:g} Gbit/s to one switch; a web message has
{kilobytes:g} kB. Each sentence below is made from [numbers.csv](numbers.csv). {seeds} seeds draw
the web's arrivals and the jitter of the pacing; ratios are paired, since a seed has the same web
messages whatever learning does, and intervals are 95% over seeds (Student's t). A claim *holds*
where all of the interval lies in what it allows, *does not hold* where none of it does, and is *not
decided* otherwise.

Learning is sent *reliable* (DCTCP, as fast as its windows let it), *paced reliable* (DCTCP, its
packets spread at {mbps:g} Mbit/s a host), *paced lossy* (at the same rate, every packet once), or
*burst lossy* (at line rate). In *one FIFO* a lossy packet is dropped above a threshold of queued
bytes; in *strict priority* all learning waits behind the web, reliable learning too. The thresholds
are the degree of prioritisation; the loss that they cause is measured."""

NOT_SHOWN = """\
## What is not shown here

Phases begin at fixed times (open loop), so that an iteration's time is the sum of what its phases
would take one right after the other, with the web load that is there at fixed times; phases that
take longer than the time to the next one share the network with it. A lossy phase
ends with the last packet that arrives at all, which receivers can not know; with a deadline or with
bounded loss they do. Learning traffic is regular, and the network is one switch."""


def write(
    ds: xr.Dataset,
    directory: str | os.PathLike[str],
    training: tuple[Frame, Sequence[str]] | None = None,
) -> Frame:
    """Writes report.md, numbers.csv and figures/ from the runs of a study.

    Args:
      ds: from ``study_runs.run``.
      directory: where to write; made if it does not exist.
      training: what ``playback.compare`` found, its table and texts.

    Returns:
      The table of numbers: a row for each estimate, with a sentence where there is one.
    """
    directory = writable_directory("workdir", directory)
    folder = writable_directory("workdir", directory / "figures")
    r = gains.results(ds)
    tables = {
        "speed-up": gains.speed_ups(r),
        "claim": gains.claims(r),
        "part": gains.parts(r),
        "step of a curve": gains.steps_of_curves(r),
        "capacity": capacity.capacities(r),
        "iteration": gains.iteration_gains(r),
        "bounded loss": gains.bounds(r),
    }
    for name, make in sentences.MAKERS.items():
        tables[name]["sentence"] = [make(row) for row in tables[name].to_dict("records")]
    if training is not None:
        tables["accuracy"] = training[0]
    drawn = {
        "speed_up.png": figures.speed_ups(tables["speed-up"], "dctcp", "paced"),
        "speed_up_burst.png": figures.speed_ups(tables["speed-up"], "dctcp", "burst"),
        "speed_up_simple.png": figures.speed_ups(tables["speed-up"], "simple_dctcp", "paced"),
        "capacity.png": figures.capacities(tables["capacity"]),
        "iterations.png": figures.iterations(r),
    }
    if training is not None:
        drawn["accuracy.png"] = figures.accuracies(training[0])
    save_figures(drawn, folder)
    numbers = pd.concat(
        [table.assign(quantity=name) for name, table in tables.items()], ignore_index=True
    )
    numbers.insert(0, "quantity", numbers.pop("quantity"))
    numbers["sentence"] = numbers.pop("sentence")
    with replacing(directory / NUMBERS) as path:
        numbers.to_csv(path, index=False)
    with replacing(directory / REPORT) as path:
        path.write_text(_report(r, ds, tables, training))
    return numbers


def _report(r: Results, ds: xr.Dataset, tables: dict[str, Frame], training: Any) -> str:
    study = r.study
    head = HEAD.format(
        hosts=study["hosts"],
        gbps=study["link_bps"] / 1e9,
        kilobytes=study["message_bytes"] / 1000,
        seeds=study["seeds"],
        mbps=study["learning_bps"] / 1e6,
    )
    made = (
        f"{ds.sizes['run']} runs, {ds['events'].values.sum() / 1e9:.1f} billion events, "
        f"{ds['seconds'].values.sum():.0f} s of one core each taken alone."
    )
    claims, parts = tables["claim"], tables["part"]
    mean = claims[(claims["statistic"] == "mean") & (claims["web"] == "dctcp")]
    sections = [
        head,
        made,
        "## In short",
        _items(sentences.summary(tables)),
        "## 10% loss, more than 1.2 times?",
        _claims_table(mean),
        "![Speed-up against loss](figures/speed_up.png)",
        "![Speed-up against loss, bursts](figures/speed_up_burst.png)",
        "With Netbench's simple DCTCP for the web and for reliable learning:",
        _claims_table(claims[(claims["statistic"] == "mean") & (claims["web"] != "dctcp")]),
        "![The same with simple DCTCP](figures/speed_up_simple.png)",
        "## What of it is pacing, priority, loss",
        _parts_table(parts[parts["statistic"] == "mean"]),
        "## Web load that fits",
        "![Web load that fits under a target](figures/capacity.png)",
        _capacities_table(tables["capacity"]),
        "## Time of an iteration",
        "![Time of an iteration](figures/iterations.png)",
        _items(tables["iteration"]["sentence"]),
        _iterations_table(r),
        "## Bounded loss",
        _bounds_table(tables["bounded loss"]),
    ]
    if training is not None:
        table, texts = training
        sections += [
            "## Back into training",
            "What learning lost is recorded packet by packet and played back while training, "
            "beside independent losses and bursts fitted to it. One in twenty 95% intervals misses "
            "by chance.",
            "![Training on what the network lost](figures/accuracy.png)",
            _items(sentences.accuracies(table)),
            "How far the fitted channels are off:",
        ]
        names = list(table.groupby([*Case._fields, "web_rate"], sort=False).groups)
        for key, text in zip(names, texts, strict=True):
            sections.append(f"{sentences.setting(*key[1:])}:\n\n```\n{text}\n```")
    sections.append(NOT_SHOWN)
    return "\n\n".join(part.strip() for part in sections if part) + "\n"


def _items(texts: Any) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *rows]]
    return "\n".join(lines)


def _cell(row: Any) -> str:
    if np.isnan(row["mean"]):
        return "not reached"
    return f"{row['mean']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def _claims_table(claims: Frame) -> str:
    """The speed-up at 10% loss: a row for each curve, a column for each baseline."""
    bases = list(dict.fromkeys(claims["baseline"]))
    rows = []
    for key, part in claims.groupby(["learning", "priority", "web_rate"], sort=False):
        learning, priority, rate = key
        cells = part.set_index("baseline")
        found = [
            f"{_cell(cells.loc[base])}: {cells.loc[base, 'verdict']}"
            if base in cells.index else "" for base in bases
        ]  # fmt: skip
        rows.append([LEARNING[learning], sentences.QUEUE[priority], f"{rate:g}", *found])
    against = [f"against {sentences.BASELINE[base]}" for base in bases]
    return _table(["learning", "ports", "web messages a second", *against], rows)


def _parts_table(parts: Frame) -> str:
    names = list(dict.fromkeys(["all", *gains.PARTS[True], "priority without pacing"]))
    rows = []
    for (rate, priority), part in parts.groupby(["web_rate", "priority"], sort=False):
        cells = part.set_index("part")
        found = [f"{_cell(cells.loc[n])}" if n in cells.index else "" for n in names]
        rows.append([f"{rate:g}", sentences.QUEUE[priority], *found])
    return _table(["web messages a second", "ports", *names], rows)


def _capacities_table(capacities: Frame) -> str:
    """How many fit: a row for each case, a column for each target."""
    rows = []
    for key, part in capacities.groupby(list(Case._fields), sort=False):
        case, found = Case(*key), []
        for row in part.to_dict("records"):
            cell = "not known" if np.isnan(row["fits"]) else f"{row['fits']:.0f}"
            if row["at_most"]:
                cell = f"at most {cell}"
            if not np.isnan(row["loss"]) and row["loss"]:
                cell += f" ({row['loss']:.1%})"
            if np.isfinite(row["reliable_mean"]) and row["reliable_mean"]:
                cell += ", at least" if row["reliable_at_most"] else ","
                cell += f" {row['reliable_mean']:+.0f} ± {row['reliable_standard_error']:.0f}"
            found.append(cell)
        rows.append([*_named(case), *found])
    targets = [f"{target:g} ms" for target in dict.fromkeys(capacities["target_ms"])]
    return (
        "Web messages a second whose mean completion time stays below a target (loss of learning "
        "there), and how many more than beside reliable learning, mean ± standard error over "
        "seeds:\n\n" + _table(["learning", "ports", "threshold", *targets], rows)
    )


def _bounds_table(bounds: Frame) -> str:
    """Bounded loss: a row for each case, a column for each rate."""
    rows = []
    for key, part in bounds.groupby(list(Case._fields), sort=False):
        found = [
            f"{row['largest_loss']:.1%}; {_cell(row)}: {row['verdict']}"
            for row in part.to_dict("records")
        ]
        rows.append([*_named(Case(*key)), *found])
    rates = [f"{rate:g} web messages a second" for rate in dict.fromkeys(bounds["web_rate"])]
    return (
        "The largest loss of any message; the web's p99 over that beside paced reliable learning, "
        "and whether it stays within 1.5 times:\n\n"
        + _table(["learning", "ports", "threshold", *rates], rows)
    )


def _named(case: Case) -> list[str]:
    """What is sent, how ports treat it and, where it may be dropped for it, the threshold."""
    lossless = case.learning in (*RELIABLE, "none")
    threshold = "" if lossless else f"{case.threshold / 1000:g} kB"
    return [LEARNING[case.learning], sentences.QUEUE[case.priority], threshold]


def _iterations_table(r: Results) -> str:
    """Mean iterations at every rate: what is reliable, and lossy ones with their loss."""
    cases = [Case("dctcp", name, p, r.limit) for name in RELIABLE for p in (False, True)]
    cases += [
        Case("dctcp", name, priority, t)
        for name in ("paced", "deadline", "bounded", "bounded_controlled")
        for priority in (False, True)
        for t in r.study[f"few_{'priority' if priority else 'fifo'}_thresholds"]
    ]
    rows = []
    for case in cases:
        found = []
        for rate in r.rates():
            time, longest, loss = (
                r.get(case, rate, name).mean()
                for name in ("iteration_ms", "iteration_max_ms", "learning_loss")
            )
            found.append(f"{time:.1f} / {longest:.1f} / {loss:.1%}")
        rows.append([*_named(case), *found])
    rates = [f"{rate:g} web messages a second" for rate in r.rates()]
    return "Mean iteration in ms / longest of a run, mean over seeds / loss:\n\n" + _table(
        ["learning", "ports", "threshold", *rates], rows
    )
