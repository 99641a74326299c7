"""An LSTM on ATIS as in the paper: 16 workers, batches of 32, losses up to 20 percent.

Yu et al., Distributed Learning over Unreliable Networks, ICML 2019 (arXiv 1810.07766). The task is
to understand what is asked about flights: the intent of an utterance (test_accuracy) and a slot for
every word (test_slot_accuracy). What the paper finds: model averaging at 1% loss is as without, up
to 10% almost so, at 20% slightly worse; gradient averaging is visibly worse at 1% already. Its
figures are curves, with no numbers to meet.

The paper's are one LSTM layer, plain SGD without momentum or weight decay, the linear scaling of
the learning rate with five epochs of warm-up, and the steps down after epochs 80 and 120. Chosen
here: 128 wide, a rate of 0.2 for 32 examples, steps to a tenth, 160 epochs, three seeds.

ATIS has to be had as its two IOB files: put atis.train.w-intent.iob and atis.test.w-intent.iob into
atis_iob in the directory of prepared data sets (--data_dir); jaxlossy/atis.py says what a line
looks like. On the real files it has not run yet. The shrunken form has made-up utterances and takes
about 20 seconds on 2 CPU cores.

python scripts/sweep.py --config=configs/rps_lstm_atis.py --workdir=runs/rps_lstm
python scripts/sweep.py --config=configs/rps_lstm_atis.py:shrink --workdir=runs/shrink
"""

import jaxlossy
from jaxlossy.errors import check_form

EPOCH = 10  # steps: some 5,000 utterances, 16 * 32 at each


def get_config(form: str = "full"):
    check_form(form)
    config = jaxlossy.default_config()
    config.data = "atis"
    config.model = "lstm"
    config.features = (128,)
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
        config.data = "atis_like"
        config.features = (32,)
        config.workers = 4
        config.steps = 60
        config.eval_every = 30
        config.warmup_steps = 10
        config.sweep.drop_probability = (0.0, 0.1)
        config.sweep.servers = (4,)
        config.sweep.seed = (0,)
    config.learning_rate = 0.2 * config.workers * config.batch_size / 32
    return config
