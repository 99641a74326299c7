"""DoubleClimb against other ways to choose the logical topology of a learning task.

Malandrino, Chiasserini, Molner, de la Oliva, "Network Support for High-performance Distributed
Machine Learning", IEEE/ACM Trans. Networking 31(1), 2023 (arXiv 2102.03394); the formulas are our
formulation of its model. On 12 generated networks of 5 L-nodes and 10 I-nodes the refined form is
to be expected at the optimum nearly everywhere, everything on at several times its cost. Half a
minute on 2 CPU cores.

python scripts/doubleclimb.py --config=configs/doubleclimb.py --workdir=runs/doubleclimb
"""

from jaxlossy.topology.study import default_config


def get_config():
    return default_config()
