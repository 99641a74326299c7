"""What a web service gains where learning may lose packets, and what of it comes from what.

Everything is estimated over seeds. A seed has the same web messages in every case, so that ratios
are paired and vary far less than completion times themselves.
"""

import itertools
import json
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from jaxlossy.claims import Claim, Estimate, as_columns, ratio, verdict
from jaxlossy.netsim.case_study import RELIABLE, Case
from jaxlossy.summaries import Frame

LOSS = 0.1  # of learning's packets, that the paper's claim is about
FASTER = Claim("10% loss makes the web service more than 1.2 times faster", 1.2, math.inf)
BOUNDED = Claim("the web's p99 stays within 1.5 times that beside paced reliable", -math.inf, 1.5)
#: Completion times of the web service.
STATISTICS = {"mean": "web_mean_ms", "p99": "web_p99_ms"}
LOSSY = ("paced", "burst")


class Results(NamedTuple):
    """Runs by (case, web_rate), each a Frame of measures by seed; and the study as a mapping."""

    by_case: dict[tuple[Case, float], Frame]
    study: dict[str, Any]

    @property
    def limit(self) -> int:
        """Bytes in a queue; as a threshold it is no preference."""
        return self.study["limit"]

    def get(self, case: Case, web_rate: float, measure: str) -> np.ndarray:
        """One value a seed."""
        return self.by_case[case, web_rate][measure].to_numpy()

    def curve(self, web: str, learning: str, priority: bool, web_rate: float) -> list[Case]:
        """Cases that differ in their threshold, in the order of their loss."""
        found = [
            case
            for case, rate in self.by_case
            if rate == web_rate and case[:3] == (web, learning, priority)
        ]
        return sorted(found, key=lambda case: self.get(case, web_rate, "learning_loss").mean())

    def rates(self, more: bool = False) -> list[float]:
        """Web messages a second that all cases have; or those that a few have, too."""
        rates = self.study["web_rates"] + (self.study["more_web_rates"] if more else [])
        return sorted(map(float, rates))


def results(ds: xr.Dataset) -> Results:
    """Results of ``study_runs.run``, by case.

    Raises:
      ValueError: runs that are not completed.
    """
    if not ds["completed"].all():
        raise ValueError(f"{int((~ds['completed']).sum())} runs are not completed")
    runs = ds.reset_coords().to_dataframe()
    groups: Any = runs.groupby([*Case._fields, "web_rate"])
    by_case = {}
    for (web, learning, priority, threshold, rate), rows in groups:
        case = Case(str(web), str(learning), bool(priority), int(threshold))
        by_case[case, float(rate)] = rows.set_index("seed").sort_index()
    return Results(by_case, json.loads(ds.attrs["study"]))


def baseline(r: Results, web: str, learning: str) -> Case:
    """Learning that loses nothing, in one FIFO."""
    return Case(web, learning, False, r.limit)


def speed_ups(r: Results) -> Frame:
    """How many times faster the web service is than beside reliable learning.

    Returns:
      A row for each case, web_rate, baseline and statistic ('mean' or 'p99' of completion times):
      these, loss and loss_error (standard error over seeds), and the estimate.
    """
    rows = []
    for (case, rate), runs in r.by_case.items():
        if rate not in r.rates():
            continue
        loss = runs["learning_loss"]
        for name, (statistic, column) in itertools.product(RELIABLE, STATISTICS.items()):
            base = baseline(r, case.web, name)
            if (base, rate) not in r.by_case or base == case:
                continue
            faster = ratio(r.get(base, rate, column), runs[column])
            row = {**case._asdict(), "web_rate": rate, "baseline": name, "statistic": statistic}
            row |= {"loss": loss.mean(), "loss_error": loss.sem(), **as_columns(faster)}
            rows.append(row)
    return pd.DataFrame(rows)


def at_loss(r: Results, curve: list[Case], web_rate: float, measure: str) -> np.ndarray:
    """A measure where learning loses `LOSS`, between two thresholds, one value a seed.

    NaN for seeds in which no threshold loses more, or none less.
    """
    loss = np.array([r.get(case, web_rate, "learning_loss") for case in curve])
    values = np.array([r.get(case, web_rate, measure) for case in curve])
    found = []
    for x, y in zip(loss.T, values.T, strict=True):
        order = np.argsort(x, kind="stable")
        found.append(np.interp(LOSS, x[order], y[order], left=math.nan, right=math.nan))
    return np.array(found)


def claims(r: Results) -> Frame:
    """Whether 10% loss gives more than 1.2x, for every rate, lossy transport, queue and baseline.

    Baselines are both kinds of reliable learning, and the same lossy transport without preference
    ('no_preference'), in the same FIFO.

    Returns:
      A row each: web, learning, priority, web_rate, baseline, statistic, least_loss and most_loss
      of the curve, the estimate, claim and verdict.
    """
    rows = []
    for web, learning, priority, rate in _curves(r):
        curve = r.curve(web, learning, priority, rate)
        losses = [r.get(case, rate, "learning_loss").mean() for case in curve]
        bases = {name: baseline(r, web, name) for name in RELIABLE}
        bases["no_preference"] = Case(web, learning, False, r.limit)
        for (name, base), (statistic, column) in itertools.product(
            bases.items(), STATISTICS.items()
        ):
            if (base, rate) not in r.by_case:
                continue
            faster = ratio(r.get(base, rate, column), at_loss(r, curve, rate, column))
            row = {"web": web, "learning": learning, "priority": priority, "web_rate": rate}
            row |= {"baseline": name, "statistic": statistic}
            row |= {"least_loss": min(losses), "most_loss": max(losses), **as_columns(faster)}
            rows.append(row | {"claim": FASTER.text, "verdict": verdict(faster, FASTER)})
    return pd.DataFrame(rows)


#: What a speed-up is made of, step by step; each but the last names a case.
PARTS = {
    False: ("pacing", "no acknowledgments", "loss"),
    True: ("pacing", "priority", "no acknowledgments", "loss"),
}


def parts(r: Results) -> Frame:
    """The speed-up at 10% loss against reliable learning, as a product of steps.

    From reliable learning to paced reliable, then, with priority, to paced reliable of the lower
    class, to paced lossy learning with as little loss as there is, and to 10% loss.

    Returns:
      A row for each rate, priority and part (and 'all' of them): the estimate, and share, of the
      logarithm of the whole; NaN where the loss is not reached or nothing is gained. Beside them
      stands 'priority without pacing': to unpaced reliable learning of the lower class.
    """
    rows = []
    for rate, (priority, names) in itertools.product(r.rates(), PARTS.items()):
        curve = r.curve("dctcp", "paced", priority, rate)
        for statistic, column in STATISTICS.items():
            steps = [r.get(baseline(r, "dctcp", name), rate, column) for name in RELIABLE]
            if priority:
                steps.append(r.get(Case("dctcp", "paced_reliable", True, r.limit), rate, column))
            steps += [r.get(curve[0], rate, column), at_loss(r, curve, rate, column)]
            whole = ratio(steps[0], steps[-1])
            found = {"all": whole}
            found |= {
                name: ratio(before, after)
                for name, (before, after) in zip(names, itertools.pairwise(steps), strict=True)
            }
            if priority:
                alone = r.get(Case("dctcp", "reliable", True, r.limit), rate, column)
                found["priority without pacing"] = ratio(steps[0], alone)
            for part, value in found.items():
                share = math.nan
                if whole.low > 1 and part != "priority without pacing":
                    share = math.log(value.mean) / math.log(whole.mean)
                row = {"web_rate": rate, "priority": priority, "statistic": statistic}
                rows.append(row | {"part": part, **as_columns(value), "share": share})
    return pd.DataFrame(rows)


def steps_of_curves(r: Results) -> Frame:
    """Whether curves are monotone: what one more degree of prioritisation changes.

    Returns:
      A row for each two neighbours of a curve, by their mean loss: the speed-up of the mean from
      the one with less loss to the other, and falls: it is below 1 beyond its error.
    """
    rows = []
    for web, learning, priority, rate in _curves(r):
        for less, more in itertools.pairwise(r.curve(web, learning, priority, rate)):
            times = [r.get(case, rate, "web_mean_ms") for case in (less, more)]
            faster = ratio(*times)
            row = {"web": web, "learning": learning, "priority": priority, "web_rate": rate}
            row |= {"threshold": less.threshold, "next_threshold": more.threshold}
            rows.append(row | {**as_columns(faster), "falls": faster.high < 1})
    return pd.DataFrame(rows)


def _curves(r: Results) -> list[tuple[str, str, bool, float]]:
    found = {(*case[:3], rate) for case, rate in r.by_case if case.learning in LOSSY}
    return sorted(curve for curve in found if curve[3] in r.rates())


def iteration_gains(r: Results) -> Frame:
    """What losing 10% does to training: its iterations against those of paced reliable learning.

    Returns:
      A row for each rate and priority: reliable_ms and lossy_ms of a mean iteration, computing
      included, and the estimate of how many times shorter; NaN where the loss is not reached.
    """
    rows = []
    for rate, priority in itertools.product(r.rates(), PARTS):
        base = r.get(Case("dctcp", "paced_reliable", priority, r.limit), rate, "iteration_ms")
        curve = r.curve("dctcp", "paced", priority, rate)
        lossy = at_loss(r, curve, rate, "iteration_ms")
        row = {"web_rate": rate, "priority": priority, "reliable_ms": base.mean()}
        rows.append(row | {"lossy_ms": lossy.mean(), **as_columns(ratio(base, lossy))})
    return pd.DataFrame(rows)


def bounds(r: Results) -> Frame:
    """What bounded loss does: the largest loss, and the web's p99 against paced reliable learning.

    Returns:
      A row for each case of bounded loss and rate: largest_loss of a message, iteration_ms, the
      estimate of the ratio of the 99th percentiles, claim and verdict.
    """
    rows = []
    for (case, rate), runs in sorted(r.by_case.items()):
        if case.learning not in ("bounded", "bounded_controlled"):
            continue
        base = r.get(baseline(r, case.web, "paced_reliable"), rate, "web_p99_ms")
        slower: Estimate = ratio(runs["web_p99_ms"], base)
        row = {**case._asdict(), "web_rate": rate, "loss": runs["learning_loss"].mean()}
        row |= {"largest_loss": runs["learning_loss_max"].max()}
        row |= {"iteration_ms": runs["iteration_ms"].mean(), **as_columns(slower)}
        rows.append(row | {"claim": BOUNDED.text, "verdict": verdict(slower, BOUNDED)})
    return pd.DataFrame(rows)
