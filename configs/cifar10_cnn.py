"""A small CNN on CIFAR-10, 16 workers with batches of 32.

For a GPU. CIFAR-10 comes through tensorflow-datasets; without a prepared copy the error says which
command makes one.

python scripts/sweep.py --config=configs/cifar10_cnn.py --workdir=runs/cifar10_cnn
"""

import jaxlossy


def get_config():
    config = jaxlossy.default_config()
    config.data = "cifar10"
    config.model = "cnn"
    config.features = (32, 64, 128)
    config.workers = 16
    config.batch_size = 32
    config.steps = 5000
    config.eval_every = 250
    config.optimizer = "momentum"
    config.learning_rate = 0.1
    config.warmup_steps = 250
    config.schedule = "cosine"
    config.sweep.aggregation = ("model_averaging", "gradient_averaging")
    config.sweep.drop_probability = (0.0, 0.01, 0.05, 0.1, 0.2)
    config.sweep.servers = (16,)
    config.sweep.seed = (0, 1, 2)
    return config
