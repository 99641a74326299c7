"""The RPS paper's findings on MNIST-1D: a CNN, 16 workers, both aggregations, 0 to 20% loss.

Yu et al., Distributed Learning over Unreliable Networks, ICML 2019 (arXiv 1810.07766), section 5,
with a 1-D CNN in place of ResNets on CIFAR-10. Batches of 8, not 32, because a worker owns no more
than 250 of the 4,000 series. Plain SGD without momentum or weight decay, a warm-up, and half a
cosine in place of two steps down. Shards are iid, and skewed by label.
To expect: model averaging within half a point of the accuracy without loss up to 10%, one point
worse at 20% with skewed shards; gradient averaging worse with iid shards, by six points at 20%, and
useless with skewed ones.

python scripts/sweep.py --config=configs/rps_mnist1d.py --workdir=runs/rps_mnist1d

About four minutes on 2 CPU cores; `--config=configs/rps_mnist1d.py:shrink` takes seconds.
"""

import math

import jaxlossy
from jaxlossy.errors import check_form


def get_config(form: str = "full"):
    check_form(form)
    config = jaxlossy.default_config()
    config.data = "mnist1d"
    config.model = "cnn"
    config.features = (16, 32)
    config.workers = 16
    config.servers = 16
    config.batch_size = 8
    config.steps = 500
    config.eval_every = 125
    config.optimizer = "sgd"
    config.learning_rate = 1.0
    config.warmup_steps = 50
    config.schedule = "cosine"
    config.sweep.aggregation = ("model_averaging", "gradient_averaging")
    config.sweep.dirichlet_alpha = (math.inf, 0.5)
    config.sweep.drop_probability = (0.0, 0.01, 0.05, 0.1, 0.2)
    config.sweep.seed = tuple(range(10))
    if form == "shrink":
        config.model = "logistic"  # compiles fastest
        config.workers = config.servers = 4
        config.steps = 4
        config.eval_every = 2
        config.sweep.seed = (0, 1, 2)
    return config
