"""The default job: how much loss does RPS take on scikit-learn's 8x8 digits?

Yu et al., Distributed Learning over Unreliable Networks, ICML 2019 (arXiv 1810.07766): 16 workers,
every message lost with the same probability.

python scripts/sweep.py --config=configs/digits.py --workdir=runs/digits
"""

import jaxlossy


def get_config():
    config = jaxlossy.default_config()
    config.data = "digits"
    config.model = "mlp"
    config.features = (64,)
    config.workers = 16
    config.steps = 300
    config.eval_every = 50
    config.learning_rate = 0.3
    config.dirichlet_alpha = 0.1
    config.sweep.drop_probability = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
    config.sweep.servers = (1, 2, 4, 8, 16)
    config.sweep.seed = tuple(range(8))
    return config
