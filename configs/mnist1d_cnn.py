"""A small 1-D CNN on MNIST-1D, both aggregations, shards with label skew.

MNIST-1D (Greydanus and Kobak, arXiv 2011.14439): 4,000 series of 40 numbers, generated on first use
by the package of that name.

python scripts/sweep.py --config=configs/mnist1d_cnn.py --workdir=runs/mnist1d_cnn
"""

import jaxlossy


def get_config():
    config = jaxlossy.default_config()
    config.data = "mnist1d"
    config.model = "cnn"
    config.features = (16, 32)
    config.workers = 8
    config.batch_size = 16
    config.steps = 600
    config.eval_every = 100
    config.optimizer = "momentum"
    config.learning_rate = 0.1
    config.warmup_steps = 50
    config.schedule = "cosine"
    config.dirichlet_alpha = 0.5
    config.sweep.aggregation = ("model_averaging", "gradient_averaging")
    config.sweep.drop_probability = (0.0, 0.01, 0.1, 0.2)
    config.sweep.servers = (8,)
    config.sweep.seed = (0, 1)
    return config
