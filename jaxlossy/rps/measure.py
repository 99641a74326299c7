"""The mixing coefficients of the theory, measured with the code that training runs on."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from jaxlossy.aggregation import average_arrived
from jaxlossy.channel import bernoulli, transmit
from jaxlossy.errors import ConfigError, check_name
from jaxlossy.packets import assign
from jaxlossy.theory import Coefficients, coefficients

#: Numbers held at once while trials run: few enough to stay in a CPU's cache.
LIVE_NUMBERS = 2**20


class Measured(NamedTuple):
    """Means over trials and their standard errors, Float[probability] each."""

    mean: Coefficients
    error: Coefficients


def mixing_matrix(
    placement: str,
    *,
    workers: int,
    servers: int,
    drop_probability: Float[Array, ""] | float,
    key: jax.Array,
) -> Float[Array, "packet worker worker"]:
    """W of one exchange, (packet, from, to), of as many packets as servers, one each.

    The packets' values are unit impulses, one per worker, so that what comes out is W itself.
    """
    assign_key, loss_key = jax.random.split(key)
    assignment = assign(
        placement, num_packets=servers, workers=workers, servers=servers, key=assign_key
    )
    channel = bernoulli(drop_probability, drop_probability)
    delivered, _ = transmit(channel, (), assignment, key=loss_key)
    impulses = jnp.broadcast_to(jnp.eye(workers)[:, None], (workers, servers, workers))
    return average_arrived(impulses, delivered).transpose(1, 2, 0)


def measure_coefficients(
    placement: str,
    workers: int,
    drop_probability: Any,
    *,
    servers: int = 1,
    trials: int = 4000,
    seed: int = 0,
) -> Measured:
    """Coefficients of simulated exchanges, from the traces of W, W W' and W A W'.

    A trial is one exchange; its value is the mean over its packets. All drop probabilities use the
    same random numbers, and one compiled program.

    Args:
      placement: 'random' or 'separate', as in ``theory.coefficients``.
      workers: N.
      drop_probability: one p or a sequence.
      servers: S, and the number of packets; at most N with 'random'.
      trials: at least 2.
      seed: of the placements and losses.

    Raises:
      ConfigError: a value outside what is said above.

    >>> mean, error = measure_coefficients("random", 4, [0.0, 0.1], trials=500)
    >>> mean.beta.round(1), bool(error.beta[1] < 0.01)
    (array([0. , 0.1]), True)
    """
    _check(placement, workers, servers, drop_probability, trials)
    p = np.atleast_1d(np.asarray(drop_probability, np.float32))
    keys = jax.random.split(jax.random.key(seed), trials)
    samples = np.asarray(_sample(placement, workers, servers, p, keys), np.float64)
    samples = np.concatenate([samples, samples[..., 1:2] - samples[..., 2:]], axis=-1)
    error = samples.std(axis=1, ddof=1) / np.sqrt(trials)
    return Measured(Coefficients(*samples.mean(axis=1).T), Coefficients(*error.T))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sample(placement, workers, servers, drop_probability, keys):
    """alpha0, alpha1 and alpha2 of every probability and trial."""

    def trial(p, key):
        W = mixing_matrix(placement, workers=workers, servers=servers, drop_probability=p, key=key)
        first = jnp.trace(W, axis1=1, axis2=2)
        second = (W**2).sum(axis=(1, 2))
        averaged = (W.sum(axis=2) ** 2).sum(axis=1) / workers
        traces = jnp.stack([first, second, averaged]).mean(axis=1)
        return (traces - 1) / max(workers - 1, 1)  # the trace of aI + (1-a)A is 1 + a(N-1)

    chunks = math.ceil(len(keys) * servers * workers**2 / LIVE_NUMBERS)
    live = math.ceil(len(keys) / chunks)
    return jax.lax.map(
        lambda p: jax.lax.map(functools.partial(trial, p), keys, batch_size=live), drop_probability
    )


def coefficient_table(
    placements: Sequence[str],
    workers: Sequence[int],
    servers: Sequence[int],
    drop_probability: Sequence[float],
    *,
    trials: int,
) -> pd.DataFrame:
    """Exact coefficients beside measured ones, a row for each combination.

    Returns:
      Columns placement, num_workers, drop_probability, alpha0, alpha1, alpha2, beta; then, for each
      coefficient, measured_ and its standard error; last num_servers.

    Raises:
      ConfigError: as ``measure_coefficients``.
    """
    combinations = list(itertools.product(placements, workers, servers))
    for placement, n, s in combinations:  # refused before anything is compiled
        _check(placement, n, s, drop_probability, trials)
    tables = []
    for placement, n, s in combinations:
        exact = coefficients(placement, n, np.asarray(drop_probability, float))
        mean, error = measure_coefficients(placement, n, drop_probability, servers=s, trials=trials)
        columns = {
            "placement": placement,
            "num_workers": n,
            "drop_probability": drop_probability,
            **exact._asdict(),
        }
        for name in Coefficients._fields:
            columns[f"measured_{name}"] = getattr(mean, name)
            columns[f"measured_{name}_se"] = getattr(error, name)
        tables.append(pd.DataFrame({**columns, "num_servers": s}))
    return pd.concat(tables, ignore_index=True)


def _check(placement: str, workers: int, servers: int, drop_probability: Any, trials: int) -> None:
    check_name("placement", placement, ("random", "separate"))
    if workers < 1:
        raise ConfigError("workers", workers, "an integer >= 1")
    if servers < 1:
        raise ConfigError("servers", servers, "an integer >= 1")
    if placement == "random" and servers > workers:
        allowed = f"at most workers={workers} with placement='random', where servers are workers"
        raise ConfigError("servers", servers, allowed)
    if trials < 2:
        raise ConfigError("trials", trials, "an integer >= 2")
    p = np.asarray(drop_probability)
    if not ((p >= 0) & (p <= 1)).all():
        raise ConfigError("drop_probability", drop_probability, "numbers in [0, 1]")
