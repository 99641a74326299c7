"""DoubleClimb against other ways to choose the logical topology of a learning task.

Malandrino, Chiasserini, Molner, de la Oliva, "Network Support for High-performance Distributed
Machine Learning", IEEE/ACM Trans. Networking 31(1), 2023 (arXiv 2102.03394); the formulas are our
formulation of its model. On 12 generated networks of 5 L-nodes and 10 I-nodes the refined form is
to be expected at the optimum nearly everywhere, everything on at several times its cost. Then, for
a classification and a regression, plans chosen with fitted error models are trained; errors should
rank as predicted, and nine in ten plans meet their target. About two minutes on 2 CPU cores;
`--config=configs/doubleclimb.py:shrink` takes half a minute and shows nothing.

python scripts/doubleclimb.py --config=configs/doubleclimb.py --workdir=runs/doubleclimb
"""

from jaxlossy.errors import check_form
from jaxlossy.topology import loop_report, study


def get_config(form: str = "full"):
    check_form(form)
    config = study.default_config()
    config.loop = loop_report.default_config()
    if form == "shrink":
        config.learning, config.information, config.drawn = 3, 5, (6, 8)
        config.seeds = (0,)
        config.algorithms = ("refined", "plain", "optimum")
        config.loop.tasks, config.loop.quick = ("diabetes",), True
    return config
