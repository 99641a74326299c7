"""What closing the loop found: in numbers, in words, as files and as a figure."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from jaxlossy.errors import check_name
from jaxlossy.figures import NotebookFigure, save_figures
from jaxlossy.files import replacing, writable_directory
from jaxlossy.panels import plain_ticks
from jaxlossy.topology import tasks
from jaxlossy.topology.loop import SCALES, Loop, close_loop

WORDS = {"digits": "test error of the mean model", "diabetes": "normalised squared error"}
MET, MISSED = "#31688e", "#d8576b"


def default_config() -> ConfigDict:
    """What ``close_loops`` does by default.

    tasks: names of the tasks to close the loop for; () for none.
    drop_probability: of a packet on every link.
    quick: only a small part of it, to try it out.
    seed: of the problems and of training.
    """
    config = ConfigDict({"tasks": ("digits", "diabetes")})
    config.drop_probability, config.quick, config.seed = 0.0, False, 0
    return config


def close_loops(config: Mapping[str, Any], workdir: str | os.PathLike[str]) -> Iterator[str]:
    """Closes the loop for each task, and writes what was found.

    Args:
      config: fields of ``default_config``; what is missing is as there.
      workdir: gets <task>.json (fit and summary), <task>_plans.csv, <task>_grid.csv and
        figures/<task>.png.

    Returns:
      A sentence for each task, one after the other as they are done.

    Raises:
      ConfigError: a field is unknown or has a value that is not allowed.
    """
    given, known = dict(config), default_config().to_dict()
    for name in given:
        check_name("config.loop", name, known)
    given = known | given
    for name in given["tasks"]:
        check_name("tasks", name, SCALES)
    directory = writable_directory("workdir", workdir)
    learnt = [
        getattr(tasks, name)(drop_probability=given["drop_probability"]) for name in given["tasks"]
    ]

    def close(task: tasks.Task) -> str:
        scale = SCALES[task.name].quick() if given["quick"] else SCALES[task.name]
        found = close_loop(task, scale, seed=given["seed"])
        save(found, directory)
        return sentence(found)

    return map(close, learnt)


def summary(loop: Loop) -> dict[str, float]:
    """How well predictions hold.

    Returns:
      plans, their number; rank_correlation, Spearman's, of predicted and measured errors; met,
      the share of plans within their target; met_less_margin, within a target lower by the
      fit's margin; bias and rmse, mean and root mean square of measured less predicted errors;
      rings, rings_met and rings_bias, the same of the plans on rings; NaN where there are none;
      noise, root mean square standard error of the measured ones; slower, measured over
      predicted time, less 1, on average; largest_time_deviation, the largest of these.
    """
    plans = loop.plans[loop.plans["graph"] == "chosen"]
    rings = loop.plans[loop.plans["graph"] == "ring"]
    off = plans["measured_error"] - plans["predicted_error"]
    slower = plans["measured_time"] / plans["predicted_time"] - 1
    return {
        "plans": len(plans),
        "rank_correlation": float(
            plans["predicted_error"].corr(plans["measured_error"], method="spearman")
        ),
        "met": float((plans["measured_error"] <= plans["eps_max"]).mean()),
        "met_less_margin": float(
            (plans["measured_error"] <= plans["eps_max"] - loop.fit.margin).mean()
        ),
        "bias": float(off.mean()),
        "rmse": float(np.sqrt((off**2).mean())),
        "noise": float(np.sqrt((plans["measured_error_se"] ** 2).mean())),
        "rings": len(rings),
        "rings_met": float((rings["measured_error"] <= rings["eps_max"]).mean()),
        "rings_bias": float((rings["measured_error"] - rings["predicted_error"]).mean()),
        "slower": float(slower.mean()),
        "largest_time_deviation": float(slower.abs().max()),
    }


def sentence(loop: Loop) -> str:
    """What was found, in words, from the numbers."""
    s = summary(loop)
    verdict = "as meant" if s["met"] >= 0.9 else "short of 90%"
    side = "above" if s["bias"] > 0 else "below"
    rings = ""
    if s["rings"]:
        rings = (
            f" On a ring, for the epochs that the model then asks for, {s['rings_met']:.0%} of "
            f"{s['rings']:.0f} plans meet their target; measured less predicted error is "
            f"{s['rings_bias']:+.3f} on average."
        )
    return (
        f"{loop.task}: {s['plans']:.0f} plans trained; predicted and measured error have rank "
        f"correlation {s['rank_correlation']:.2f}; {s['met']:.0%} of the plans meet their target "
        f"({verdict}), {s['met_less_margin']:.0%} also one that is lower by the fit's margin of "
        f"{loop.fit.margin:.3f}. Measured errors lie {abs(s['bias']):.3f} {side} the predicted "
        f"ones on average, {s['rmse']:.3f} off (root mean square; noise of the seeds "
        f"{s['noise']:.3f}, held-out error of the fit {loop.fit.held_out_rmse:.3f}, spread of the "
        f"grid {loop.fit.spread:.3f}). Training takes {1 + s['slower']:.3f} times the predicted "
        f"time, {s['largest_time_deviation']:.1%} off at most.{rings}"
    )


def predicted_and_measured(loop: Loop) -> Figure:
    """Error and time of every plan, measured against predicted, with 2 standard errors.

    Args:
      loop: from ``loop.close_loop``.

    Returns:
      The figure; ``figure.axes`` are its two panels.
    """
    figure = NotebookFigure(figsize=(9.2, 4.0), layout="constrained")
    error, time = figure.subplots(1, 2)
    plans, numbers = loop.plans, summary(loop)
    met, ring = plans["measured_error"] <= plans["eps_max"], plans["graph"] == "ring"
    for some, marker, word in ((~ring, "o", ""), (ring, "^", "on a ring, ")):
        for rows, colour, label in ((met, MET, "target met"), (~met, MISSED, "target missed")):
            if (rows & some).any():
                style = {"color": colour, "label": word + label, "fmt": marker}
                _points(error, plans[rows & some], "error", **style)
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
    correlation = numbers["rank_correlation"]
    error.set_title(f"rank correlation {correlation:.2f}, {numbers['met']:.0%} met", fontsize=9)
    _points(time, plans, "time", color=MET, fmt="o")
    time.set(xscale="log", yscale="log")
    plain_ticks(time.xaxis)
    plain_ticks(time.yaxis)
    time.set_xlabel("predicted time, s", fontsize=10)
    time.set_ylabel("measured time, s", fontsize=10)
    time.set_title(f"measured / predicted {1 + numbers['slower']:.3f} on average", fontsize=9)
    for axes in (error, time):
        ends = np.array(axes.get_xlim())
        axes.plot(ends, ends, color="0.3", lw=1, ls="--", label="as predicted", zorder=0)
        axes.set_xlim(ends)
        axes.grid(alpha=0.25)
    error.legend(frameon=False, fontsize=9, loc="upper left")
    figure.suptitle(
        f"{(~ring).sum()} plans chosen by DoubleClimb for {loop.task}, trained "
        "(bars: 2 standard errors over seeds)",
        fontsize=10,
    )
    return figure


def _points(axes: Axes, plans: Any, name: str, **style: Any) -> None:
    axes.errorbar(
        plans[f"predicted_{name}"],
        plans[f"measured_{name}"],
        2 * plans[f"measured_{name}_se"],
        ms=4.5,
        lw=1,
        **style,
    )


def save(loop: Loop, directory: str | os.PathLike[str]) -> None:
    """Writes the fit and the summary, both tables and the figure, named by the task."""
    directory = Path(directory)
    numbers = {
        "task": loop.task,
        "constants": loop.fit.constants._asdict(),
        "standard_errors": loop.fit.standard_errors._asdict(),
        **{name: getattr(loop.fit, name) for name in ("rmse", "held_out_rmse", "margin", "spread")},
        "summary": summary(loop),
        "infeasible": loop.infeasible,
        "sentence": sentence(loop),
    }
    # JSON knows no NaN, which the error of a constant on its bound is.
    text = json.dumps(_finite(numbers), indent=1, allow_nan=False)
    with replacing(directory / f"{loop.task}.json") as path:
        path.write_text(text)
    for name, table in (("plans", loop.plans), ("grid", loop.grid)):
        with replacing(directory / f"{loop.task}_{name}.csv") as path:
            table.to_csv(path, index=False)
    save_figures({f"{loop.task}.png": predicted_and_measured(loop)}, directory / "figures")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
