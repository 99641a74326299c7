"""Learning tasks that decentralised training is tried on; both data sets ship with scikit-learn."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlossy import data as data_lib
from jaxlossy.config import Config, make_config
from jaxlossy.data import Data
from jaxlossy.errors import ConfigError
from jaxlossy.problem import Problem, make_problem


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What L-nodes learn, and how.

    Attributes:
      name: what results call it.
      data: training and test examples.
      config: batch size, learning rate, local steps of an epoch, losses of the links and the label
        skew of what L-nodes own count; workers, servers and steps do not.
      problem: model, loss, optimizer and packets.
      error: ``error(outputs, labels)``, one value an example; its mean over the test set is the
        error that plans are held to.
      of_replicas: whether that is the error of the L-nodes' own models, averaged over them, or
        of the mean of their models.
    """

    name: str
    data: Data
    config: Config
    problem: Problem
    error: Callable[[Any, Any], jax.Array]
    of_replicas: bool


def make_task(
    data: Data,
    *,
    error: Callable[[Any, Any], jax.Array],
    of_replicas: bool,
    config: dict[str, Any] | None = None,
    **objects: Any,
) -> Task:
    """A task from data, fields of a config and, as in ``jaxlossy.sweep``, model, loss, optimizer.

    Raises:
      ConfigError: as ``make_config`` and ``make_problem``; gradients exchanged by gossip.
    """
    made = make_config({"eval_every": 1, **(config or {})})
    if made.aggregation != "model_averaging":
        raise ConfigError("aggregation", made.aggregation, "model_averaging, for gossip")
    return Task(data.name, data, made, make_problem(made, data, **objects), error, of_replicas)


_SKEWED = {"dirichlet_alpha": 0.1, "loss_unit": "packet"}


def digits(**fields: Any) -> Task:
    """Logistic regression on 8×8 digits; error: the share of test digits that are wrong.

    L-nodes own few classes each (label skew 0.1) and their learning rate falls as 1 / epoch, so
    that what the mean model has learnt depends on how fast the graph mixes.

    Args:
      **fields: of the config, in place of the task's.
    """
    return make_task(
        data_lib.load("digits"),
        error=lambda outputs, labels: (outputs.argmax(axis=-1) != labels).astype(jnp.float32),
        of_replicas=False,
        config={
            "model": "logistic",
            "learning_rate": 1.0,
            "local_steps": 4,
            "batch_size": 24,
            **_SKEWED,
            **fields,
        },
        optimizer=lambda rate: optax.sgd(_falling(rate)),
    )


def diabetes(**fields: Any) -> Task:
    """Ridge regression on scikit-learn's diabetes; error: mean squared error over the variance.

    Of the replicas: in linear least squares the mean model hardly sees the graph, whereas what the
    L-nodes hold, and would use, is off by their disagreement. L-nodes differ in the range of the
    target that they own (label skew over its deciles).

    Args:
      **fields: of the config, in place of the task's.
    """
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    x, y = load_diabetes(return_X_y=True)
    parts = train_test_split(x, y, test_size=110, random_state=0)
    train_x, test_x, train_y, test_y = (np.asarray(part, float) for part in parts)
    center, scale = train_x.mean(axis=0), train_x.std(axis=0)
    mean, deviation = train_y.mean(), train_y.std()
    data = data_lib.from_arrays(
        ((train_x - center) / scale, (train_y - mean) / deviation),
        ((test_x - center) / scale, (test_y - mean) / deviation),
        name="diabetes",
    )
    variance = float(data.test_y.var())

    def squared(outputs, labels):
        return (outputs - labels) ** 2

    return make_task(
        data,
        error=lambda outputs, labels: squared(outputs, labels) / variance,
        of_replicas=True,
        config={"learning_rate": 0.05, "batch_size": 48, **_SKEWED, **fields},
        model=(lambda key, x: jnp.zeros(x.shape[1] + 1), lambda w, x: x @ w[:-1] + w[-1]),
        loss=squared,
        optimizer=lambda rate: optax.chain(
            optax.add_decayed_weights(1.0), optax.sgd(_falling(rate))
        ),
    )


def _falling(rate: optax.Schedule) -> optax.Schedule:
    """The schedule, divided by 1 + steps / 20: disagreement falls as it does."""
    return lambda count: rate(count) / (1 + count / 20)
