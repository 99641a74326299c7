"""Figures of a case study: what the web service gains, how much fits, how long iterations take."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxlossy.figures import MARKERS
from jaxlossy.netsim.case_study import LEARNING, RELIABLE, Case
from jaxlossy.netsim.gains import FASTER, LOSS, STATISTICS, Results
from jaxlossy.netsim.playback import CHANNELS
from jaxlossy.panels import legend, palette, panels_of
from jaxlossy.summaries import Frame

QUEUES = {False: ("-", "o", "one FIFO"), True: ("--", "s", "strict priority")}


def speed_ups(table: Frame, web: str, learning: str) -> Figure:
    """Speed-up of the web service against the share of packets that learning was seen to lose.

    Args:
      table: from ``gains.speed_ups``.
      web, learning: how they are sent.

    Returns:
      The figure: a row for mean and p99, a column for each baseline; one line per web rate and
      queue, through its degrees of prioritisation. Bars are 95% intervals over seeds.
    """
    rows = table[(table["web"] == web) & (table["learning"] == learning)]
    bases = [name for name in RELIABLE if name in set(rows["baseline"])]
    figure, panels = panels_of(
        f"The web service beside {LEARNING[learning]} learning, transport {web}",
        len(bases),
        rows=len(STATISTICS),
        width=3.9 if len(bases) > 1 else 4.6,
        height=2.9,
        sharex=True,
    )
    rates = sorted(set(rows["web_rate"]))
    colours = dict(zip(rates, palette("viridis", len(rates)), strict=True))
    cells = [(statistic, base) for statistic in STATISTICS for base in bases]
    for axes, (statistic, base) in zip(panels, cells, strict=True):
        axes.set_title(f"{statistic}, against {LEARNING[base]} learning", fontsize=9)
        of_panel = rows[(rows["statistic"] == statistic) & (rows["baseline"] == base)]
        for (rate, priority), line in of_panel.groupby(["web_rate", "priority"]):
            style, marker, _ = QUEUES[bool(priority)]
            line = line.sort_values("loss")
            _errorbar(axes, line, ls=style, fmt=marker, color=colours[rate])
        axes.axhline(FASTER.low, color="0.4", ls=":", lw=1)
        axes.axhline(1, color="0.3", lw=0.8)
        axes.axvline(100 * LOSS, color="0.4", ls=":", lw=1)
        axes.set_ylabel("times faster", fontsize=9)
    figure.supxlabel("measured loss of learning packets, %", fontsize=10)
    handles = [Line2D([], [], color=colours[rate], label=f"{rate:g}") for rate in rates]
    handles += [
        Line2D([], [], color="0.3", ls=style, marker=marker, ms=4, label=text)
        for style, marker, text in QUEUES.values()
    ]
    handles.append(Line2D([], [], color="0.4", ls=":", label=f"{FASTER.low:g} times, {LOSS:.0%}"))
    legend(figure, handles, "web messages a second")
    return figure


def capacities(table: Frame) -> Figure:
    """How many more web messages fit under a target, against the loss of learning there.

    Args:
      table: from ``capacity.capacities``.

    Returns:
      The figure: a panel for each target. Lines are paced lossy learning, single points learning
      that loses nothing, and the line across is no learning at all.
    """
    targets = sorted(set(table["target_ms"]))
    figure, panels = panels_of(
        "Web load that fits under a target", len(targets), width=3.1, height=3.2
    )
    for axes, target in zip(panels, targets, strict=True):
        rows = table[table["target_ms"] == target].dropna(subset="reliable_mean")
        axes.set_title(f"mean completion time {target:g} ms", fontsize=9)
        extra = rows.assign(
            **{key: rows[f"reliable_{key}"] for key in ("mean", "low", "high")}, loss_error=0.0
        )
        for priority, (style, marker, _) in QUEUES.items():
            line = extra[(extra["learning"] == "paced") & (extra["priority"] == priority)]
            colour = "C3" if priority else "C0"
            _errorbar(axes, line.sort_values("loss"), ls=style, fmt=marker, color=colour)
        for (name, priority), (marker, colour) in _SINGLE.items():
            point = extra[(extra["learning"] == name) & (extra["priority"] == priority)]
            _errorbar(axes, point.assign(loss=0.0), ls="", fmt=marker, color=colour)
        for value in extra.loc[extra["learning"] == "none", "mean"]:
            axes.axhline(value, color="0.3", ls="-.", lw=1)
        axes.axhline(0, color="0.3", lw=0.8)
        axes.axvline(100 * LOSS, color="0.4", ls=":", lw=1)
    panels[0].set_ylabel("further web messages a second\nthan beside reliable learning", fontsize=9)
    figure.supxlabel("measured loss of learning packets there, %", fontsize=10)
    handles = [
        Line2D([], [], color="C3" if priority else "C0", ls=style, marker=marker, ms=4,
               label=f"paced lossy, {text}")
        for priority, (style, marker, text) in QUEUES.items()
    ]  # fmt: skip
    handles += _single_handles()
    handles.append(Line2D([], [], color="0.3", ls="-.", label="no learning traffic"))
    legend(figure, handles, "95% intervals over seeds")
    return figure


#: Learning that loses nothing, as points.
_SINGLE = {
    ("paced_reliable", False): ("D", "C2"),
    ("reliable", True): ("^", "C4"),
    ("paced_reliable", True): ("v", "C5"),
}


def _single_handles() -> list[Any]:
    return [
        Line2D([], [], ls="", color=colour, marker=marker, ms=5,
               label=f"{LEARNING[name]}, {QUEUES[priority][2]}")
        for (name, priority), (marker, colour) in _SINGLE.items()
    ]  # fmt: skip


def iterations(r: Results) -> Figure:
    """How long an iteration takes against what it loses, for every transport.

    Args:
      r: results of the study.

    Returns:
      The figure: a panel for each web rate; means and standard errors over seeds, of the mean
      iteration of a run; computing included.
    """
    rates = r.rates()
    figure, panels = panels_of(
        "Time of an iteration (computing and both phases), open loop",
        len(rates),
        width=3.2,
        height=3.4,
    )
    names = [name for name in LEARNING if name != "none"]
    for axes, rate in zip(panels, rates, strict=True):
        axes.set_title(f"{rate:g} web messages a second", fontsize=9)
        for number, name in enumerate(names):
            for priority, (style, _, _) in QUEUES.items():
                curve = r.curve("dctcp", name, priority, rate)
                if not curve:
                    continue
                loss, time = (
                    pd.DataFrame([r.get(case, rate, key) for case in curve])
                    for key in ("learning_loss", "iteration_ms")
                )
                axes.errorbar(
                    100 * loss.mean(axis=1),
                    time.mean(axis=1),
                    time.sem(axis=1),
                    ls=style,
                    color=f"C{number}",
                    marker=MARKERS[number],
                    mfc="none" if priority else None,
                    ms=4.5,
                    lw=1.1,
                )
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        ticks = [t for t in (5, 10, 20, 30, 50, 70, 100, 200, 500, 1000) if low <= t <= high]
        axes.set_yticks(ticks, [str(t) for t in ticks])
        axes.set_yticks([], minor=True)
    panels[0].set_ylabel("ms", fontsize=9)
    figure.supxlabel("measured loss of learning packets, %", fontsize=10)
    handles = [
        Line2D([], [], color=f"C{i}", marker=MARKERS[i], ms=4.5, label=LEARNING[name])
        for i, name in enumerate(names)
    ]
    handles += [
        Line2D([], [], color="0.3", ls=style, marker="o", mfc="none" if priority else None,
               ms=4.5, label=text)
        for priority, (style, _, text) in QUEUES.items()
    ]  # fmt: skip
    legend(figure, handles, "learning is sent")
    return figure


def accuracies(table: Frame) -> Figure:
    """Final accuracy of training on recorded losses, and on channels fitted to them.

    Args:
      table: from ``playback.compare``.

    Returns:
      The figure: a panel for each recording, standard errors over seeds.
    """
    recordings = list(table.groupby([*Case._fields, "web_rate"], sort=False))
    figure, panels = panels_of(
        "Training on what the network lost", len(recordings), width=3.0, height=3.2, sharey=True
    )
    rules = list(dict.fromkeys(table["aggregation"]))
    for axes, (key, rows) in zip(panels, recordings, strict=True):
        _, learning, priority, threshold, rate = key
        axes.set_title(
            f"{LEARNING[learning]}, {QUEUES[priority][2]} at {threshold / 1000:g} kB,\n"
            f"{rate:g} web messages a second",
            fontsize=8,
        )
        for i, rule in enumerate(rules):
            line = rows[rows["aggregation"] == rule].set_index("channel").loc[list(CHANNELS)]
            x = np.arange(len(CHANNELS)) + 0.14 * (i - (len(rules) - 1) / 2)
            axes.errorbar(x, 100 * line["accuracy"], 100 * line["accuracy_error"], fmt=MARKERS[i],
                          color=f"C{3 * i}", ms=5)  # fmt: skip
        lost = rows.set_index("channel")["lost"].groupby(level=0).mean()
        labels = [f"{text.replace(' (', chr(10) + '(')}\n{lost[name]:.1%} lost" if lost[name] else
                  text for name, text in CHANNELS.items()]  # fmt: skip
        axes.set_xticks(range(len(CHANNELS)), labels, fontsize=7, rotation=30, ha="right")
    panels[0].set_ylabel("final test accuracy\nof the mean model, %", fontsize=9)
    handles = [
        Line2D([], [], ls="", color=f"C{3 * i}", marker=MARKERS[i], label=rule.replace("_", " "))
        for i, rule in enumerate(rules)
    ]
    legend(figure, handles, "mean and standard\nerror over seeds")
    return figure


def _errorbar(axes: Any, line: Frame, *, fmt: str, ls: str, color: Any) -> None:
    low, high = (line["mean"] - line["low"]), (line["high"] - line["mean"])
    bars = np.where(np.isfinite([low, high]), [low, high], 0)
    sideways = 100 * line["loss_error"].fillna(0)
    axes.errorbar(100 * line["loss"].fillna(0), line["mean"], bars, sideways, fmt=fmt, ls=ls,
                  color=color, ms=4, lw=1.2, elinewidth=0.8)  # fmt: skip
