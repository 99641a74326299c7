"""jaxlossy: distributed training over lossy networks, hundreds of configs at once.

>>> import jaxlossy
>>> sorted(jaxlossy.PLACEMENTS)
['fixed', 'random', 'separate']
"""

import importlib

from jaxlossy import theory as theory
from jaxlossy.aggregation import Aggregation as Aggregation
from jaxlossy.aggregation import average_arrived as average_arrived
from jaxlossy.aggregation import gradient_averaging as gradient_averaging
from jaxlossy.aggregation import model_averaging as model_averaging
from jaxlossy.channel import Channel as Channel
from jaxlossy.channel import Delivered as Delivered
from jaxlossy.channel import bernoulli as bernoulli
from jaxlossy.channel import gilbert_elliott as gilbert_elliott
from jaxlossy.channel import recorded as recorded
from jaxlossy.config import Config as Config
from jaxlossy.config import default_config as default_config
from jaxlossy.config import make_config as make_config
from jaxlossy.data import Data as Data
from jaxlossy.data import from_arrays as from_arrays
from jaxlossy.errors import ConfigError as ConfigError
from jaxlossy.fits import fit_bernoulli as fit_bernoulli
from jaxlossy.fits import fit_gilbert_elliott as fit_gilbert_elliott
from jaxlossy.models import Model as Model
from jaxlossy.packets import PLACEMENTS as PLACEMENTS
from jaxlossy.packets import Assignment as Assignment
from jaxlossy.results import final as final
from jaxlossy.results import load as load
from jaxlossy.summaries import table as table
from jaxlossy.sweep import sweep as sweep
from jaxlossy.trace import Trace as Trace
from jaxlossy.trace import load_traces as load_traces
from jaxlossy.trace import save_traces as save_traces


def __getattr__(name: str):
    if name in ("figures", "netsim"):  # on first use: matplotlib and numba are slow to import
        return importlib.import_module(f"jaxlossy.{name}")
    raise AttributeError(f"module 'jaxlossy' has no attribute {name!r}")
