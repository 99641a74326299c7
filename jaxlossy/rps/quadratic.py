"""A quadratic problem: one whose smoothness, noise and spread between workers are known exactly.

A worker's objective is the mean of ``f(x; b) = sum_d curvature_d x_d^2 / 2 - b . x`` over the data
points b of its shard, so its gradient at x is ``curvature x - mean(b)``. A batch replaces the mean
by that of a few points. Where the curvature is 0 gradients do not depend on the model at all.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxlossy import train
from jaxlossy.config import Config, stack_configs
from jaxlossy.data import from_arrays
from jaxlossy.errors import ConfigError
from jaxlossy.grid import expand, make_groups
from jaxlossy.theory import Constants


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic:
    """The problem.

    Attributes:
      points: b, one row an example.
      labels: a class of each example: what shards are skewed by.
      curvature: second derivatives, >= 0.
      start: x before the first step.
    """

    points: Float[np.ndarray, "example parameter"]
    labels: Int[np.ndarray, " example"]
    curvature: Float[np.ndarray, " parameter"]
    start: Float[np.ndarray, " parameter"]

    def objects(self) -> dict[str, Any]:
        """Model, loss and data as ``jaxlossy.sweep`` takes them.

        The only test example is the mean of all points, so that test losses are f.

        >>> import jaxlossy
        >>> problem = clusters(classes=2, parameters=3)
        >>> ds = jaxlossy.sweep({"steps": 50}, **problem.objects(), verbose=False)
        >>> bool(ds["test_loss"][0, -1] < 0.1)
        True
        """
        curvature, start = (jnp.asarray(a, jnp.float32) for a in (self.curvature, self.start))

        def quadratic(x, b):  # its name is what results say the model is
            return 0.5 * (curvature * x**2).sum() - b @ x

        center = self.points.mean(axis=0, keepdims=True)
        return {
            "model": (lambda key, b: start, quadratic),
            "loss": lambda outputs, labels: outputs,
            "data": from_arrays(
                (self.points, self.labels), (center, self.labels[:1]), name="quadratic"
            ),
        }


def clusters(
    *,
    classes: int = 5,
    parameters: int = 8,
    examples: int = 960,
    distance: float = 1.0,
    noise: float = 1.0,
    curvature: Any = 1.0,
    start: float = 2.0,
    seed: int = 0,
) -> Quadratic:
    """Points around one center a class, their overall mean 0.

    Args:
      classes, parameters, examples: how many.
      distance: standard deviation of the centers' coordinates.
      noise: standard deviation of a point's coordinates around its center.
      curvature: a number >= 0, or one per parameter.
      start: every coordinate of x before the first step.
      seed: of the points.

    Raises:
      ConfigError: a curvature below 0.
    """
    curvature = np.broadcast_to(np.asarray(curvature, float), (parameters,))
    if not (curvature >= 0).all():
        raise ConfigError("curvature", curvature.tolist(), "numbers >= 0")
    rng = np.random.default_rng(seed)
    labels = np.arange(examples) % classes
    centers = distance * rng.normal(size=(classes, parameters))
    points = centers[labels] + noise * rng.normal(size=(examples, parameters))
    points -= points.mean(axis=0)
    return Quadratic(points, labels, curvature, np.full(parameters, float(start)))


def constants(
    problem: Quadratic, shards: Int[np.ndarray, "worker example"], batch_size: int
) -> Constants:
    """L, sigma, zeta and the gap, exactly, of workers with these shards and batches.

    The gap is inf where the objective has no minimum.

    >>> problem = clusters(noise=0.0, distance=0.0, start=2.0, parameters=3)
    >>> constants(problem, np.arange(8).reshape(2, 4), batch_size=1)
    Constants(smoothness=1.0, sigma=0.0, zeta=0.0, gap=6.0)
    """
    owned = problem.points[shards]
    means = owned.mean(axis=1)
    center = means.mean(axis=0)
    variance = ((owned - means[:, None]) ** 2).sum(axis=2).mean() / batch_size
    spread = ((means - center) ** 2).sum(axis=1).mean()
    slope = problem.curvature * problem.start - center
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.where(slope == 0, 0.0, slope**2 / (2 * problem.curvature))
    smoothness = problem.curvature.max()
    return Constants(*map(float, (smoothness, variance**0.5, spread**0.5, gaps.sum())))


class Trajectories(NamedTuple):
    """Every step of the configs of a sweep, in its order; step 0 is the start.

    Attributes:
      configs: the configs.
      shards: each config's.
      mean_model: of the replicas.
      disagreement: mean squared distance of the replicas to the mean model.
    """

    configs: list[Config]
    shards: Int[np.ndarray, "config worker example"]
    mean_model: Float[np.ndarray, "config step parameter"]
    disagreement: Float[np.ndarray, "config step"]


def trajectories(config: Any, problem: Quadratic) -> list[Trajectories]:
    """Trains a sweep on the problem and keeps the mean model of every step.

    Training is ``train.advance``, as in a sweep, and all configs of a group run at once; sweeps
    report at evaluations only.

    Args:
      config: as in ``jaxlossy.sweep``.
      problem: the problem.

    Returns:
      One for each group of configs that share a program.

    Raises:
      ConfigError: as ``jaxlossy.sweep``.
    """
    groups = make_groups(
        expand(config)[0],
        data_dir=None,
        optimizer=None,
        channel=None,
        aggregation=None,
        **problem.objects(),
    )
    return [_train_group(group) for group in groups]


def _train_group(group: Any) -> Trajectories:
    def train_one(config, shards, examples):
        def view(state):
            mean = state.replicas.mean(axis=0, keepdims=True)
            distance = ((state.replicas - mean) ** 2).sum(axis=(1, 2)).mean()
            return group.problem.layout.unpack(mean)[0], distance

        def advance(state, _):
            state, _ = train.advance(group.problem, config, state, examples, shards, 1)
            return state, view(state)

        state = train.init(group.problem, config, examples)
        _, views = jax.lax.scan(advance, state, length=config.steps)
        return jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest]), view(state), views
        )

    batched = jax.jit(jax.vmap(train_one, in_axes=(0, 0, None)))
    views = batched(
        stack_configs(group.configs),
        jnp.asarray(group.shards),
        jax.tree.map(jnp.asarray, group.examples),
    )
    mean_model, distance = (np.asarray(view, np.float64) for view in views)
    return Trajectories(group.configs, group.shards, mean_model, distance)
