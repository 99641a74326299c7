"""What the labels of a data set ask of a model: its outputs, its loss and its scores."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxlossy.data import Data


class Task(NamedTuple):
    """A kind of labels.

    Attributes:
      outputs: ``shapes = outputs(batch)`` of what a model puts out for so many examples.
      described: the same in words.
      loss: ``loss(outputs, labels)``, one value an example.
      scores: name to ``score(outputs, labels)``, one value an example, the higher the better.
    """

    outputs: Callable[[int], Any]
    described: str
    loss: Callable[[Any, jax.Array], jax.Array]
    scores: dict[str, Callable[[Any, jax.Array], jax.Array]]


def task_of(data: Data) -> Task | None:
    """The task that a data set is for; None for a regression, whose loss is the user's.

    >>> import numpy as np
    >>> from jaxlossy.data import from_arrays
    >>> x, y = np.zeros((3, 2)), np.array([0, 1, 2])
    >>> task_of(from_arrays((x, y), (x, y))).outputs(32)
    (32, 3)
    """
    classes, slots = data.num_classes, data.num_slots
    if classes is None:
        return None
    if slots is None:
        scores = {"accuracy": accuracy}
        return Task(lambda batch: (batch, classes), "one a class", cross_entropy, scores)
    length = data.train_x.shape[1]
    return Task(
        lambda batch: ((batch, classes), (batch, length, slots)),
        "one an intent, and one a slot for every token",
        utterance_loss,
        {"accuracy": intent_accuracy, "slot_accuracy": slot_accuracy},
    )


def cross_entropy(
    outputs: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """Softmax cross-entropy in nats, one value an example: the default loss of classes."""
    # Not with_integer_labels: the gradient of an indexing is a scatter, which is slow on CPUs.
    return optax.softmax_cross_entropy(outputs, jax.nn.one_hot(labels, outputs.shape[-1]))


def accuracy(
    outputs: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """1 where the largest output is the label's, else 0."""
    return (outputs.argmax(axis=-1) == labels).astype(jnp.float32)


Utterances = tuple[Float[Array, "batch intents"], Float[Array, "batch time slots"]]


def utterance_loss(
    outputs: Utterances, labels: Int[Array, "batch one_and_time"]
) -> Float[Array, " batch"]:
    """Cross-entropy of the intent, plus the mean cross-entropy of the slots of an utterance.

    Args:
      outputs: of the intent and of every token's slot.
      labels: the intent, then every token's slot, -1 where there is no token.

    >>> labels = jnp.array([[0, 1, -1], [1, 0, 0]])
    >>> utterance_loss((jnp.zeros((2, 2)), jnp.zeros((2, 2, 4))), labels)  # log 2 + log 4
    Array([2.0794415, 2.0794415], dtype=float32)
    """
    intent, slots = labels[:, 0], labels[:, 1:]
    of_slots = cross_entropy(outputs[1], jnp.maximum(slots, 0))
    return cross_entropy(outputs[0], intent) + _mean_of_real(of_slots, slots)


def intent_accuracy(
    outputs: Utterances, labels: Int[Array, "batch one_and_time"]
) -> Float[Array, " batch"]:
    """1 where the intent is right, else 0."""
    return accuracy(outputs[0], labels[:, 0])


def slot_accuracy(
    outputs: Utterances, labels: Int[Array, "batch one_and_time"]
) -> Float[Array, " batch"]:
    """The share of an utterance's tokens whose slot is right."""
    return _mean_of_real(accuracy(outputs[1], labels[:, 1:]), labels[:, 1:])


def _mean_of_real(values, slots):
    real = slots >= 0
    count = jnp.maximum(real.sum(axis=1), 1).astype(values.dtype)
    return jnp.where(real, values, 0).sum(axis=1) / count
