"""The figure of a closed loop: what plans were predicted to do against what they did."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxlossy.figures import NotebookFigure

if TYPE_CHECKING:
    from jaxlossy.topology.loop import Loop

WORDS = {"digits": "test error of the mean model", "diabetes": "normalised squared error"}
MET, MISSED = "#31688e", "#d8576b"


def predicted_and_measured(loop: "Loop") -> Figure:
    """Error and time of every plan, measured against predicted, with 2 standard errors.

    Args:
      loop: from ``loop.close_loop``.

    Returns:
      The figure; ``figure.axes`` are its two panels.
    """
    figure = NotebookFigure(figsize=(9.2, 4.0), layout="constrained")
    error, time = figure.subplots(1, 2)
    plans, summary = loop.plans, loop.summary()
    met = plans["measured_error"] <= plans["eps_max"]
    for rows, colour, label in ((met, MET, "target met"), (~met, MISSED, "target missed")):
        if rows.any():
            _points(error, plans[rows], "error", color=colour, label=label)
    error.scatter(
        plans["predicted_error"],
        plans["eps_max"],
        30,
        color="0.3",
        marker="_",
        label="target, $\\epsilon_{max}$",
    )
    words = WORDS.get(loop.task, "error")
    error.set_xlabel(f"predicted {words}", fontsize=10)
    error.set_ylabel(f"measured {words}", fontsize=10)
    correlation = summary["rank_correlation"]
    error.set_title(f"rank correlation {correlation:.2f}, {summary['met']:.0%} met", fontsize=9)
    _points(time, plans, "time", color=MET, label="plan")
    time.set(xscale="log", yscale="log")
    time.set_xlabel("predicted time, s", fontsize=10)
    time.set_ylabel("measured time, s", fontsize=10)
    time.set_title(f"measured / predicted {1 + summary['slower']:.3f} on average", fontsize=9)
    for axes in (error, time):
        ends = np.array(axes.get_xlim())
        axes.plot(ends, ends, color="0.3", lw=1, ls="--", label="as predicted", zorder=0)
        axes.set_xlim(ends)
        axes.grid(alpha=0.25)
    error.legend(frameon=False, fontsize=9, loc="upper left")
    figure.suptitle(
        f"{len(plans)} plans chosen by DoubleClimb for {loop.task}, trained "
        "(bars: 2 standard errors over seeds)",
        fontsize=10,
    )
    return figure


def _points(axes: Axes, plans: Any, name: str, **style: Any) -> None:
    axes.errorbar(
        plans[f"predicted_{name}"],
        plans[f"measured_{name}"],
        2 * plans[f"measured_{name}_se"],
        fmt="o",
        ms=4.5,
        lw=1,
        **style,
    )
