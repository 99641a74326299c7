"""Figures of the theory: exact lines, and what the simulator measures as points beside them."""

import os
from pathlib import Path
from typing import Any

import matplotlib.ticker
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxlossy import theory
from jaxlossy.figures import save_figures
from jaxlossy.panels import legend, palette, panels_of, plain_ticks
from jaxlossy.rps import predictions

Frame = Any  # see ``predictions``
STYLES = {"random": ("-", "o", "random servers"), "separate": ("--", "s", "separate servers")}
WORDS = {"model_averaging": "model averaging", "gradient_averaging": "gradient averaging"}


def coefficients_against_workers(table: Frame) -> Figure:
    """alpha2, beta and the slow-down against the number of workers: lines exact, points measured.

    Args:
      table: from ``measure.coefficient_table``; rows of p in {0, 1} or one worker are left out.

    Returns:
      The figure; ``figure.axes`` are its three panels.
    """
    inside = table["drop_probability"].between(0, 1, inclusive="neither")
    table = table[inside & (table["num_workers"] > 1)]
    labels = (
        "kick to the mean model, $\\alpha_2$",
        "contraction of the disagreement, $\\beta$",
        "slow-down of training, $(1+\\sqrt{N\\alpha_2})\\,/\\,(1-\\sqrt{\\beta})$",
    )
    figure, panels = panels_of("Mixing of one exchange, exact and measured", 3)
    for axes, label in zip(panels, labels, strict=True):
        axes.set_title(label, fontsize=9)
        axes.set_xscale("log", base=2)
    largest = 2 * max(table["num_workers"], default=2)
    workers = np.unique(np.geomspace(2, largest, 40).astype(int))
    colours = _colours(table["drop_probability"])
    for placement, rows in table.groupby("placement"):
        line, marker, _ = STYLES[placement]
        for p, points in rows.groupby("drop_probability"):
            exact = theory.coefficients(placement, workers, p)
            lines = (exact.alpha2, exact.beta, theory.slow_down(exact, workers))
            for axes, y in zip(panels, lines, strict=True):
                axes.plot(workers, y, line, color=colours[p], lw=1.2)
            face = colours[p] if placement == "random" else "white"
            style = {"fmt": marker, "color": colours[p], "ms": 4.5, "mfc": face, "lw": 1}
            for axes, name in zip(panels, ("alpha2", "beta"), strict=False):
                y, error = (points[f"measured_{name}{end}"] for end in ("", "_se"))
                axes.errorbar(points["num_workers"], y, 2 * error, **style)
    for axes in panels:
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    plain_ticks(panels[2].yaxis)
    figure.supxlabel("workers, N", fontsize=10)
    handles = [Line2D([], [], color=colour, label=f"{p:g}") for p, colour in colours.items()]
    legend(figure, handles, "drop probability", loc="outside right upper")
    placements = [STYLES[name] for name in STYLES if (table["placement"] == name).any()]
    handles = [
        Line2D(
            [],
            [],
            color="0.3",
            ls=line,
            marker=marker,
            label=label,
            ms=4.5,
            mfc="0.3" if line == "-" else "white",
        )
        for line, marker, label in placements
    ]
    legend(
        figure,
        handles,
        "lines: exact\npoints: measured,\nwith 2 standard errors",
        loc="outside right lower",
    )
    return figure


def gradient_bounds(table: Frame) -> Figure:
    """Measured mean squared gradients against the bound on them, one point a setting.

    Args:
      table: from ``predictions.gradient_bounds``.
    """
    figure, (axes,) = panels_of(
        f"The convergence bound on a quadratic, {len(table)} random settings", 1, width=4.6
    )
    ends = (
        table[["measured", "predicted"]].min().min(),
        table[["measured", "predicted"]].max().max(),
    )
    axes.plot(ends, ends, color="0.3", lw=1.2, label="the bound")
    shapes = {("random", 4): "o", ("random", 16): "D", ("separate", 4): "s", ("separate", 16): "^"}
    colours = dict(zip(shapes, palette("viridis", len(shapes)), strict=True))
    for key, rows in table.groupby(["placement", "workers"]):
        label = f"{STYLES[key[0]][2]}, {key[1]} workers"
        axes.scatter(
            rows["predicted"],
            rows["measured"],
            14,
            color=colours[key],
            marker=shapes[key],
            label=label,
            lw=0,
            alpha=0.8,
        )
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("bound", fontsize=10)
    axes.set_ylabel("mean squared gradient\nof the mean model, measured", fontsize=10)
    legend(figure, axes.get_legend_handles_labels()[0], "")
    return figure


def disagreements(table: Frame) -> Figure:
    """Disagreement against the step, measured and predicted, one panel an aggregation and skew.

    Args:
      table: from ``predictions.disagreements``.
    """
    names, skews = ("model_averaging", "gradient_averaging"), table["dirichlet_alpha"].unique()
    figure, panels = panels_of(
        "Replicas that walk at random: model averaging mixes them again, gradient averaging never",
        len(names),
        rows=len(skews),
        width=3.8,
        height=2.7,
    )
    colours = _colours(table["drop_probability"])
    for axes, (skew, name) in zip(
        panels, [(s, n) for s in sorted(skews, reverse=True) for n in names], strict=True
    ):
        data = "iid data" if np.isinf(skew) else f"label skew, dirichlet alpha {skew:g}"
        axes.set_title(f"{WORDS[name]}, {data}", fontsize=9)
        rows = table[(table["aggregation"] == name) & (table["dirichlet_alpha"] == skew)]
        for p, line in rows.groupby("drop_probability"):
            axes.plot(line["step"], line["measured"], color=colours[p], lw=2.5, alpha=0.5)
            axes.plot(line["step"], line["predicted"], color="black", lw=1, ls="--")
        axes.set_ylim(bottom=0)
    figure.supxlabel("step", fontsize=10)
    figure.supylabel("disagreement", fontsize=10)
    handles = [
        Line2D([], [], color=c, lw=2.5, alpha=0.5, label=f"{p:g}") for p, c in colours.items()
    ]
    handles.append(Line2D([], [], color="black", lw=1, ls="--", label="predicted"))
    legend(figure, handles, "drop probability\n(thick: measured)")
    return figure


def server_weights(table: Frame) -> Figure:
    """What the serving worker's data weigh against the drop probability.

    Args:
      table: from ``predictions.server_weights``.
    """
    figure, (axes,) = panels_of("Fixed servers bias training towards their own data", 1, width=4.6)
    for index, (key, rows) in enumerate(table.groupby(["placement", "learning_rate"])):
        colour = palette("viridis", 4)[index]
        axes.plot(rows["drop_probability"], rows["predicted"], color=colour, lw=1.2)
        axes.errorbar(
            rows["drop_probability"],
            rows["measured"],
            2 * rows["error"],
            fmt="osD^"[index],
            ms=4.5,
            color=colour,
            lw=1,
            label=f"{key[0]}, learning rate {key[1]:g}",
        )
    axes.set_xlabel("drop probability", fontsize=10)
    axes.set_ylabel("weight of the serving worker's data, times N", fontsize=10)
    legend(
        figure,
        axes.get_legend_handles_labels()[0],
        "placement\n(line: predicted, points:\nmeasured, 2 standard errors)",
    )
    return figure


def save_all(table: Frame, directory: str | os.PathLike) -> list[Path]:
    """Trains what the predictions are held against, and writes all figures as PNG files.

    Args:
      table: as for ``coefficients_against_workers``.
      directory: where to write; made if it does not exist.

    Returns:
      The paths of the files written.
    """
    figures = {
        "coefficients.png": coefficients_against_workers(table),
        "gradient_bound.png": gradient_bounds(predictions.gradient_bounds()),
        "disagreement.png": disagreements(predictions.disagreements()),
        "server_weight.png": server_weights(predictions.server_weights()),
    }
    return save_figures(figures, directory)


def _colours(probabilities: Any) -> dict[float, Any]:
    values = np.unique(probabilities)
    return dict(zip(values.tolist(), palette("plasma", len(values)), strict=True))
