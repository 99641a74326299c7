"""What more servers change about the influence of packet loss: n = N = S growing, and S alone.

Both with the drop probability of a message fixed, and with that of a packet: these are different
questions, as `jaxlossy/rps/influence.py` explains. Small batches and a constant learning rate, so
that training is noisy, as the theory has it; the packet size makes 64 packets.

python scripts/sweep.py --config=configs/rps_servers.py --workdir=runs/rps_servers

About two minutes on 2 CPU cores, half of it compiling a program for each number of workers;
`--config=configs/rps_servers.py:shrink` takes seconds.
"""

import jaxlossy
from jaxlossy.errors import check_form
from jaxlossy.rps.influence import Study


def get_study(form: str = "full"):
    check_form(form)
    return Study() if form == "full" else Study(servers=(2, 4), workers=2, seeds=3)


def get_config(form: str = "full"):
    config = jaxlossy.default_config()
    config.data = "digits"
    config.model = "mlp"
    config.features = (64,)
    config.packet_size = 76
    config.batch_size = 4
    config.steps = 400
    config.eval_every = 40
    config.learning_rate = 0.3
    if form == "shrink":
        config.model, config.packet_size = "logistic", 11  # compiles fastest; 60 packets
        config.steps = 4
        config.eval_every = 2
    del config.sweep  # no grid: fields go together
    with config.unlocked():
        config.sweep = get_study(form).sweep()
    return config
