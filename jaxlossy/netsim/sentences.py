"""What the numbers of a case study say, in words: pure functions of tables."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxlossy.claims import HOLDS
from jaxlossy.netsim.case_study import LEARNING
from jaxlossy.netsim.gains import FASTER, LOSS, PARTS
from jaxlossy.netsim.playback import CHANNELS
from jaxlossy.summaries import Frame

QUEUE = {False: "one FIFO", True: "strict priority"}
BASELINE = {
    "reliable": "reliable learning",
    "paced_reliable": "paced reliable learning",
    "no_preference": "lossy learning without preference",
}


def setting(learning: str, priority: bool, threshold: int, rate: float) -> str:
    """What a case and web rate are called."""
    return (
        f"{LEARNING[learning]} learning, {QUEUE[priority]} with a threshold of "
        f"{threshold / 1000:g} kB, {rate:g} web messages a second"
    )


def _interval(row: Any, digits: int = 2) -> str:
    return f"95% interval {row['low']:.{digits}f} to {row['high']:.{digits}f}, {row['seeds']} seeds"


def claim(row: Any) -> str:
    """One row of ``gains.claims``."""
    where = (
        f"{LEARNING[row['learning']]} learning in {QUEUE[row['priority']]} beside "
        f"{row['web_rate']:g} web messages a second"
    )
    what = {"mean": "mean completion time", "p99": "99th percentile"}[row["statistic"]]
    if np.isnan(row["mean"]):
        return (
            f"With {where}, no seed-by-seed {LOSS:.0%} loss is to be had: it is "
            f"{row['least_loss']:.1%} to {row['most_loss']:.1%}."
        )
    return (
        f"With {where}, {LOSS:.0%} loss makes the web's {what} {row['mean']:.2f} times shorter "
        f"than beside {BASELINE[row['baseline']]} ({_interval(row)}): more than "
        f"{FASTER.low:g} times {row['verdict']}."
    )


def parts(table: Frame, row: Any) -> str:
    """The rows of ``gains.parts`` that have the rate, ports and statistic of this one."""
    chosen = table[
        (table["web_rate"] == row["web_rate"])
        & (table["priority"] == row["priority"])
        & (table["statistic"] == row["statistic"])
    ].set_index("part")
    if np.isnan(chosen.loc["all", "mean"]):
        return (
            f"At {row['web_rate']:g} web messages a second in {QUEUE[row['priority']]}, no "
            f"threshold gives {LOSS:.0%} loss in every seed."
        )
    texts = {
        "pacing": "pacing alone gives a factor of",
        "priority": "priority on top of it",
        "no acknowledgments": "sending once and without acknowledgments",
        "loss": "loss itself",
    }
    found = [
        f"{texts[name]} {chosen.loc[name, 'mean']:.2f}{_share(chosen.loc[name, 'share'])}"
        for name in PARTS[bool(row["priority"])]
    ]
    more = ""
    if row["priority"]:
        alone = chosen.loc["priority without pacing", "mean"]
        more = f" Priority without pacing, and without loss, gives {alone:.2f}."
    return (
        f"At {row['web_rate']:g} web messages a second in {QUEUE[row['priority']]}, the web's "
        f"{row['statistic']} is {chosen.loc['all', 'mean']:.2f} times shorter beside paced lossy "
        f"learning that loses {LOSS:.0%} than beside reliable learning: {', '.join(found[:-1])}, "
        f"and {found[-1]} (in brackets: of the whole, in logarithms).{more}"
    )


def _share(share: float) -> str:
    return "" if np.isnan(share) else f" ({round(share, 2) + 0.0:.0%})"


def capacity(row: Any) -> str:
    """One row of ``capacity.capacities``; nothing where it is not known."""
    if np.isnan(row["fits"]):
        return ""
    name = LEARNING[row["learning"]]
    if row["learning"] != "none":
        name += f" learning in {QUEUE[row['priority']]}"
    if row["learning"] == "paced":
        name += f" above {row['threshold'] / 1000:g} kB ({row['loss']:.1%} lost there)"
    text = f"Under a mean of {row['target_ms']:g} ms fit {row['fits']:.0f} web messages a second "
    text += f"with {name}"
    for base in ("reliable", "paced_reliable"):
        extra, low, high = (row[f"{base}_{key}"] for key in ("mean", "low", "high"))
        if np.isfinite(extra) and extra:
            text += f", {extra:+.0f} against the {row[f'{base}_fits']:.0f} with {BASELINE[base]} "
            text += f"(95% interval {low:.0f} to {high:.0f})"
    return text + "."


def iteration(row: Any) -> str:
    """One row of ``gains.iteration_gains``."""
    where = f"In {QUEUE[row['priority']]} beside {row['web_rate']:g} web messages a second"
    if np.isnan(row["mean"]):
        return f"{where}, no threshold gives {LOSS:.0%} loss in every seed."
    return (
        f"{where}, an iteration of paced learning takes {row['reliable_ms']:.1f} ms if reliable "
        f"and {row['lossy_ms']:.1f} ms with {LOSS:.0%} loss: {row['mean']:.2f} times shorter "
        f"({_interval(row)})."
    )


def bound(row: Any) -> str:
    """One row of ``gains.bounds``."""
    return (
        f"With {LEARNING[row['learning']]} in {QUEUE[row['priority']]} above "
        f"{row['threshold'] / 1000:g} kB beside {row['web_rate']:g} web messages a second, a "
        f"message lacks at most {row['largest_loss']:.1%}, an iteration takes "
        f"{row['iteration_ms']:.0f} ms, and the web's p99 is {row['mean']:.2f} times that beside "
        f"paced reliable learning ({_interval(row)}): within 1.5 times {row['verdict']}."
    )


#: By table, the sentence of a row.
MAKERS: dict[str, Callable[[Any], str]] = {
    "claim": claim,
    "capacity": capacity,
    "iteration": iteration,
    "bounded loss": bound,
}


def accuracies(table: Frame) -> Iterator[str]:
    """What played-back losses do to accuracy, beyond independent losses of the same rate."""
    rows = table[table["channel"].isin(["recorded", "bursts"])]
    for row in rows.to_dict("records"):
        where = setting(*(row[n] for n in ("learning", "priority", "threshold", "web_rate")))
        tells = "can not be told apart from" if row["low"] <= 0 <= row["high"] else "differs from"
        yield (
            f"{row['aggregation'].replace('_', ' ')}, {where}: {CHANNELS[row['channel']]} "
            f"({row['lost']:.1%} lost) reaches {100 * row['accuracy']:.1f}%, "
            f"{100 * row['mean']:+.2f} points beyond independent losses (95% interval "
            f"{100 * row['low']:.2f} to {100 * row['high']:.2f}); it {tells} them."
        )


def summary(tables: dict[str, Frame]) -> Iterator[str]:
    """The report in short, from the tables of ``report.write``."""
    claims, of_parts, steps = (tables[n] for n in ("claim", "part", "step of a curve"))
    bounds = tables["bounded loss"]
    mean = claims[(claims["statistic"] == "mean") & (claims["web"] == "dctcp")]
    for base, rows in mean.groupby("baseline", sort=False):
        holds = rows[rows["verdict"] == HOLDS]
        others = rows[rows["verdict"] != HOLDS]
        text = (
            f'Against {BASELINE[str(base)]}, "{FASTER.text}" holds in {len(holds)} of {len(rows)}'
        )
        text += " settings"
        if len(holds) and len(others):
            text += f": {_settings(holds)}. Not for {_settings(others, verdicts=True)}"
        elif len(others):
            text += f": {_settings(others, verdicts=True)}"
        yield text + "."
    whole = of_parts[(of_parts["part"] == "all") & (of_parts["statistic"] == "mean")]
    for row in whole.to_dict("records"):
        yield parts(of_parts, row)
    falls = steps[steps["falls"]]
    text = f"Curves of speed-up against loss are monotone within error bars in {len(steps)} steps"
    rises = f"; {(steps['low'] > 1).sum()} rise beyond their error"
    if len(falls):
        where = "; ".join(
            f"{LEARNING[row['learning']]} learning ({row['web']}), {QUEUE[row['priority']]}, "
            f"{row['web_rate']:g} web messages a second, from {row['threshold'] / 1000:g} to "
            f"{row['next_threshold'] / 1000:g} kB: {row['mean']:.3f} times"
            for row in falls.to_dict("records")
        )
        text = (
            f"Curves of speed-up against loss rise or stay within error bars in "
            f"{len(steps) - len(falls)} of {len(steps)} steps, and fall in {len(falls)}: {where}"
        )
    yield text + rises + "."
    yield from (iteration(row) for row in tables["iteration"].query("priority").to_dict("records"))
    controlled = bounds[bounds["learning"] == "bounded_controlled"]
    inside = (controlled["verdict"] == HOLDS).sum()
    yield (
        f"Bounded loss: no message ever lacks more than {bounds['largest_loss'].max():.1%}; with "
        f"rate control the web's p99 is at most {controlled['mean'].max():.2f} times that beside "
        f"paced reliable learning (within 1.5 times holds in {inside} of {len(controlled)} "
        "settings)."
    )


def _settings(rows: Frame, *, verdicts: bool = False) -> str:
    """Which ones, grouped by transport and ports."""
    texts = []
    for (learning, priority), part in rows.groupby(["learning", "priority"], sort=False):
        rates = [
            f"{row['web_rate']:g}" + (f" ({row['mean']:.2f}: {_outcome(row)})" if verdicts else "")
            for row in part.to_dict("records")
        ]
        texts.append(f"{LEARNING[str(learning)]} in {QUEUE[bool(priority)]} at {', '.join(rates)}")
    return "; ".join(texts)


def _outcome(row: Any) -> str:
    return "not reached" if np.isnan(row["mean"]) else row["verdict"]
