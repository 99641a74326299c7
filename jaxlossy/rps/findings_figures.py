"""Figures of the findings: what packet loss costs, and what more servers change about it."""

from typing import Any

import matplotlib.ticker
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxlossy.claims import by_seed
from jaxlossy.panels import legend, palette, panels_of, plain_ticks
from jaxlossy.rps.findings import ALMOST, AS_WITHOUT, SLIGHTLY, setting_text
from jaxlossy.rps.influence import LOSSES, MEASURES, Study
from jaxlossy.summaries import Frame, config_fields

RULES = {"model_averaging": ("-", "o", "C0"), "gradient_averaging": ("--", "s", "C3")}


def accuracies(table: Frame) -> Figure:
    """Final accuracy against the drop probability, and below it what is lost, close up.

    Args:
      table: from ``findings.accuracy_lost``, of several sweeps maybe.

    Returns:
      The figure: a column for each data set and skew; the upper panels show both aggregations, the
      lower ones model averaging between the bounds of what is claimed of it.
    """
    settings = list(table.groupby(["data", "dirichlet_alpha"], sort=False))
    figure, panels = panels_of(
        "What packet loss costs: model averaging and gradient averaging",
        len(settings),
        rows=2,
        width=2.9,
        height=2.6,
        sharex=True,
        sharey="row",
    )
    above, below = panels[: len(settings)], panels[len(settings) :]
    for (key, part), upper, lower in zip(settings, above, below, strict=True):
        upper.set_title(setting_text(*key).replace(" (", "\n("), fontsize=9)
        for (name, measure), rows in part.groupby(["aggregation", "measure"]):
            line, marker, colour = RULES[name]
            if measure != "test_accuracy":
                if name == "gradient_averaging":
                    upper.plot(*_accuracy(rows), ":", color=colour, lw=1.2)
                continue
            style = {"fmt": marker, "ls": line, "color": colour, "ms": 4.5, "lw": 1.2}
            bars = _bars(rows)
            upper.errorbar(*_accuracy(rows), np.insert(bars[::-1], 0, 0, axis=1), **style)
            if name == "model_averaging":
                points = (100 * rows["drop_probability"], 100 * rows["mean"], 100 * bars)
                lower.errorbar(*points, **style)
        lower.axhline(0, color="0.3", lw=0.8)
        bounds = ((AS_WITHOUT, (0, 1.5)), (ALMOST, (1.5, 14)), (SLIGHTLY, (14, 21)))
        for claim, ends in bounds:
            lower.plot(ends, [100 * claim.high] * 2, color="0.5", ls=":", lw=1.2)
    above[0].set_ylabel("final test accuracy\nof the mean model", fontsize=9)
    below[0].set_ylabel("points of accuracy lost", fontsize=9)
    figure.supxlabel("drop probability, %", fontsize=10)
    handles = [
        Line2D([], [], ls=line, marker=marker, color=colour, ms=4.5, label=name.replace("_", " "))
        for name, (line, marker, colour) in RULES.items()
    ]
    colour = RULES["gradient_averaging"][2]
    handles.append(Line2D([], [], color=colour, ls=":", label="its replicas"))
    handles.append(Line2D([], [], color="0.5", ls=":", label="the most that is claimed"))
    legend(figure, handles, "mean over seeds,\n95% interval of what is lost")
    return figure


def curves(ds: xr.Dataset) -> Figure:
    """Test accuracy of the mean model against the step, one line per drop probability.

    Args:
      ds: results of a sweep as for ``findings.accuracy_lost``.

    Returns:
      The figure: a row for each skew, a column for each aggregation. Lines are means over seeds,
      bands two standard errors wide on each side.
    """
    fields = config_fields(ds)
    skews = sorted(set(fields["dirichlet_alpha"]), reverse=True)
    rules = [name for name in RULES if name in set(fields["aggregation"])]
    p = np.unique(fields["drop_probability"])
    colours = dict(zip(p, palette("plasma", len(p)), strict=True))
    data = fields["data"].iloc[0]
    figure, panels = panels_of(
        f"Training on {data}", len(rules), rows=len(skews), width=3.8, height=2.6, sharey="row"
    )
    settings = [(skew, rule) for skew in skews for rule in rules]
    for axes, (skew, rule) in zip(panels, settings, strict=True):
        shards = setting_text(data, skew).removeprefix(f"{data}, ")
        axes.set_title(f"{rule.replace('_', ' ')}, {shards}", fontsize=9)
        for probability, colour in colours.items():
            chosen = {"dirichlet_alpha": skew, "aggregation": rule, "drop_probability": probability}
            index = by_seed(ds, np.arange(ds.sizes["config"]), **chosen).to_numpy()
            values = ds["test_accuracy"].values[index]
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / len(index) ** 0.5
            marker = "o" if len(ds["step"]) < 6 else ""
            axes.plot(ds["step"], mean, color=colour, lw=1.4, marker=marker, ms=3.5)
            band = (mean - 2 * error, mean + 2 * error)
            axes.fill_between(ds["step"], *band, color=colour, alpha=0.15, lw=0)
    figure.supxlabel("step", fontsize=10)
    figure.supylabel("test accuracy of the mean model", fontsize=10)
    handles = [Line2D([], [], color=colour, label=f"{100 * p:g}%") for p, colour in colours.items()]
    legend(figure, handles, "drop probability")
    return figure


def influences(table: Frame, study: Study) -> Figure:
    """Both influences of loss against the number of servers, with their predictions.

    Args:
      table: from ``influence.influences``.
      study: what it is of.

    Returns:
      The figure: a row for each measure, a column for each way in which servers grow.
    """
    growths = {"together": "n = N = S", "servers": f"S alone, N = {study.workers}"}
    figure, panels = panels_of(
        "The influence of packet loss with more servers",
        2,
        rows=2,
        width=3.6,
        height=2.9,
        sharey="row",
    )
    markers = dict(zip(LOSSES, "os^", strict=True))
    colours = dict(zip(LOSSES, palette("viridis", len(LOSSES)), strict=True))
    cells = [(measure, growth) for measure in MEASURES for growth in growths]
    for axes, (measure, growth) in zip(panels, cells, strict=True):
        rows = table[(table["measure"] == measure) & (table["growth"] == growth)]
        for loss, line in rows.groupby("loss"):
            style = {"fmt": markers[loss], "color": colours[loss], "ms": 4.5, "lw": 1}
            apart = 1.06 ** (list(LOSSES).index(loss) - 1)  # so that bars do not cover each other
            axes.errorbar(apart * line["servers"], line["mean"], _bars(line), **style)
            axes.plot(line["servers"], line["predicted"], "--", color=colours[loss], lw=1.2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(set(rows["servers"])))
        axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set_xlabel(growths[growth], fontsize=9)
        if growth == "together":
            axes.set_ylabel(f"{MEASURES[measure]}\n(mean over the training)", fontsize=9)
    # Loss can also help by chance, so that this axis needs negative numbers.
    panels[0].set_yscale("symlog", linthresh=1e-3, linscale=0.7)
    panels[2].set_yscale("log")
    plain_ticks(panels[2].yaxis)
    handles: list[Any] = [
        Line2D([], [], ls="", marker=markers[loss], color=colours[loss], label=_broken(loss, study))
        for loss in LOSSES
    ]
    handles.append(Line2D([], [], ls="--", color="0.3", label="predicted, but for\none constant"))
    legend(figure, handles, "points: mean over seeds,\n95% interval\n")
    return figure


def _accuracy(rows: Frame) -> tuple[list[float], list[float]]:
    """Drop probabilities in percent, from 0, and the accuracy that is left."""
    p = [0, *(100 * rows["drop_probability"])]
    return p, [rows["without_loss"].iloc[0], *(rows["without_loss"] - rows["mean"])]


def _broken(loss: str, study: Study) -> str:
    text = LOSSES[loss].format(p=study.probability(loss))
    return text.replace(" with", "\nwith").replace(", each\nwith", ",\neach with")


def _bars(rows: Any) -> np.ndarray:
    """Lengths of the intervals' lower and upper halves, none where nothing is known."""
    bars = np.stack([rows["mean"] - rows["low"], rows["high"] - rows["mean"]])
    return np.where(np.isfinite(bars), bars, 0)
