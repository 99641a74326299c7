"""Results of sweeps that nobody trained: the configs are real, the numbers are made up."""

import runpy
from pathlib import Path

import numpy as np

from jaxlossy import results
from jaxlossy.grid import expand
from jaxlossy.summaries import config_fields

CONFIGS = Path(__file__).parent.parent / "configs"
ATTRIBUTES = {"compile_seconds": 1.0, "train_seconds": 2.0, "device": "nothing at all"}


def load_config(name):
    return runpy.run_path(str(CONFIGS / f"{name}.py"))


def made_up(config, **metrics):
    """A Dataset for a sweep, each metric a function of a config's row of fields."""
    ds = results.empty(expand(config)[0], ATTRIBUTES)
    rows = list(config_fields(ds).itertuples())
    for name, function in metrics.items():
        ds[name].values[:] = np.array([function(row) for row in rows])[:, None]
    return ds
