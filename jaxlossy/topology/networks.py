"""Plans as training sees them: arrays over workers, padded so that plans of any size stack."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxlossy.errors import ConfigError
from jaxlossy.shards import make_shards
from jaxlossy.topology.graphs import adjacency_of, metropolis
from jaxlossy.topology.model import Plan, Problem
from jaxlossy.topology.tasks import Task

#: Classes that float labels are cut into for the label skew, of equally many examples each.
QUANTILES = 10


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Network:
    """A plan as training sees it. What pads it is inactive, mixes with nobody and delays nobody.

    Attributes:
      mixing: Metropolis weights, entry (receiver, sender).
      active: False for padding.
      held: samples that a worker has before the first epoch.
      arriving: samples that it gets from its I-nodes every epoch; fractions add up over epochs.
      pool: its samples in the order of arrival, as indices of the training set.
      work, straggle: least time of a worker in an epoch, and mean of the exponential on top,
        seconds.
      delay, late: the same of the active I-nodes.
      exchange: time of the exchange, seconds.
    """

    mixing: Float[Array, "worker worker"]
    active: Bool[Array, " worker"]
    held: Float[Array, " worker"]
    arriving: Float[Array, " worker"]
    pool: Int[Array, "worker example"]
    work: Float[Array, " worker"]
    straggle: Float[Array, " worker"]
    delay: Float[Array, " source"]
    late: Float[Array, " source"]
    exchange: Float[Array, ""]


def as_network(problem: Problem, plan: Plan, task: Task, *, seed: int) -> Network:
    """One plan, without padding, on the host; its L-nodes get shards of the training set.

    Args:
      problem: gives samples and delays.
      plan: what is active; I-nodes supply ``attached_to``, else their cheapest active L-node.
      task: gives the training set and its label skew between L-nodes.
      seed: of the shards.

    Raises:
      ConfigError: an L-node would need more samples than its share of the training set.
    """
    nodes, sources = np.array(plan.learning_nodes), np.array(plan.information_nodes, int)
    attached = plan.attached_to
    if attached is None:
        attached = nodes[np.argmin(problem.cIL[np.ix_(sources, nodes)], axis=1)]
    arriving = np.zeros(problem.learning)
    np.add.at(arriving, np.array(attached, int), problem.r[sources])

    labels = task.data.train_y
    if task.data.num_classes is None:
        labels = np.digitize(labels, np.quantile(labels, np.arange(1, QUANTILES) / QUANTILES))
    skew = task.config.dirichlet_alpha
    shards = make_shards(labels, workers=len(nodes), dirichlet_alpha=skew, seed=seed)
    needed = math.floor((problem.X0 + plan.epochs * arriving)[nodes].max())
    if needed > shards.shape[1]:
        allowed = f"at most {shards.shape[1]}, a share of {task.data.name} for {len(nodes)} L-nodes"
        raise ConfigError("samples of an L-node", needed, allowed)

    adjacency = adjacency_of(plan.edges, nodes.tolist())
    arrays = dict(
        mixing=metropolis(adjacency),
        active=np.ones(len(nodes), bool),
        held=problem.X0[nodes],
        arriving=arriving[nodes],
        pool=shards[:, : max(needed, 1)],
        work=problem.work[nodes] / len(nodes),
        straggle=problem.strag[nodes],
        delay=problem.dmin[sources],
        late=problem.dexp[sources],
        exchange=problem.tg * adjacency.sum(axis=1).max(),
    )
    kinds: dict[str, Any] = {"active": np.bool_, "pool": np.int32}  # all others are float32
    converted: dict[str, Any] = {
        name: np.asarray(array, kinds.get(name, np.float32)) for name, array in arrays.items()
    }
    return Network(**converted)


def stack(networks: Sequence[Network]) -> Network:
    """Networks of any sizes as one, padded, every array with a leading axis."""

    def pad(*arrays):
        shape = (max(lengths) for lengths in zip(*(array.shape for array in arrays), strict=True))
        padded = np.zeros((len(arrays), *shape), arrays[0].dtype)
        for index, array in enumerate(arrays):
            padded[(index, *map(slice, array.shape))] = array
        return padded

    padded = jax.tree.map(pad, *networks)
    alone = np.eye(padded.active.shape[1], dtype=np.float32) * ~padded.active[:, :, None]
    return dataclasses.replace(padded, mixing=padded.mixing + alone)
