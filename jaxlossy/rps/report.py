"""The report of a reproduction of the RPS paper: sentences, numbers and figures, in a directory."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
import xarray as xr

from jaxlossy import claims, theory
from jaxlossy.figures import save_figures
from jaxlossy.files import replacing, writable_directory
from jaxlossy.rps import findings, findings_figures, influence
from jaxlossy.summaries import Frame, config_fields

REPORT, NUMBERS = "report.md", "numbers.csv"

TITLES = {
    "a": "Model averaging: as without loss at 1%, almost at 10%, slightly worse at 20%",
    "b": "Gradient averaging: visibly worse at 1% already",
    "c": "The influence of loss diminishes as n = N = S grows",
}

HEAD = """\
# Findings of the RPS paper, measured

Yu et al., *Distributed Learning over Unreliable Networks*, ICML 2019 (arXiv 1810.07766), on data at
hand. Each sentence below is made from the numbers in [numbers.csv](numbers.csv). Differences are
paired: the same seed has the same start and batches, and loses the same packets first, at every
drop probability. A claim *holds* where the whole 95% interval over seeds (Student's t) lies in what
it allows, *does not hold* where none of it does, and is *not decided* otherwise. All shards are one
draw; seeds do not vary them.

What the words are taken to mean, in points of test accuracy of the mean model, since the paper's
figures are curves without numbers:

"""

QUESTIONS = """\
## What else more servers change

Finding (c) is one of four questions with different answers: servers can grow together with the
workers or alone, and what stays fixed can be the drop probability of a message or of a packet,
where longer messages are lost more often. The claims here are not the paper's; they are what theory
derives from squared distances. For these S alone changes nothing where p of a message is fixed. The
test loss is no such distance: its curvature couples parameters, so that it matters how many of them
one lost message holds back together. Where S alone has an influence on it, theory is silent.

![Influence of loss against the number of servers](figures/influence.png)
"""

LARGE = """\
## What is not shown here

The paper's own tasks, ResNet-20 and ResNet-110 on CIFAR-10 and an LSTM on ATIS, need their data
sets and days of CPU time or a GPU. Nothing above says that its findings hold or do not hold
*there*, at the size of its models and after 160 epochs. The paper shows curves, so no number of it
can be compared either. These commands train the tasks, once the data are prepared:

```sh
python scripts/sweep.py --config=configs/rps_resnet20_cifar10.py --workdir=runs/resnet20
python scripts/sweep.py --config=configs/rps_resnet110_cifar10.py --workdir=runs/resnet110
python scripts/sweep.py --config=configs/rps_lstm_atis.py --workdir=runs/lstm
```

`jaxlossy.rps.findings.accuracy_lost(jaxlossy.load("runs/resnet20"))` then judges findings (a) and
(b) by them as above; it takes at least two seeds.
"""


def write(
    losses: Sequence[xr.Dataset],
    servers: xr.Dataset,
    study: influence.Study,
    directory: str | os.PathLike[str],
) -> Frame:
    """Writes report.md, numbers.csv and figures/ from results of sweeps.

    Args:
      losses: one or more, each of one data set, as for ``findings.accuracy_lost``.
      servers: results of ``study.sweep()``.
      study: the configs that show the influence of more servers.
      directory: where to write; made if it does not exist.

    Returns:
      The table of numbers: a row for each estimate, with its standard error, interval and number of
      seeds; those that a claim is about have it, its verdict and a sentence.

    Raises:
      ConfigError: results that lack what is to be compared, or a directory not to be written to.
    """
    directory = writable_directory("workdir", directory)
    figures = writable_directory("workdir", directory / "figures")
    lost = pd.concat([findings.accuracy_lost(ds) for ds in losses], ignore_index=True)
    points, trends = influence.influences(servers, study), influence.trends(servers, study)
    numbers = pd.concat(
        [
            lost.assign(quantity="accuracy lost"),
            points.assign(quantity="influence of loss"),
            trends.assign(quantity="ratio of influences"),
        ],
        ignore_index=True,
    )
    first = ["quantity", "finding", "mean", "standard_error", "low", "high", "seeds", "predicted"]
    rest = [name for name in numbers if name not in [*first, "sentence"]]
    numbers = numbers[[*first, *rest, "sentence"]]
    with replacing(directory / NUMBERS) as path:
        numbers.to_csv(path, index=False)
    drawn = {"accuracy.png": findings_figures.accuracies(lost)}
    names = [str(ds["data"].values[0]) for ds in losses]
    for name, ds in zip(names, losses, strict=True):
        drawn[f"curves_{name}.png"] = findings_figures.curves(ds)
    drawn["influence.png"] = findings_figures.influences(points, study)
    save_figures(drawn, figures)
    with replacing(directory / REPORT) as path:
        path.write_text(_report(numbers, lost, names, study, [*losses, servers]))
    return numbers


def _report(
    numbers: Frame,
    lost: Frame,
    names: list[str],
    study: influence.Study,
    sweeps: Sequence[xr.Dataset],
) -> str:
    allowed = [
        f'- "{claim.text}": {_range(claim)}'
        for claim in (findings.AS_WITHOUT, findings.ALMOST, findings.SLIGHTLY, findings.VISIBLY)
    ]
    parts = [HEAD + "\n".join(allowed), _made_by(sweeps)]
    parts.append("## In short\n\n" + _summary(numbers))
    curves = [f"![Training on {name}](figures/curves_{name}.png)" for name in names]
    accuracy = ["![Accuracy against the drop probability](figures/accuracy.png)", *curves]
    for letter, title in TITLES.items():
        said = numbers.loc[numbers["finding"] == letter, "sentence"]
        parts.append(f"## ({letter}) {title}\n\n" + _items(said))
        if letter == "b":
            parts += ["### (a) and (b) side by side", _accuracy_table(lost), *accuracy]
    others = numbers[(numbers["quantity"] == "ratio of influences") & (numbers["finding"] == "")]
    parts.append(QUESTIONS + "\n" + _items(others["sentence"]) + "\n\n" + _slow_down(study))
    parts.append(LARGE)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _range(claim: claims.Claim) -> str:
    ends = []
    if claim.low > -1:
        ends.append(f"more than {findings.points(claim.low):g}")
    if claim.high < 1:
        ends.append(f"at most {findings.points(claim.high):g}")
    return " and ".join(ends) + " lost"


def _items(sentences: Any) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _summary(numbers: Frame) -> str:
    """A few lines for each finding: in how many settings each of its claims holds."""
    lines = []
    for letter, title in TITLES.items():
        rows = numbers[numbers["finding"] == letter]
        verdicts = set(rows["verdict"])
        overall = verdicts.pop() if len(verdicts) == 1 else "in part"
        lines.append(f"- ({letter}) {title}: **{overall}** here.")
        claims = rows.groupby(["claim", "drop_probability"], sort=False, dropna=False)
        for (claim, p), part in claims["verdict"]:
            counts = (f"{v} in {count} of {len(part)}" for v, count in Counter(part).most_common())
            where = "" if pd.isna(p) else f" at {p:.0%}"
            lines.append(f'  - "{claim}"{where}: {", ".join(counts)}')
    return "\n".join(lines)


def _accuracy_table(lost: Frame) -> str:
    """Points of accuracy lost, a row for each setting and drop probability."""
    columns = {
        ("model_averaging", "test_accuracy"): "model averaging",
        ("gradient_averaging", "test_accuracy"): "gradient averaging",
        ("gradient_averaging", "replica_test_accuracy"): "its replicas",
    }
    lines = [
        "Points of accuracy lost, mean ± standard error over seeds:",
        "",
        "| data | drop probability | without loss, % | " + " | ".join(columns.values()) + " |",
        "|---" * (3 + len(columns)) + "|",
    ]
    for key, rows in lost.groupby(["data", "dirichlet_alpha", "drop_probability"], sort=False):
        cells = rows.set_index(["aggregation", "measure"])
        shown = [
            f"{findings.points(cells['mean'][c]):.2f} ± {100 * cells['standard_error'][c]:.2f}"
            if c in cells.index
            else ""
            for c in columns
        ]
        without = f"{100 * rows['without_loss'].iloc[0]:.1f}"
        name = findings.setting_text(*key[:2])
        lines.append(f"| {' | '.join([name, f'{key[2]:.0%}', without, *shown])} |")
    return "\n".join(lines)


def _slow_down(study: influence.Study) -> str:
    fewest, most = min(study.servers), max(study.servers)
    slower = [
        theory.slow_down(theory.coefficients("random", n, study.drop_probability), n)
        for n in (fewest, most)
    ]
    return (
        "What diminishes is what loss adds; training without loss gets faster with n as well. "
        f"Relative to it, theory's slow-down at p = {study.drop_probability:g} goes from "
        f"{slower[0]:.2f} (n = {fewest}) to {slower[1]:.2f} (n = {most}), and does not vanish."
    )


def _made_by(sweeps: Sequence[xr.Dataset]) -> str:
    lines = []
    for ds in sweeps:
        seconds = ds.attrs["compile_seconds"] + ds.attrs["train_seconds"]
        fields = config_fields(ds)
        model, data = fields["model"].iloc[0], fields["data"].iloc[0]
        lines.append(
            f"{len(fields)} configs of {model} on {data}, {fields['seed'].nunique()} seeds, "
            f"{fields['steps'].max()} steps: {seconds:.0f} s to compile and train on "
            f"{ds.attrs['device']}."
        )
    return "What was trained:\n\n" + _items(lines)
