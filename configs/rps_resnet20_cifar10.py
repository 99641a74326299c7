"""ResNet-20 on CIFAR-10 as in the paper: 16 workers, batches of 32, losses up to 20 percent.

Yu et al., Distributed Learning over Unreliable Networks, ICML 2019 (arXiv 1810.07766). What the
paper finds: model averaging at 1% loss is as without, up to 10% almost so, at 20% slightly worse;
gradient averaging is visibly worse at 1% already. Its figures are curves, with no numbers to meet.

The paper's are the network with batch normalisation, plain SGD without momentum or weight decay,
the linear scaling of the learning rate with five epochs of warm-up, and the steps down after epochs
80 and 120. Chosen here: a rate of 0.1 for 128 examples (as He et al., 1512.03385), steps to a
tenth, 160 epochs, three seeds, images as they are. Running statistics are each worker's own;
--config.normalization=group takes GroupNorm, which has none.

For a GPU, on which it has not run yet: 30 configs of 15,680 steps. CIFAR-10 comes through
tensorflow-datasets; without a prepared copy the error says which command makes one. The shrunken
form has made-up images and takes half a minute on 2 CPU cores, most of it for compiling.

python scripts/sweep.py --config=configs/rps_resnet20_cifar10.py --workdir=runs/rps_resnet20
python scripts/sweep.py --config=configs/rps_resnet20_cifar10.py:shrink --workdir=runs/shrink
"""

import jaxlossy
from jaxlossy.errors import check_form

EPOCH = 98  # steps: 50,000 images, 16 * 32 at each


def get_config(form: str = "full"):
    check_form(form)
    config = jaxlossy.default_config()
    config.data = "cifar10"
    config.model = "resnet20"
    config.normalization = "batch"
    config.workers = 16
    config.batch_size = 32
    config.steps = 160 * EPOCH
    config.eval_every = 10 * EPOCH
    config.warmup_steps = 5 * EPOCH
    config.schedule = "steps"
    config.decay_rate = 0.1
    config.decay_begin = 40 * EPOCH  # and 40 epochs later the first step
    config.decay_steps = 40 * EPOCH
    config.sweep.aggregation = ("model_averaging", "gradient_averaging")
    config.sweep.drop_probability = (0.0, 0.01, 0.05, 0.1, 0.2)
    config.sweep.servers = (16,)
    config.sweep.seed = (0, 1, 2)
    if form == "shrink":
        config.data = "cifar10_like"
        config.workers = 4
        config.batch_size = 8
        config.steps = 4
        config.eval_every = 2
        config.warmup_steps = 2
        config.sweep.aggregation = ("model_averaging",)
        config.sweep.drop_probability = (0.0, 0.1)
        config.sweep.servers = (4,)
        config.sweep.seed = (0,)
    config.learning_rate = 0.1 * config.workers * config.batch_size / 128
    return config
