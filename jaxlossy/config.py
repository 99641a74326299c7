"""What one training run is made of: every field, declared traced or static in one place.

A *traced* field may differ between the configs of one compiled program; a *static* one makes a new
program. ``Config`` is a pytree whose leaves are the traced fields, so that configs share a program
exactly where ``jax.tree.structure`` agrees, and inside the program ``config.learning_rate`` is an
array while ``config.workers`` is a Python number.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlossy.errors import ConfigError, check_name


class _Kind(NamedTuple):
    """What a field takes: its type, and the values of that type that are allowed."""

    type: type
    allowed: str
    test: Callable[[Any], bool]


_PROBABILITY = _Kind(float, "a number in [0, 1]", lambda v: 0 <= v <= 1)
_POSITIVE = _Kind(float, "a finite number > 0", lambda v: 0 < v < math.inf)
_POSITIVE_OR_INF = _Kind(float, "a number > 0; inf for iid shards", lambda v: v > 0)
_BELOW_ONE = _Kind(float, "a number in [0, 1)", lambda v: 0 <= v < 1)
_SEED = _Kind(int, "an integer in [0, 2**31)", lambda v: 0 <= v < 2**31)
_COUNT = _Kind(int, "an integer in [1, 2**31)", lambda v: 1 <= v < 2**31)
_STEPS = _Kind(int, "an integer in [0, 2**31)", lambda v: 0 <= v < 2**31)
_NAME = _Kind(str, "a name", bool)
_RATIO = _Kind(float, "a finite number >= 1", lambda v: 1 <= v < math.inf)
_INDEX = _Kind(int, "an integer in [0, 2**31)", lambda v: 0 <= v < 2**31)
_FILE = _Kind(str, "the name of a file", lambda v: True)
_WIDTHS = _Kind(
    tuple, "a tuple of integers >= 1", lambda v: all(type(w) is int and w >= 1 for w in v)
)
_PRECISION = _Kind(
    str, "'default', 'float32' or 'bfloat16'", lambda v: v in ("default", "float32", "bfloat16")
)
_NORMALIZATION = _Kind(str, "'group' or 'batch'", lambda v: v in ("group", "batch"))
_DTYPE = _Kind(str, "'float32' or 'bfloat16'", lambda v: v in ("float32", "bfloat16"))
_SWITCH = _Kind(bool, "True or False", lambda v: True)


def _field(default: Any, kind: _Kind, *, traced: bool) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "static": not traced})


def _traced(default: Any, kind: _Kind) -> Any:
    return _field(default, kind, traced=True)


def _static(default: Any, kind: _Kind) -> Any:
    return _field(default, kind, traced=False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Config:
    """One training run. Fields with the default ``None`` are worked out from the others.

    Network:
      drop_probability: probability that the network loses what `loss_unit` names, both ways.
      uplink_drop_probability, downlink_drop_probability: the same, one way (None: as above).
      servers: S, how many servers own the model's packets; 1 to the number of packets.
      workers: N, machines with a replica and a shard of the data each.
      placement: where the servers are: 'random', 'fixed' or 'separate' (`packets.assign`).
      channel: name of the loss model (`channel.CHANNELS`): 'bernoulli', 'gilbert_elliott', 'trace'.
      loss_unit: what is lost as one: 'message' or 'packet'.
      burst_ratio: how much longer 'gilbert_elliott' keeps losing than independent losses would.
      trace, trace_index: what 'trace' plays back: a file of traces, and which one in it, from 0.
      packet_size: parameters in a packet (None: `packets.default_packet_size`).
      aggregation: name of the rule (`aggregation.AGGREGATIONS`).

    Training:
      seed: of the initial model, the batches, the placement and the losses.
      optimizer: 'sgd', 'momentum' or 'adam'; one per worker.
      learning_rate, momentum: as usual; momentum counts with optimizer 'momentum' only.
      schedule: 'constant', 'cosine' (to 0 at the last step), 'exponential' or 'steps'.
      warmup_steps: optimizer steps of linear warm-up.
      decay_begin, decay_steps, decay_rate: from optimizer step decay_begin on, the rate is
        multiplied by decay_rate every decay_steps: 'exponential' smoothly, 'steps' at once.
      steps: rounds of communication.
      local_steps: optimizer steps before each round.
      batch_size: examples a worker draws for an optimizer step, with replacement.
      eval_every: steps between evaluations; divides steps.
      matmul_precision: how float32 matrix products are computed: 'float32' (full), 'bfloat16' or
        'default' (the backend's fastest).
      compute_dtype: what the model computes in, forward and backward: 'float32' or 'bfloat16', half
        the memory. Parameters, averages, optimizer and losses stay float32. In 'bfloat16' no
        product has float32 factors, and matmul_precision changes nothing.
      remat: store less of the forward pass and compute it again in the backward pass, block by
        block (`jax.checkpoint`); for the built-in models that have blocks.

    Model and data:
      model, features: name (`models.MODELS`) and widths of its hidden layers.
      normalization: of the built-in models that normalise: 'group' or 'batch', where every worker
        has its batches' statistics and running ones of its own (`normalization`).
      data: name of the data set (`data.load`).
      dirichlet_alpha: label skew of the shards; inf: iid (`shards.make_shards`).
      shard_seed: of the shards alone.
    """

    drop_probability: float = _traced(0.0, _PROBABILITY)
    uplink_drop_probability: float | None = _traced(None, _PROBABILITY)
    downlink_drop_probability: float | None = _traced(None, _PROBABILITY)
    servers: int = _traced(1, _COUNT)
    workers: int = _static(16, _COUNT)
    placement: str = _static("random", _NAME)
    channel: str = _static("bernoulli", _NAME)
    loss_unit: str = _static("message", _NAME)
    burst_ratio: float = _traced(1.0, _RATIO)
    trace: str = _static("", _FILE)
    trace_index: int = _traced(0, _INDEX)
    packet_size: int | None = _static(None, _COUNT)
    aggregation: str = _static("model_averaging", _NAME)
    seed: int = _traced(0, _SEED)
    optimizer: str = _static("sgd", _NAME)
    learning_rate: float = _traced(0.1, _POSITIVE)
    momentum: float = _traced(0.9, _BELOW_ONE)
    schedule: str = _static("constant", _NAME)
    warmup_steps: int = _traced(0, _STEPS)
    decay_begin: int = _traced(0, _STEPS)
    decay_steps: int = _traced(100, _COUNT)
    decay_rate: float = _traced(0.5, _POSITIVE)
    steps: int = _static(300, _COUNT)
    local_steps: int = _static(1, _COUNT)
    batch_size: int = _static(32, _COUNT)
    eval_every: int = _static(50, _COUNT)
    matmul_precision: str = _static("float32", _PRECISION)
    compute_dtype: str = _static("float32", _DTYPE)
    remat: bool = _static(False, _SWITCH)
    model: str = _static("mlp", _NAME)
    features: tuple[int, ...] = _static((64,), _WIDTHS)
    normalization: str = _static("group", _NORMALIZATION)
    data: str = _static("digits", _NAME)
    dirichlet_alpha: float = _traced(math.inf, _POSITIVE_OR_INF)
    shard_seed: int = _traced(0, _SEED)


FIELDS = {field.name: field for field in dataclasses.fields(Config)}


def is_traced(name: str) -> bool:
    """Whether a field may differ inside one compiled program."""
    return not FIELDS[name].metadata["static"]


def make_config(values: Mapping[str, Any]) -> Config:
    """A checked config from field values; absent fields take their defaults.

    Args:
      values: field name to value. Numbers of numpy and integral floats in integer fields are
        converted; anything else of a wrong type is refused.

    Returns:
      The config, with the drop probability of each direction filled in: to change a field of it,
      make it anew from all values.

    Raises:
      ConfigError: an unknown field, a value out of range, or values that exclude each other.

    >>> make_config({"drop_probability": 0.1}).downlink_drop_probability
    0.1
    >>> make_config({"drop_probability": 1.5})
    Traceback (most recent call last):
    jaxlossy.errors.ConfigError: drop_probability: 1.5 is not allowed (allowed: a number in [0, 1])
    """
    config = Config(**check_fields(values))
    p = config.drop_probability
    up, down = config.uplink_drop_probability, config.downlink_drop_probability
    config = dataclasses.replace(
        config,
        uplink_drop_probability=p if up is None else up,
        downlink_drop_probability=p if down is None else down,
    )
    _check_together(config)
    return config


def check_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each in its field's own type.

    Raises:
      ConfigError: an unknown field, or a value of another type or out of range (NaN always is).
    """
    for name in values:
        check_name("config field", name, FIELDS)
    return {name: _check_value(name, value) for name, value in values.items()}


def _check_value(name: str, value: Any) -> Any:
    field, kind = FIELDS[name], FIELDS[name].metadata["kind"]
    if value is None and field.default is None:
        return None
    refused = ConfigError(name, value, kind.allowed)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = value.tolist()  # numbers and lists of Python's own
    if kind.type in (int, float):
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise refused
        try:
            converted: Any = kind.type(value)  # pyright: ignore[reportArgumentType]
        except (OverflowError, ValueError):  # int(inf), int(nan), float(10**400)
            raise refused from None
        # What the device gets has to be allowed too: 1e-60 is 0 there, and 1e300 is infinite.
        with np.errstate(over="ignore"):
            exact = converted == value if kind.type is int else kind.test(np.float32(converted))
    else:
        converted = tuple(value) if kind.type is tuple and isinstance(value, list) else value
        exact = isinstance(converted, kind.type)
    if not (exact and kind.test(converted)):
        raise refused
    return converted


def _check_together(config: Config) -> None:
    if config.placement in ("random", "fixed") and config.servers > config.workers:
        raise ConfigError(
            "servers",
            config.servers,
            f"at most workers={config.workers} with placement={config.placement!r}, "
            "where every server is a worker",
        )
    if config.steps % config.eval_every:
        raise ConfigError("eval_every", config.eval_every, f"a divisor of steps={config.steps}")


def stack_configs(configs: list[Config]) -> Config:
    """Configs of one program as one: every traced field gets a leading config axis.

    >>> stack_configs([make_config({"seed": s}) for s in range(3)]).seed
    array([0, 1, 2], dtype=int32)
    """
    dtypes = {int: np.int32, float: np.float32}
    stacked = {
        name: np.asarray([getattr(c, name) for c in configs], dtypes[f.metadata["kind"].type])
        for name, f in FIELDS.items()
        if is_traced(name)
    }
    return dataclasses.replace(configs[0], **stacked)


def default_config() -> Any:
    """An ``ml_collections.ConfigDict`` with every field at its default, ready for flags.

    Its ``sweep`` has every field too, not swept (None) until given a tuple of values, so that
    any axis can be given on the command line.

    >>> config = default_config()
    >>> config.sweep.drop_probability = (0.0, 0.1)
    >>> config.steps
    300
    """
    from ml_collections import config_dict  # only command lines and notebooks pay for it

    def entry(field):
        if field.default is None:
            return config_dict.placeholder(field.metadata["kind"].type)
        return field.default

    config = config_dict.ConfigDict({name: entry(field) for name, field in FIELDS.items()})
    config.sweep = config_dict.ConfigDict({n: config_dict.placeholder(tuple) for n in FIELDS})
    return config
