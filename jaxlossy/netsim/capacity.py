"""How much web load fits under a target, beside learning that is sent in one way or another."""

import math

import numpy as np
import pandas as pd

from jaxlossy.claims import as_columns, estimate
from jaxlossy.netsim.case_study import RELIABLE
from jaxlossy.netsim.gains import Results, baseline
from jaxlossy.summaries import Frame


def capacities(r: Results) -> Frame:
    """How many web messages a second fit under a target of their mean completion time.

    Between two rates the logarithm of the mean is taken as linear.

    Returns:
      A row for each target and case: fits (the mean over seeds; NaN for more than the largest rate
      that was simulated), at_most (in a seed or more even the smallest rate does not fit, and
      counts in its place), loss there; for each baseline the estimate of how many more fit, named
      with the baseline first, and fits and at_most of it.
    """
    rates = r.rates(more=True)
    rows = []
    for target in r.study["targets_ms"]:
        found = {}
        for case in {case for case, _ in r.by_case}:
            if all((case, rate) in r.by_case for rate in rates):
                means, losses = (
                    np.array([r.get(case, rate, name) for rate in rates]).T
                    for name in ("web_mean_ms", "learning_loss")
                )
                fits = np.array([crossing(rates, mean, target) for mean in means])
                at = zip(fits, losses, strict=True)
                found[case] = fits, np.array([np.interp(x, rates, loss) for x, loss in at])
        for case in sorted(found):
            fits, loss = found[case]
            row = {"target_ms": target, **case._asdict(), "fits": fits.mean(), "loss": loss.mean()}
            row["at_most"] = bool((fits == rates[0]).any())
            for name in RELIABLE:
                extra = estimate(fits - found[baseline(r, case.web, name)][0])
                row |= {f"{name}_{key}": value for key, value in as_columns(extra).items()}
                base = found[baseline(r, case.web, name)][0]
                row |= {f"{name}_fits": base.mean(), f"{name}_at_most": (base == rates[0]).any()}
            rows.append(row)
    return pd.DataFrame(rows)


def crossing(rates: list[float], means: np.ndarray, target: float) -> float:
    """The rate at which the mean first goes above the target.

    The smallest rate where it is above there already, as the most that may fit; NaN where it never
    is.

    >>> crossing([1.0, 2.0, 3.0], np.array([1.0, 2.0, 8.0]), 4.0)
    2.5
    """
    above = np.flatnonzero(means > target)
    if not above.size:
        return math.nan
    if above[0] == 0:
        return rates[0]
    i = above[0]
    low, high = np.log(means[i - 1]), np.log(means[i])
    share = (math.log(target) - low) / (high - low)
    return float(rates[i - 1] + share * (rates[i] - rates[i - 1]))
