"""The figures of a sweep: what the drop probability and the number of servers do to training.

Every figure is a matplotlib ``Figure`` made without pyplot, so that drawing leaves no global state,
needs no display, and works the same in a script, a thread and a notebook.

Configs that diverged are left out of the means, because one infinite loss would hide all the other
values; every figure says how many there are, and where.
"""

import io
import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from jaxlossy.files import replacing
from jaxlossy.summaries import (
    MAX_PANELS,
    SPREAD,
    Series,
    config_fields,
    final_points,
    find_diverged,
    metric_values,
    panel_fields_of,
    swept_fields,
    swept_probability,
    text_of,
    words,
)

WIDE = 10  # the ratio of largest to smallest value from which a logarithmic axis helps
MARKERS = "osD^vP*X<>"


class NotebookFigure(Figure):
    """A figure that Jupyter shows even where neither pyplot nor ``%matplotlib`` was used before."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def save_figures(figures: Mapping[str, Figure], directory: str | os.PathLike) -> list[Path]:
    """Writes figures as PNG files, each at once: a reader never sees half of one.

    Args:
      figures: by the name of their file.
      directory: where to write; made if it does not exist.

    Returns:
      The paths of the files written.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        with replacing(directory / name) as path:
            figure.savefig(path, dpi=200)
    return [directory / name for name in figures]


def accuracy_against_loss(ds: xr.Dataset) -> Figure:
    """Final accuracy of the mean model against the drop probability, one line per server count.

    A line is the mean over seeds, its band the 10% to 90% quantiles. One panel for each combination
    of the other swept fields. Where no config has an accuracy (regression), the test loss takes
    its place.

    Args:
      ds: results of a sweep, with dimensions (config, step).

    Returns:
      The figure; ``figure.axes`` are its panels.

    >>> ds = xr.Dataset(
    ...     {"test_accuracy": (("config", "step"), [[0.5, 0.9], [0.4, 0.8]])},
    ...     {"drop_probability": ("config", [0.0, 0.1]), "step": [10, 20],
    ...      "servers": 4, "seed": 0, "workers": 8})
    >>> accuracy_against_loss(ds).axes[0].lines[0].get_ydata()
    array([0.9, 0.8])
    """
    final = final_points(ds)
    several = final.fields["seed"].nunique() > 1
    figure, grid = _grid(len(final.panels), width=4.4, height=3.4)
    for axes, (title, panel) in zip(grid, final.panels, strict=True):
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.25)
        for rank, (servers, colour) in enumerate(_colours("viridis", final.fields["servers"])):
            line = panel[panel["servers"] == servers].sort_values(final.probability)
            x, marker = line[final.probability], MARKERS[rank % len(MARKERS)]
            axes.plot(x, line["mean"], marker=marker, ms=4.5, color=colour, label=text_of(servers))
            if several:
                axes.fill_between(x, line["low"], line["high"], color=colour, alpha=0.15, lw=0)
            some = line["finite"].between(0, line["configs"], inclusive="neither")
            style = {"marker": marker, "facecolor": "white", "edgecolor": colour, "zorder": 3}
            axes.scatter(x[some], line["mean"][some], 20, **style)
            none = x[line["finite"] == 0]
            floor = [0.03 + 0.035 * rank] * len(none)  # stacked, so that none hides another
            where = axes.get_xaxis_transform()
            axes.scatter(none, floor, 18, color=colour, marker="x", transform=where)
        if final.name == "test_loss":
            _set_scale(axes, np.concatenate([panel["mean"] for _, panel in final.panels]))
    if final.diverged:
        grid[0].scatter([], [], 20, "white", edgecolor="0.3", label="some seeds diverged")
        grid[0].scatter([], [], 18, "0.3", marker="x", label="all seeds diverged")
    figure.supxlabel(words(final.probability), fontsize=10)
    figure.supylabel(final.label, fontsize=10)
    _legend(figure, grid[0], "servers", several)
    _title(figure, ds, f"Final {final.label}", final.diverged, final.hidden)
    return figure


def heat_map(ds: xr.Dataset) -> Figure:
    """Mean final accuracy over seeds for each drop probability (column) and server count (row).

    A cell that the sweep does not contain is blank; one whose configs all diverged says so; one
    where some did says how many its mean is over. Panels, and the test loss in place of the
    accuracy, as in `accuracy_against_loss`.

    Args:
      ds: results of a sweep, with dimensions (config, step).

    Returns:
      The figure; each panel holds one image, masked in the cells without a mean.
    """
    final = final_points(ds)
    axis_fields = ("servers", final.probability)
    servers, probabilities = (np.unique(final.fields[name]) for name in axis_fields)
    accuracy = final.name == "test_accuracy"
    cmap = matplotlib.colormaps["viridis" if accuracy else "viridis_r"]  # bright is good
    norm = _norm(np.concatenate([panel["mean"] for _, panel in final.panels]), accuracy)
    width, height = 0.8 + 0.58 * len(probabilities), 1.0 + 0.42 * len(servers)
    figure, grid = _grid(len(final.panels), width=max(width, 3), height=max(height, 2.2))
    for axes, (title, panel) in zip(grid, final.panels, strict=True):
        rows = np.searchsorted(servers, panel["servers"])
        columns = np.searchsorted(probabilities, panel[final.probability])
        cells = np.full((len(servers), len(probabilities)), np.nan)
        cells[rows, columns] = panel["mean"]
        axes.imshow(cells, cmap, norm, aspect="auto", origin="lower")
        for row, column, cell in zip(rows, columns, panel.itertuples(), strict=True):
            text, size, colour = "diverged", 6.5, "0.35"
            if cell.finite:
                text, size = f"{cell.mean:.3f}" if accuracy else f"{cell.mean:#.3g}", 8
                luminance = np.dot(cmap(norm(cell.mean))[:3], (0.299, 0.587, 0.114))
                colour = "black" if luminance > 0.5 else "white"
            if 0 < cell.finite < cell.configs:
                text, size = f"{text}\n{cell.finite} of {cell.configs}", 6.5
            axes.text(column, row, text, size=size, color=colour, ha="center", va="center")
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(probabilities)), map(text_of, probabilities))
        axes.set_yticks(range(len(servers)), map(text_of, servers))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.colorbar(grid[0].images[0], ax=list(grid), label=final.label, fraction=0.05, pad=0.02)
    figure.supxlabel(words(final.probability), fontsize=10)
    figure.supylabel("servers", fontsize=10)
    mean = "mean over seeds" if final.fields["seed"].nunique() > 1 else ""
    _title(figure, ds, f"Final {final.label}", final.diverged, final.hidden, mean)
    return figure


def curves(ds: xr.Dataset) -> Figure:
    """Train loss, test loss and disagreement against the step, one line per drop probability.

    A line is the mean over seeds of each seed's mean over everything else, its band the 10% to 90%
    quantiles over seeds. One row of panels per aggregation if several were swept.

    Args:
      ds: results of a sweep, with dimensions (config, step).

    Returns:
      The figure; ``figure.axes`` are its panels, row by row.
    """
    fields, diverged = config_fields(ds), find_diverged(ds)
    probability, others = swept_probability(fields), panel_fields_of(ds)
    by_row = [name for name in others if name == "aggregation"]
    rows = list(np.unique(fields["aggregation"])) if by_row else [None]
    hidden, rows = len(rows[MAX_PANELS:]), rows[:MAX_PANELS]
    several = fields["seed"].nunique() > 1
    lost = diverged.groupby(fields[probability]).agg(["sum", "size"])
    labels = {"train_loss": "train loss", "test_loss": "test loss", "disagreement": "disagreement"}

    figure, grid = _grid(3 * len(rows), width=3.4, height=2.9, columns=3, sharey="col")
    for index, name in enumerate(labels):
        keys = [fields[key] for key in (*by_row, probability, "seed")]
        by_seed = metric_values(ds, name).mask(diverged).groupby(keys, dropna=False).mean()
        over_seeds = by_seed.groupby(level=[*by_row, probability], dropna=False)
        low, high = (over_seeds.quantile(q) for q in SPREAD)
        mean = over_seeds.mean()
        for row, axes in zip(rows, grid[index::3], strict=True):
            axes.set_title(labels[name], fontsize=9)
            axes.grid(alpha=0.25)
            if row is not None and index == 0:
                axes.set_ylabel(f"aggregation = {row}", fontsize=9)
            for p, colour in _colours("plasma", fields[probability]):
                key = p if row is None else (row, p)
                line = mean.loc[key].dropna() if key in mean.index else mean.iloc[0, :0]
                label = text_of(p)
                if lost["sum"][p]:
                    label += " ({} of {} diverged)".format(*lost.loc[p])
                marker = "o" if len(line) == 1 else ""
                axes.plot(line.index, line, marker=marker, color=colour, lw=1.4, label=label)
                if several and len(line):
                    band = (bound.loc[key, line.index] for bound in (low, high))
                    axes.fill_between(line.index, *band, color=colour, alpha=0.15, lw=0)
            _set_scale(axes, mean.to_numpy())
    figure.supxlabel("step", fontsize=10)
    _legend(figure, grid[0], words(probability), several)
    averaged = [n for n in ("servers", *others) if n not in by_row and fields[n].nunique() > 1]
    note = f"mean over {', '.join(map(words, averaged))}" if averaged else ""
    what = "Losses of the mean model and disagreement of the replicas"
    _title(figure, ds, what, int(diverged.sum()), hidden, note)
    return figure


def save_all(ds: xr.Dataset, directory: str | os.PathLike) -> list[Path]:
    """Writes the figures of a sweep as PNG files.

    ``loss_and_disagreement.png`` is always written; ``accuracy_against_loss.png`` unless there is
    only one drop probability (lines of one point); ``heat_map.png`` unless there is only one server
    count as well (a map of one cell).

    Args:
      ds: results of a sweep, with dimensions (config, step).
      directory: where to write; made if it does not exist.

    Returns:
      The paths of the files written.
    """
    fields = config_fields(ds)
    probabilities, servers = (fields[n].nunique() for n in (swept_probability(fields), "servers"))
    figures = {}
    if probabilities > 1:
        figures["accuracy_against_loss.png"] = accuracy_against_loss(ds)
    if probabilities > 1 or servers > 1:
        figures["heat_map.png"] = heat_map(ds)
    figures["loss_and_disagreement.png"] = curves(ds)
    return save_figures(figures, directory)


def _colours(cmap: str, values: Series) -> list[tuple[Any, np.ndarray]]:
    """Each value, in order, with its colour; the palest colours do not show on white."""
    values = np.unique(values)
    colours = matplotlib.colormaps[cmap](np.linspace(0, 0.85, len(values)))
    return list(zip(values, colours, strict=True))


def _grid(count: int, *, width: float, height: float, columns: int = 0, sharey: Any = True):
    """A figure of `count` panels of that size in inches, and the panels."""
    columns = columns or min(3, int(np.ceil(np.sqrt(count))) if count != 3 else 3)
    rows = -(-count // columns)
    size = (width * columns + 2.2, height * rows + 0.9)  # the rest is for legend and title
    figure = NotebookFigure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=sharey, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    for axes in grid[count - columns : count]:  # also those above a removed panel
        axes.tick_params(labelbottom=True)
    return figure, grid[:count]


def _set_scale(axes: Axes, values: np.ndarray) -> None:
    """Makes the y axis logarithmic where values span decades, with a place for zero."""
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if not len(positive) or positive.max() < WIDE * positive.min():
        return
    # Without loss the replicas differ by nothing or by rounding: below the floor is "about zero".
    floor = 10 ** np.floor(np.log10(max(positive.min(), 1e-6 * positive.max())))
    if values.min() < floor:
        axes.set_yscale("symlog", linthresh=floor, linscale=0.4)
        axes.set_ylim(bottom=-0.2 * floor)
    else:
        axes.set_yscale("log")


def _norm(values: np.ndarray, accuracy: bool) -> Normalize:
    values = values[np.isfinite(values)]
    if not len(values):
        return Normalize(0, 1)
    low, high = values.min(), values.max()
    wide = not accuracy and low > 0 and high > WIDE * low
    return LogNorm(low, high) if wide else Normalize(low, high)


def _legend(figure: Figure, axes: Axes, title: str, several: bool) -> None:
    low, high = SPREAD
    if several:
        title += f"\n(line: mean over seeds,\nband: {low:.0%} to {high:.0%} of seeds)"
    style = {"frameon": False, "fontsize": 9, "title_fontsize": 9, "alignment": "left"}
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, title=title, loc="outside right center", **style)


def _title(figure: Figure, ds: xr.Dataset, what: str, diverged: int, hidden: int, note: str = ""):
    """What is shown, how many configs are behind it, and what cannot be seen."""
    fields = config_fields(ds)
    known = {swept_probability(fields), "servers", "seed", *panel_fields_of(ds)}
    named = json.loads(ds.attrs.get("swept", "[]"))
    tied = [name for name in swept_fields(ds) if name in named and name not in known]

    def counted(count: int, noun: str) -> str:
        return f"{count} {noun}" + ("s" if count != 1 else "")

    parts = [
        counted(len(fields), "config"),
        counted(fields["seed"].nunique(), "seed"),
        " or ".join(map(str, np.unique(fields["workers"]))) + " workers",
        f"{counted(diverged, 'diverged config')} left out" if diverged else "",
        note,
        f"{', '.join(map(words, tied))} swept along" if tied else "",
        f"first {MAX_PANELS} of {MAX_PANELS + hidden} combinations shown" if hidden else "",
    ]
    width = int(13 * figure.get_figwidth())  # characters that fit at this font size
    lines = textwrap.fill("; ".join(filter(None, parts)), width)
    figure.suptitle(f"{what}\n{lines}", fontsize=10)
