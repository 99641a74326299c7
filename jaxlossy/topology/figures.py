"""Figures of topology problems: costs, ratios to the optimum, what is chosen, and a plan drawn."""

import os
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxlossy.figures import save_figures
from jaxlossy.panels import legend, panels_of, plain_ticks
from jaxlossy.topology.model import Plan, Problem

Frame = Any  # a pandas data frame, whose types pandas does not give
# Name, colour, marker and line of each algorithm, the ones that matter most on top.
STYLES = {
    "optimum": ("optimum", "black", "", "-"),
    "milp": ("MILP", "0.4", "", ":"),
    "refined": ("DoubleClimb, refined", "tab:red", "o", "-"),
    "plain": ("DoubleClimb, plain", "tab:orange", "s", "-"),
    "genetic": ("genetic", "tab:green", "^", "--"),
    "uniform": ("best uniform", "tab:blue", "D", "--"),
    "cheapest_first": ("cheapest first", "tab:purple", "v", "--"),
    "random": ("best of 1,000 random", "tab:brown", "x", "--"),
    "all_on": ("everything on", "0.6", "+", "--"),
}
CONSTRAINTS = {
    "eps_max": "largest error allowed, $\\epsilon_{max}$",
    "T_max": "longest time allowed, $T_{max}$ (s)",
}


def costs(sweeps: Frame) -> Figure:
    """Cost of each algorithm's plan against both constraints; no point where it found none.

    Args:
      sweeps: from ``study``.
    """
    figure, panels = panels_of("Cost of a plan, as constraints are relaxed", 2)
    for axes, constraint in zip(panels, CONSTRAINTS, strict=True):
        rows = sweeps[sweeps["constraint"] == constraint]
        for algorithm in reversed(_present(sweeps)):
            _line(axes, rows[rows["algorithm"] == algorithm], "cost", algorithm)
        axes.set(yscale="log", xlabel=CONSTRAINTS[constraint])
        plain_ticks(axes.yaxis)
    panels[0].set_ylabel("cost")
    legend(figure, _handles(_present(sweeps)))
    return figure


def ratios(table: Frame) -> Figure:
    """Cost over the optimal cost, a point for each network, and each algorithm's mean.

    Args:
      table: from ``study``.
    """
    names = [name for name in _present(table) if name != "optimum"]
    networks = table["name"].nunique()
    figure, (axes,) = panels_of(f"Cost over the optimum, {networks} networks", 1, width=6.0)
    for place, algorithm in enumerate(names):
        values = table.loc[table["algorithm"] == algorithm, "ratio"].dropna().to_numpy()
        label, colour, _, _ = STYLES[algorithm]
        spread = np.linspace(-0.25, 0.25, len(values)) if len(values) > 1 else [0.0]
        axes.scatter(place + np.array(spread)[: len(values)], values, 14, color=colour, alpha=0.7)
        if len(values):
            axes.plot([place - 0.35, place + 0.35], [values.mean()] * 2, color=colour, lw=2)
        missing = networks - len(values)
        note = f"\n({missing} without a plan)" if missing else ""
        mean = f"\nmean {values.mean():.3f}" if len(values) else ""
        names[place] = label.replace(", ", ",\n").replace(" of ", " of\n") + mean + note
    axes.set_yscale("log")
    plain_ticks(axes.yaxis)
    axes.axhline(1, color="black", lw=1)
    axes.set_xticks(range(len(names)), names, fontsize=7.5)
    axes.set_ylabel("cost / optimal cost")
    return figure


def chosen(sweeps: Frame) -> Figure:
    """Active L-nodes, their mean degree, active I-nodes and epochs against both constraints.

    Args:
      sweeps: from ``study``; only DoubleClimb and the optimum are drawn.
    """
    names = [name for name in _present(sweeps) if name in ("optimum", "refined", "plain")]
    figure, panels = panels_of(
        "What plans consist of, as constraints are relaxed", 4, rows=2, width=2.6, height=2.5
    )
    table = sweeps.astype({n: float for n in ("learning", "links", "information", "epochs")})
    table["degree"] = 2 * table["links"] / table["learning"]
    labels = {
        "learning": "active L-nodes",
        "degree": "mean degree",
        "information": "active I-nodes",
        "epochs": "epochs, K",
    }
    for index, (constraint, column) in enumerate((c, n) for c in CONSTRAINTS for n in labels):
        axes = panels[index]
        rows = table[table["constraint"] == constraint]
        for algorithm in reversed(names):
            _line(axes, rows[rows["algorithm"] == algorithm], column, algorithm)
        axes.set_title(labels[column], fontsize=9)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5, integer=column != "degree"))
        axes.set_xlabel(CONSTRAINTS[constraint], fontsize=8)
    legend(figure, _handles(names))
    return figure


def topology(problem: Problem, positions: Float[np.ndarray, "node 2"], plan: Plan | None) -> Figure:
    """A plan drawn on its nodes.

    Args:
      problem: the problem.
      positions: of L-nodes, then I-nodes.
      plan: evaluated; None: only the nodes.
    """
    figure, (axes,) = panels_of("", 1, width=5.0, height=4.4)
    learning, information = positions[: problem.learning], positions[problem.learning :]
    axes.scatter(*information.T, 16, color="0.75", marker="s")
    axes.scatter(*learning.T, 40, color="0.75")
    title = "No plan"
    if plan is not None:
        for a, b in plan.edges:
            axes.plot(*learning[[a, b]].T, color="tab:red", lw=1.2, alpha=0.7, zorder=2)
        for source, node in zip(plan.information_nodes, plan.attached_to or (), strict=True):
            ends = np.array([information[source], learning[node]])
            axes.plot(*ends.T, color="tab:blue", lw=0.9, ls=":", zorder=1)
        active = information[list(plan.information_nodes)]
        axes.scatter(*active.T, 22, color="tab:blue", marker="s", zorder=3)
        axes.scatter(*learning[list(plan.learning_nodes)].T, 60, color="tab:red", zorder=4)
        title = (
            f"{plan.epochs} epochs, cost {plan.cost:.4g}, "
            f"error {plan.error:.3g} (at most {problem.eps_max:.3g}), "
            f"{plan.time:.3g} s (at most {problem.T_max:.3g})"
        )
    figure.suptitle(title, fontsize=9)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("position, x", fontsize=9)
    axes.set_ylabel("position, y", fontsize=9)

    def dot(marker, colour, size, label):
        return Line2D([], [], ls="", marker=marker, color=colour, ms=size, label=label)

    handles = [
        dot("o", "tab:red", 7, "active L-node"),
        dot("o", "0.75", 6, "other L-node"),
        dot("s", "tab:blue", 5, "active I-node"),
        dot("s", "0.75", 4, "other I-node"),
        Line2D([], [], color="tab:red", lw=1.2, label="link of L-nodes"),
        Line2D([], [], color="tab:blue", lw=0.9, ls=":", label="samples to an L-node"),
    ]
    legend(figure, handles)
    return figure


def save_all(result: Any, directory: str | os.PathLike[str]) -> list[Path]:
    """Writes the figures of a study as PNG files.

    Args:
      result: from ``study``.
      directory: where to write; made if it does not exist.

    Returns:
      The paths of the files written.
    """
    figures = {
        "costs.png": costs(result.sweeps),
        "ratios.png": ratios(result.ratios),
        "chosen.png": chosen(result.sweeps),
        "topology.png": topology(result.problem, result.positions, result.plan),
    }
    return save_figures(figures, directory)


def _present(table: Frame) -> list[str]:
    return [name for name in STYLES if (table["algorithm"] == name).any()]


def _style(algorithm: str) -> dict[str, Any]:
    """How lines look; the optimum is a band beneath those that reach it."""
    _, colour, marker, line = STYLES[algorithm]
    style = {"color": colour, "marker": marker, "ls": line, "lw": 1.2, "ms": 4}
    return style | ({"lw": 6, "alpha": 0.25, "zorder": 1} if algorithm == "optimum" else {})


def _line(axes: Axes, rows: Frame, column: str, algorithm: str) -> None:
    rows = rows.sort_values("value")
    axes.plot(rows["value"], rows[column], **_style(algorithm))


def _handles(names: list[str]) -> list[Line2D]:
    return [Line2D([], [], label=STYLES[name][0], **_style(name)) for name in names]
