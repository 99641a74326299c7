"""The case study of the RPS paper: 16 hosts that run a web service and train, on 1 Gbit/s links.

Yu et al., Distributed Learning over Unreliable Networks, ICML 2019 (arXiv 1810.07766), section 6.
Web messages of 100 kB between all hosts; learning traffic of 2.4 Gbit/s in total, ten iterations of
100 ms with two phases of 25 ms each, is made up, since the paper's trace is not public. To expect:
the web service gets faster with the losses of learning; most of it comes from pacing and priority.

python scripts/netsim.py --config=configs/colocated_web.py --workdir=runs/colocated_web

Minutes on 2 CPU cores; `--config=configs/colocated_web.py:shrink` takes seconds.
"""

from ml_collections import ConfigDict

import jaxlossy
from jaxlossy.errors import check_form


def get_config(form: str = "full"):
    check_form(form)
    config = ConfigDict()
    config.hosts = 16
    config.link_bps = 10**9
    config.delay_ns = 20
    config.limit = 150_000
    config.mark_above = 30_000
    config.message_bytes = 100_000
    config.duration_ms = 1000.0
    config.web_rates = (2000, 5000, 10_000)
    config.more_web_rates = (500, 1000, 3500, 6500, 8000, 11_500, 13_000)
    config.targets_ms = (2.0, 5.0, 10.0)
    config.seeds = 10
    config.iterations = 10
    config.period_ms = 100.0
    config.compute_ms = 10.0
    config.gather_ms = 60.0
    config.learning_bps = 300e6
    config.deadline_ms = 25.5
    config.loss_bound = 0.1
    config.fifo_thresholds = (1500, 3000, 6000, 15_000, 30_000, 45_000, 60_000, 75_000, 150_000)
    config.priority_thresholds = (1500, 6000, 15_000, 30_000, 75_000, 150_000, 600_000)
    config.few_fifo_thresholds = (15_000, 30_000, 45_000, 60_000, 150_000)
    config.few_priority_thresholds = (15_000, 30_000, 150_000)
    config.playback = (
        ("paced", False, 45_000, 10_000),
        ("burst", False, 60_000, 10_000),
    )
    # 672 packets, 42 of each server: 57,960 bytes of payload a message.
    config.training = jaxlossy.default_config()
    config.training.data = "digits"
    config.training.model = "mlp"
    config.training.features = (179,)
    config.training.packet_size = 20
    config.training.workers = 16
    config.training.servers = 16
    config.training.placement = "fixed"
    config.training.steps = 300
    config.training.eval_every = 100
    config.training.dirichlet_alpha = 0.5
    config.training.learning_rate = 0.5
    config.training.momentum = 0.0
    config.training.sweep.aggregation = ("model_averaging", "gradient_averaging")
    config.training.sweep.seed = tuple(range(10))
    if form == "shrink":
        config.hosts = config.training.workers = config.training.servers = 4
        config.duration_ms = 60.0
        config.seeds = 3
        config.web_rates = (500, 2000)
        config.more_web_rates = (1000, 3000)
        config.iterations = 2
        config.period_ms = 30.0
        config.compute_ms = 2.0
        config.gather_ms = 15.0
        config.deadline_ms = 9.0
        config.loss_bound = 0.3  # of eight packets or nine
        config.fifo_thresholds = (1500, 15_000, 150_000)
        config.few_fifo_thresholds = (15_000, 150_000)
        config.priority_thresholds = (1500, 150_000)
        config.few_priority_thresholds = (150_000,)
        config.playback = (("paced", False, 15_000, 2000),)
        config.training.model = "logistic"  # compiles fastest
        config.training.steps = 4
        config.training.eval_every = 2
        config.training.sweep.aggregation = ("model_averaging",)
        config.training.sweep.seed = (0, 1, 2)
    return config
