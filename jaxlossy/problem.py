"""What is trained: model, loss, data and rules, looked up by name or given, and checked.

Everything that a config names is resolved here, and everything that does not fit together is
refused here, from shapes alone, before any compiling.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlossy import aggregation as aggregation_lib
from jaxlossy import channel as channel_lib
from jaxlossy import models, optimizers, packets, tasks
from jaxlossy.config import Config
from jaxlossy.data import Data
from jaxlossy.errors import ConfigError, check_name

#: Test examples evaluated at a time, to bound the memory that activations take.
EVAL_CHUNK = 128


class Examples(NamedTuple):
    """The data as the device holds it, the test set in chunks of equal size.

    Attributes:
      train_x, train_y: (examples, ...).
      test_x, test_y: (chunk, examples, ...), the last chunk padded with repeats.
      test_weight: (chunk, examples), 0 where padded, else 1.
    """

    train_x: jax.Array
    train_y: jax.Array
    test_x: jax.Array
    test_y: jax.Array
    test_weight: jax.Array


def as_examples(data: Data) -> Examples:
    """Arrays of the host in the form that the device holds (still on the host)."""
    count = len(data.test_x)
    size = min(count, EVAL_CHUNK)
    chunks = -(-count // size)
    index = np.arange(chunks * size).reshape(chunks, size)
    inside = index < count
    index = np.where(inside, index, 0)
    return Examples(
        train_x=data.train_x,  # pyright: ignore[reportArgumentType]
        train_y=data.train_y,  # pyright: ignore[reportArgumentType]
        test_x=data.test_x[index],  # pyright: ignore[reportArgumentType]
        test_y=data.test_y[index],  # pyright: ignore[reportArgumentType]
        test_weight=inside.astype(np.float32),  # pyright: ignore[reportArgumentType]
    )


@dataclasses.dataclass(frozen=True)
class Problem:
    """What the configs of one program share besides numbers: functions and shapes.

    Attributes:
      model, loss: see ``models`` and ``tasks``; the loss gives one value an example.
      scores: name to a function like the loss, such as an accuracy; none where the outputs are not
        those of the task that the data set is for.
      layout: the model's packets.
      channel, aggregation, optimizer: factories that take a config.
      live_workers: replicas of a config whose gradients or scores are computed together, the others
        after them; None: all. What is computed does not depend on it.
    """

    model: models.Model
    loss: Callable[[Any, Any], jax.Array]
    scores: dict[str, Callable[[Any, Any], jax.Array]]
    layout: packets.PacketLayout
    channel: Callable[[Config], channel_lib.Channel]
    aggregation: Callable[[Config], aggregation_lib.Aggregation]
    optimizer: Callable[[Config], optax.GradientTransformation]
    live_workers: int | None = None


def make_problem(
    config: Config,
    data: Data,
    *,
    model: Any = None,
    loss: Callable[[Any, Any], jax.Array] | None = None,
    optimizer: Callable[[optax.Schedule], optax.GradientTransformation] | None = None,
    channel: Callable[[Config], channel_lib.Channel] | None = None,
    aggregation: Callable[[Config], aggregation_lib.Aggregation] | None = None,
) -> Problem:
    """Looks up what the config names, or takes what is given in its place, and checks the shapes.

    Args:
      config: one config of the group; its static fields count.
      data: gives the shapes of inputs and labels.
      model: a flax module or (init, apply) pair, as in ``models.as_model``.
      loss: ``loss(outputs, labels)``, one value an example; default: that of the data's task,
        see ``tasks.task_of``.
      optimizer: from a learning-rate schedule, such as ``optax.adamw``.
      channel, aggregation: factories that take the config.

    Raises:
      ConfigError: an unknown name, a model that does not take the data, a loss of another shape,
        outputs that the default loss does not take, more servers than packets, local steps with
        gradients, an object that is not of its kind.
    """
    check_name("placement", config.placement, packets.PLACEMENTS)
    check_name("loss_unit", config.loss_unit, channel_lib.LOSS_UNITS)
    check_name("schedule", config.schedule, optimizers.SCHEDULES)
    if model is None:
        check_name("model", config.model, models.MODELS)
        model = models.MODELS[config.model](config, data)
        if config.remat and not getattr(model, "remat", False):
            allowed = f"False with model={config.model!r}, which has no blocks"
            raise ConfigError("remat", True, allowed)
        if config.normalization != getattr(model, "normalization", "group"):
            allowed = f"'group' with model={config.model!r}, which does not normalise"
            raise ConfigError("normalization", config.normalization, allowed)
    elif config.remat:
        allowed = "False with a model of your own, where nn.remat or jax.checkpoint does the same"
        raise ConfigError("remat", True, allowed)
    elif config.normalization != "group":
        allowed = "'group' with a model of your own, which normalises as it is written"
        raise ConfigError("normalization", config.normalization, allowed)
    task = tasks.task_of(data)
    if loss is None:
        if task is None:
            raise ConfigError("loss", None, f"your own, for float labels of {data.name}")
        loss = task.loss
    if channel is None:
        check_name("channel", config.channel, channel_lib.CHANNELS)
        channel = channel_lib.CHANNELS[config.channel]
    if aggregation is None:
        check_name("aggregation", config.aggregation, aggregation_lib.AGGREGATIONS)
        aggregation = aggregation_lib.AGGREGATIONS[config.aggregation]
    if optimizer is None:
        check_name("optimizer", config.optimizer, optimizers.OPTIMIZERS)
        make_optimizer = optimizers.OPTIMIZERS[config.optimizer]
    else:
        make_optimizer = functools.partial(_with_schedule, optimizer)
    as_model = _computing_in(config.compute_dtype, models.as_model(model))
    params, scores = _check_shapes(as_model, loss, task, data, config)
    layout = packets.packet_layout(params, config.packet_size)
    check_servers(config, layout)
    problem = Problem(as_model, loss, scores, layout, channel, aggregation, make_optimizer)
    allowed = "a function of a learning-rate schedule, such as optax.adamw"
    _try_shapes(
        "optimizer", config.optimizer, allowed, lambda p: make_optimizer(config).init(p), params
    )
    _check_channel(problem, config)
    _check_aggregation(problem, config)
    return problem


def _with_schedule(make, config):
    return make(optimizers.learning_rate(config))


def _computing_in(dtype: str, model: models.Model) -> models.Model:
    """The model computed in `dtype`, with float32 parameters, inputs and outputs around it."""
    if dtype == "float32":
        return model

    def computed(function):
        def compute(params, x, *statistics):
            # Flax's normalisations take their statistics in float32 and count on promotion for it.
            with jax.numpy_dtype_promotion("standard"):
                outputs = function(_cast(params, dtype), _cast(x, dtype), *statistics)
            return _cast(outputs, "float32")

        return compute

    return model._replace(apply=computed(model.apply), train=computed(model.train))


def _cast(tree: Any, dtype: str) -> Any:
    def cast(leaf):  # tokens and other integers stay what they are
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def _check_shapes(
    model: models.Model, loss: Callable, task: tasks.Task | None, data: Data, config: Config
) -> tuple[Any, dict[str, Callable]]:
    """Runs the model on shapes alone; what does not fit is refused here, before any compiling.

    Returns:
      The parameters' shapes, and the scores that the outputs allow.
    """
    batch = config.batch_size
    x = jax.ShapeDtypeStruct((batch, *data.train_x.shape[1:]), data.train_x.dtype)
    y = jax.ShapeDtypeStruct((batch, *data.train_y.shape[1:]), data.train_y.dtype)
    takes = f"one that takes inputs of {x.shape[1:]}"
    params = _try_shapes("model", config.model, takes, model.init, jax.random.key(0), x)
    statistics = _try_shapes("model", config.model, takes, model.start, x)
    outputs = _try_shapes("model", config.model, takes, model.apply, params, x, statistics)
    trained = _try_shapes("model", config.model, takes, model.train, params, x, statistics)
    shape = _shapes(outputs)
    if _shapes(trained) != (shape, _shapes(statistics)):
        allowed = "one whose outputs and statistics have the same shapes in training"
        raise ConfigError("model", config.model, allowed)
    wanted = task and task.outputs(batch)
    if task and loss is task.loss and shape != wanted:
        allowed = f"one with outputs of {wanted}, {task.described}, not {shape}"
        raise ConfigError("model", config.model, allowed)
    takes = f"one that takes outputs of {shape} and labels of {y.shape}"
    losses = _try_shapes("loss", getattr(loss, "__name__", loss), takes, loss, outputs, y)
    found = getattr(losses, "shape", losses)
    if found != (batch,):
        raise ConfigError("loss", found, f"one value an example, shape ({batch},)")
    return params, task.scores if task and shape == wanted else {}


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.shape, tree)


def _check_channel(problem: Problem, config: Config) -> None:
    masks = (config.workers, problem.layout.num_packets)

    def deliver(key):
        channel = problem.channel(config)
        if not isinstance(channel, channel_lib.Channel):
            raise TypeError(f"it returned {type(channel).__name__}")
        assignment = packets.assign(
            config.placement, num_packets=masks[1], workers=masks[0], servers=1, key=key
        )
        return channel.sample(channel.init(assignment, key=key), assignment, key=key)[0]

    allowed = "a function of a config that returns a Channel"
    delivered = _try_shapes("channel", config.channel, allowed, deliver, jax.random.key(0))
    found = [(mask.shape, mask.dtype) for mask in jax.tree.leaves(delivered)]
    if found != [(masks, np.dtype(bool))] * 2:
        allowed = f"one that delivers two boolean masks of {masks}, (worker, packet)"
        raise ConfigError("channel", config.channel, f"{allowed}, not {found}")


def _check_aggregation(problem: Problem, config: Config) -> None:
    shape = (config.workers, problem.layout.num_packets, problem.layout.size)
    payloads = []

    def apply(values, mask):
        rule = problem.aggregation(config)
        if not isinstance(rule, aggregation_lib.Aggregation):
            raise TypeError(f"it returned {type(rule).__name__}")
        payloads.append(rule.payload)
        return rule.apply(rule.init(values), values, channel_lib.Delivered(mask, mask))[0]

    values = jax.ShapeDtypeStruct(shape, np.float32)
    mask = jax.ShapeDtypeStruct(shape[:2], bool)
    allowed = "a function of a config that returns an Aggregation"
    result = _try_shapes("aggregation", config.aggregation, allowed, apply, values, mask)
    if (result.shape, result.dtype) != (shape, np.float32):
        allowed = f"one that gives float32 packets of {shape}, (worker, packet, length)"
        raise ConfigError("aggregation", config.aggregation, f"{allowed}, not {result.shape}")
    check_name("payload", payloads[0], ("model", "gradient"))
    if payloads[0] == "gradient" and config.local_steps > 1:
        raise ConfigError("local_steps", config.local_steps, "1 where gradients are exchanged")


def _try_shapes(field: str, value: Any, allowed: str, function: Callable, *shapes: Any) -> Any:
    """Runs a function of the user's on shapes alone; what it raises becomes one line."""
    try:
        return jax.eval_shape(function, *shapes)
    except ConfigError:
        raise
    except Exception as error:  # whatever a model, loss or rule of the user's raises
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(field, value, f"{allowed}; {first_line}") from error


def check_servers(config: Config, layout: packets.PacketLayout) -> None:
    """Refuses a server that would own nothing."""
    if config.servers > layout.num_packets:
        raise ConfigError(
            "servers",
            config.servers,
            f"at most {layout.num_packets}, the packets of {layout.size} that "
            f"{layout.num_parameters} parameters make; lower packet_size for more",
        )
