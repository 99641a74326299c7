"""Optimizers by name, with a learning rate that may be traced, schedule and all."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from jaxlossy.config import Config


def cosine(config: Config, count: jax.Array) -> jax.Array:
    """From 1 to 0 along half a cosine over all optimizer steps (arXiv 1608.03983)."""
    total = config.steps * config.local_steps
    return 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(count / total, 1.0)))


def exponential(config: Config, count: jax.Array) -> jax.Array:
    """Multiplied by decay_rate every decay_steps from decay_begin on, smoothly in between."""
    return config.decay_rate ** (jnp.maximum(count - config.decay_begin, 0) / config.decay_steps)


def steps(config: Config, count: jax.Array) -> jax.Array:
    """Multiplied by decay_rate every decay_steps from decay_begin on, at once.

    With decay_begin 40 and decay_steps 40, that is after 80, 120, 160, ... optimizer steps.
    """
    passed = jnp.maximum(count - config.decay_begin, 0) // config.decay_steps
    return config.decay_rate ** passed.astype(jnp.float32)


#: Name to decay: the factor on the learning rate after `count` optimizer steps.
SCHEDULES: dict[str, Callable[[Config, jax.Array], jax.Array]] = {
    "constant": lambda config, count: jnp.ones(()),
    "cosine": cosine,
    "exponential": exponential,
    "steps": steps,
}


def learning_rate(config: Config) -> optax.Schedule:
    """The learning rate as a function of the number of optimizer steps taken.

    Linear warm-up over the first `warmup_steps` (step k of w takes k/w of the rate) times the
    schedule. Written here because optax's schedules compare their parameters in Python, which a
    traced one cannot.

    >>> from jaxlossy.config import make_config
    >>> rate = learning_rate(make_config({"learning_rate": 0.5, "warmup_steps": 4}))
    >>> [float(rate(count)) for count in (0, 1, 3, 9)]
    [0.125, 0.25, 0.5, 0.5]
    """
    decay = SCHEDULES[config.schedule]

    def schedule(count):
        warmup = jnp.minimum(1.0, (count + 1) / jnp.maximum(config.warmup_steps, 1))
        return config.learning_rate * warmup * decay(config, count)

    return schedule


#: Name to factory: how a config becomes an optimizer.
OPTIMIZERS: dict[str, Callable[[Config], optax.GradientTransformation]] = {
    "sgd": lambda config: optax.sgd(learning_rate(config)),
    "momentum": lambda config: optax.sgd(learning_rate(config), momentum=config.momentum),
    "adam": lambda config: optax.adam(learning_rate(config)),
}
