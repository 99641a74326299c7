"""A sweep's numbers reduced to what a figure or a table shows: over seeds, without what diverged.

Configs that diverged are left out of the means, because one infinite loss would hide all the other
values; how many there are is always part of the answer.
"""

import numbers
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

MAX_PANELS = 6
SPREAD = (0.1, 0.9)  # quantiles over seeds; unlike mean +- deviation they stay within [0, 1]
DIVERGED = 100  # a final loss so many times the usual first loss counts as diverged
GUESSING = 7.0  # the cross-entropy of guessing among 1,000 classes: no first loss is usually larger

# pandas annotates `frame[name]` and the like as unions whose every use a type checker refuses.
Frame = Any
Series = Any


def config_fields(ds: xr.Dataset) -> Frame:
    """The config fields, a row per config."""
    coords = {n: c.values[()] for n, c in ds.coords.items() if set(c.dims) <= {"config"}}
    coords.pop("config", None)
    return pd.DataFrame(coords, range(ds.sizes["config"]))


def swept_probability(fields: Frame) -> str:
    """The drop probability that varies: of both directions, else of one."""
    names = ("drop_probability", "uplink_drop_probability", "downlink_drop_probability")
    varying = (name for name in names if name in fields and fields[name].nunique() > 1)
    return next(varying, names[0])


def swept_fields(ds: xr.Dataset) -> list[str]:
    """The fields that vary, those of fewest values first."""
    fields = config_fields(ds)
    counts = fields.drop(columns="completed", errors="ignore").nunique(dropna=False)
    # Not from ds.attrs: results of two sweeps may have been put together.
    return list(counts[counts > 1].sort_values(kind="stable").index)


def panel_fields_of(ds: xr.Dataset) -> list[str]:
    """The fields that tell apart configs of equal drop probability, server count and seed.

    A field that follows from those, like the number of workers swept together with the servers,
    makes no panels.
    """
    fields, chosen = config_fields(ds), []
    known = [swept_probability(fields), "servers", "seed"]
    for name in swept_fields(ds):
        if name not in known:
            values = fields.groupby(known + chosen, dropna=False)[name].nunique(dropna=False)
            chosen += [name] if (values > 1).any() else []
    return chosen


def main_metric(ds: xr.Dataset) -> str:
    has_accuracy = "test_accuracy" in ds and np.isfinite(ds["test_accuracy"]).any()
    return "test_accuracy" if has_accuracy else "test_loss"


def metric_values(ds: xr.Dataset, name: str) -> Frame:
    """A metric, a row per config and a column per step, NaN where not finite."""
    values = ds[name].transpose("config", "step").astype(float)
    return pd.DataFrame(values.where(np.isfinite(values)).values, columns=ds.indexes["step"])


def last_values(ds: xr.Dataset, name: str) -> Series:
    """A metric at each config's own last step; those of fewer steps end in NaN."""
    fields, steps, values = config_fields(ds), ds.indexes["step"], metric_values(ds, name)
    ends = fields["steps"] if "steps" in fields else np.full(len(fields), steps[-1])
    columns = np.maximum(np.searchsorted(steps, ends, side="right") - 1, 0)
    return pd.Series(values.to_numpy()[np.arange(len(fields)), columns])


def find_diverged(ds: xr.Dataset) -> Series:
    """Which configs end without a finite value, or with a loss far above where losses start."""
    diverged = last_values(ds, main_metric(ds)).isna()
    for name in {"train_loss", "test_loss"} & set(ds):
        last, start = last_values(ds, name), metric_values(ds, name).iloc[:, 0].median()
        if main_metric(ds) == "test_accuracy":  # the first evaluation may come after divergence
            start = min(start, GUESSING)
        diverged |= last.isna() | (last > DIVERGED * start)
    return diverged


class Final(NamedTuple):
    """A metric at the last step, in panels: a row per point (mean, low, high, finite, configs)."""

    name: str
    label: str
    fields: Frame
    probability: str
    panels: list[tuple[str, Frame]]
    hidden: int
    diverged: int


def final_points(ds: xr.Dataset) -> Final:
    name, fields, diverged = main_metric(ds), config_fields(ds), find_diverged(ds)
    panel_fields, probability = panel_fields_of(ds), swept_probability(fields)
    points = (
        fields.assign(last=last_values(ds, name).mask(diverged))
        .groupby([*panel_fields, probability, "servers"], dropna=False)["last"]
        .agg(
            mean="mean",
            low=lambda last: last.quantile(SPREAD[0]),
            high=lambda last: last.quantile(SPREAD[1]),
            finite="count",
            configs="size",
        )
        .reset_index()
    )
    panels = [("", points)]
    if panel_fields:
        panels = [
            (", ".join(f"{words(n)} = {text_of(panel[n].iloc[0])}" for n in panel_fields), panel)
            for _, panel in points.groupby(panel_fields, dropna=False)
        ]
    label, hidden = f"{words(name)} of the mean model", len(panels[MAX_PANELS:])
    return Final(name, label, fields, probability, panels[:MAX_PANELS], hidden, diverged.sum())


def words(name: str) -> str:
    return name.replace("_", " ")


def text_of(value: Any) -> str:
    if pd.isna(value):  # a field of None, which the library fills in
        return "default"
    return f"{value:g}" if isinstance(value, numbers.Number) else str(value)


def table(ds: xr.Dataset) -> str:
    """The final test accuracy (or loss, without classes) for a person to read.

    Mean and standard deviation over seeds, and over what else shares a cell: rows are drop
    probabilities within the other swept fields, columns are servers. Configs that diverged are left
    out, and their number is said.
    """
    name, fields, diverged = main_metric(ds), config_fields(ds), find_diverged(ds)
    rows = [*panel_fields_of(ds), swept_probability(fields)]
    cells = fields.assign(last=last_values(ds, name).mask(diverged)).groupby([*rows, "servers"])

    def show(last):
        spread = f" ± {last.std(ddof=1):.3f}" if last.count() > 1 else ""
        return f"{last.mean():.3f}{spread}" if last.count() else "diverged"

    lines = [f"final {words(name)} of the mean model, mean ± standard deviation over seeds"]
    if diverged.any():
        lines.append(f"{diverged.sum()} of {len(fields)} configs diverged and are left out")
    shown = cells["last"].agg(show).unstack("servers", fill_value="")
    return "\n".join([*lines, shown.rename_axis(columns="servers").to_string()])
