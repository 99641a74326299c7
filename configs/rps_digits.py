"""The RPS paper's findings on digits: 16 workers, batches of 32, both aggregations, 0 to 20% loss.

Yu et al., Distributed Learning over Unreliable Networks, ICML 2019 (arXiv 1810.07766), section 5,
with an MLP on 8x8 digits in place of ResNets on CIFAR-10: plain SGD without momentum or weight
decay, a warm-up, and half a cosine in place of two steps down. Shards are iid, and skewed by label.
To expect: model averaging as accurate as without loss throughout; gradient averaging worse, by two
points at 20% with iid shards and by four at 1% with skewed ones.

python scripts/sweep.py --config=configs/rps_digits.py --workdir=runs/rps_digits

About a minute and a half on 2 CPU cores; `--config=configs/rps_digits.py:shrink` takes seconds.
"""

import math

import jaxlossy
from jaxlossy.errors import check_form


def get_config(form: str = "full"):
    check_form(form)
    config = jaxlossy.default_config()
    config.data = "digits"
    config.model = "mlp"
    config.features = (64,)
    config.workers = 16
    config.servers = 16
    config.batch_size = 32
    config.steps = 2000
    config.eval_every = 200
    config.optimizer = "sgd"
    config.learning_rate = 0.5
    config.warmup_steps = 100
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
