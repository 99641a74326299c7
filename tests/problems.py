"""A small problem that the tests share: three classes in six dimensions, a tiny MLP."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlossy import data as data_lib
from jaxlossy.config import make_config
from jaxlossy.problem import as_examples, make_problem
from jaxlossy.shards import make_shards

SMALL = {
    "workers": 4,
    "batch_size": 4,
    "steps": 4,
    "eval_every": 2,
    "features": (5,),
    "packet_size": 7,
    "learning_rate": 0.2,
}


@functools.cache
def small_data() -> data_lib.Data:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 6))

    def draw(count):
        y = rng.integers(0, 3, count)
        return centers[y] + rng.normal(size=(count, 6)), y

    return data_lib.from_arrays(draw(60), draw(30), name="small")


def small(**fields):
    """Problem, config, examples and shards of one small run, with any field changed."""
    config = make_config({**SMALL, **fields})
    data = small_data()
    problem = make_problem(config, data)
    shards = make_shards(
        data.train_y,
        workers=config.workers,
        dirichlet_alpha=config.dirichlet_alpha,
        seed=config.shard_seed,
    )
    return problem, config, jax.tree.map(jnp.asarray, as_examples(data)), shards


def loss_on(problem, params, x, y):
    return problem.loss(problem.model.apply(params, x), y).mean()
