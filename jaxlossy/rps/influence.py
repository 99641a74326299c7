"""What more servers change about the influence of packet loss: four questions that differ.

The number of servers S can grow together with the workers (n = N = S) or alone, at a fixed N. And
what is fixed meanwhile can be the drop probability of a *message* or that of a *packet*, where a
message is lost when one of its packets is: more servers then mean shorter messages, lost less
often. Where S grows alone, a network that loses packets one by one is compared as well: what
arrives of a message is used there, as if every packet had a server of its own.

Two influences of loss are measured: on learning, what it adds to the test loss of the mean model,
averaged over the training; and on the replicas, their disagreement, averaged likewise.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from jaxlossy import theory
from jaxlossy.claims import Claim, as_columns, by_seed, difference, estimate, ratio, verdict
from jaxlossy.rps.findings import DIMINISHES, UNCHANGED
from jaxlossy.summaries import Frame, Series

#: What is fixed while servers grow, and how a packet's loss is a message's.
LOSSES = {
    "message": "a message is lost with p = {p:g}",
    "packet": "a message is lost with any of its packets, each with p = {p:g}",
    "lone packet": "packets are lost one by one with p = {p:g}",
}
MEASURES = {
    "learning": "what loss adds to the test loss",
    "disagreement": "the disagreement of the replicas",
}
#: "As predicted": a ratio is within this factor of the predicted one.
FACTOR = 2.0


@dataclasses.dataclass(frozen=True)
class Study:
    """Which configs answer the questions.

    Attributes:
      servers: S = N where both grow; where S grows alone, from 1 to `workers` in powers of 2.
      workers: N where S grows alone; one of `servers`.
      drop_probability: p of a message, and of a packet that is lost on its own.
      packet_drop_probability: p of a packet where a message needs all of its packets.
      num_packets: M, of the model; a multiple of every S.
      seeds: of each config.
    """

    servers: Sequence[int] = (2, 4, 8, 16, 32)
    workers: int = 8
    drop_probability: float = 0.2
    packet_drop_probability: float = 0.005
    num_packets: int = 64
    seeds: int = 32

    def probability(self, loss: str) -> float:
        """The drop probability that is fixed."""
        return self.packet_drop_probability if loss == "packet" else self.drop_probability

    def cell(self, growth: str, loss: str) -> list[dict[str, Any]]:
        """The config fields of one question, a point for each number of servers.

        Args:
          growth: 'together': n = N = S grows; 'servers': S alone does.
          loss: one of ``LOSSES``.
        """
        if growth == "together":
            sizes = [(n, n) for n in self.servers]
        else:
            sizes = [(self.workers, 2**k) for k in range(self.workers.bit_length())]
        unit = "packet" if loss == "lone packet" else "message"
        points = []
        for workers, servers in sizes:
            p = self.probability(loss)
            if loss == "packet":
                length = self.num_packets // servers
                p = theory.message_loss(length, p)
            point = {"workers": workers, "servers": servers, "loss_unit": unit}
            points.append({**point, "drop_probability": p})
        return points

    def cells(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """All of them, by growth and loss."""
        questions = [("together", "message"), ("together", "packet")]
        questions += [("servers", loss) for loss in LOSSES]
        return {question: self.cell(*question) for question in questions}

    def sweep(self) -> list[dict[str, Any]]:
        """Every config once, and one without loss for each number of workers.

        Without loss neither the servers nor the loss unit change anything.
        """
        points = [point for cell in self.cells().values() for point in cell]
        points += [_without_loss(point) for point in points]
        once = {tuple(point.items()): point for point in points}.values()
        return [{**point, "seed": seed} for point in once for seed in range(self.seeds)]


def _without_loss(point: dict[str, Any]) -> dict[str, Any]:
    workers = point["workers"]
    sizes = {"workers": workers, "servers": workers}
    return {**sizes, "loss_unit": "message", "drop_probability": 0.0}


def influences(ds: xr.Dataset, study: Study) -> Frame:
    """Both influences of loss at every point of the study, with what theory predicts of them.

    Predictions are for gradients that are noise alone, up to the size of that noise, which a
    network's training does not tell: disagreement ``(1 - 1/N) beta / (1 - beta)``; learning in
    proportion to the kick to the mean model, ``(1 - 1/N) alpha2 / (1 - beta)``. One constant for
    each measure, the same at all points, puts them on the scale of what was measured. [derived]

    Args:
      ds: results of ``study.sweep()``, random placement.
      study: that study.

    Returns:
      A row for each growth, loss, measure and point: these; workers, servers, loss_unit,
      drop_probability; mean, standard_error, low, high, seeds; predicted.
    """
    rows = []
    for (growth, loss), points in study.cells().items():
        for point in points:
            for measure, values in _measured(ds, point).items():
                row = {"growth": growth, "loss": loss, "measure": measure, **point}
                row |= as_columns(estimate(values))
                rows.append({**row, "predicted": _predicted(point)[measure]})
    table: Frame = pd.DataFrame(rows)
    sums = table.groupby("measure")[["mean", "predicted"]].transform("sum")
    return table.assign(predicted=table["predicted"] * sums["mean"] / sums["predicted"])


def trends(ds: xr.Dataset, study: Study) -> Frame:
    """How each influence at the most servers compares to that at the fewest, and what follows.

    Finding (c) of the paper, that the influence of loss diminishes with n = N = S, is about
    learning with p of a message. The other claims are what theory says of the other questions.

    Returns:
      A row for each growth, loss and measure: these; fewest, most; mean, standard_error, low, high,
      seeds of the ratio; first and last, the two influences; predicted, of the ratio; claim,
      verdict and sentence; finding, 'c' where it is the paper's.
    """
    rows = []
    for (growth, loss), points in study.cells().items():
        first, last = points[0], points[-1]
        below, above = _measured(ds, first), _measured(ds, last)
        for measure in MEASURES:
            predicted = _predicted(last)[measure] / _predicted(first)[measure]
            claim = _claim(growth, loss, measure, predicted)
            change = ratio(above[measure], below[measure])
            row = {"growth": growth, "loss": loss, "measure": measure}
            row |= {"fewest": first["servers"], "most": last["servers"], **as_columns(change)}
            row |= {"first": np.mean(below[measure]), "last": np.mean(above[measure])}
            row |= {"predicted": predicted, "claim": claim.text}
            row["verdict"] = verdict(change, claim)
            papers = (growth, loss, measure) == ("together", "message", "learning")
            row["finding"] = "c" if papers else ""
            rows.append({**row, "sentence": _sentence(row, study)})
    return pd.DataFrame(rows)


def _measured(ds: xr.Dataset, point: dict[str, Any]) -> dict[str, np.ndarray]:
    """One value a seed of each measure."""

    def mean_over_training(name: str, fields: dict[str, Any]) -> Series:
        return by_seed(ds, ds[name].mean("step", skipna=False).values, **fields)

    lossy, without = (
        mean_over_training("test_loss", fields) for fields in (point, _without_loss(point))
    )
    apart = mean_over_training("disagreement", point)
    return {"learning": difference(lossy, without), "disagreement": apart.to_numpy()}


def _predicted(point: dict[str, Any]) -> dict[str, float]:
    """Of each measure, but for a constant."""
    n = point["workers"]
    mixing = theory.coefficients("random", n, point["drop_probability"])
    noise = (1 - 1 / n) / (1 - mixing.beta)
    return {"learning": noise * mixing.alpha2, "disagreement": noise * mixing.beta}


def _claim(growth: str, loss: str, measure: str, predicted: float) -> Claim:
    if measure == "disagreement":
        text = f"within a factor of {FACTOR:g} of the prediction"
        return Claim(text, predicted / FACTOR, predicted * FACTOR)
    if growth == "together" or loss == "packet":
        return DIMINISHES
    return UNCHANGED


def _sentence(row: dict[str, Any], study: Study) -> str:
    alone = f"S alone (N = {study.workers})"
    loss = LOSSES[row["loss"]].format(p=study.probability(row["loss"]))
    interval = f"95% interval {row['low']:.2g} to {row['high']:.2g}, {row['seeds']} seeds"
    if not np.isfinite(row["low"]):
        interval = f"not to be told from {row['seeds']} seeds"
    return (
        f"With {'n = N = S' if row['growth'] == 'together' else alone} growing from "
        f"{row['fewest']} to {row['most']}, where {loss}, {MEASURES[row['measure']]} goes from "
        f"{row['first']:.2g} to {row['last']:.2g}, a factor of {row['mean']:.2g} ({interval}; "
        f'predicted {row["predicted"]:.2g}): "{row["claim"]}" {row["verdict"]}.'
    )
