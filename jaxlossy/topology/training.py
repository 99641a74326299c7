"""Decentralised training of chosen plans in the simulator, all of them at once.

Every active L-node is a worker with a replica. In an epoch its I-nodes send it new samples, it
takes `local_steps` optimizer steps on some of those that it has got so far, and then averages with
its neighbours (``gossip``). A step's work, `batch_size` examples, is shared by all n workers, as
the time model has it. The epoch takes the time of its slowest node, drawn from that model.

Plans of different size and length are one program: workers are padded, and all plans are trained
for as many epochs as the longest takes.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Bool, Float, Int

from jaxlossy import devices as devices_lib
from jaxlossy import draws
from jaxlossy.config import Config, stack_configs
from jaxlossy.topology import gossip
from jaxlossy.topology.model import Plan, Problem
from jaxlossy.topology.networks import Network, as_network, stack
from jaxlossy.topology.tasks import Task

#: What the key of an epoch's delays is for; ``draws.Purpose`` has the others.
DELAY: Any = 16
#: Runs that a CPU advances together: what they touch then stays in its cache.
LIVE = 8


class Split(NamedTuple):
    """The examples as the device holds them, ``(examples, ...)`` each."""

    train_x: jax.Array
    train_y: jax.Array
    test_x: jax.Array
    test_y: jax.Array


def train_network(
    task: Task, data: Split, config: Config, network: Network, *, lossy: bool
) -> dict[str, Any]:
    """Trains one plan, a pure function: `config.steps` epochs in one scan.

    Args:
      task: what is learnt.
      data: its examples.
      config: its config, with the number of workers of the network.
      network: the plan.
      lossy: whether links may lose packets; else `config` says nothing about them.

    Returns:
      Of every epoch: error (as the task says), disagreement (mean squared distance of the replicas
      to the mean model), samples (of all workers) and time (seconds since the start).
    """
    problem, workers = task.problem, len(network.active)
    layout, optimizer = problem.layout, problem.optimizer(config)
    rule, channel = gossip.gossip(network.mixing), problem.channel(config)
    weight = network.active.astype(jnp.float32) / network.active.sum(dtype=jnp.float32)

    share = config.batch_size // network.active.sum()
    counts = jnp.arange(config.batch_size) < jnp.maximum(share, 1)  # of a worker's batch

    def loss_of(params, x, y):
        losses = problem.loss(problem.model.apply(params, x), y)
        return jnp.where(counts, losses, 0).sum() / counts.sum(dtype=losses.dtype)

    def error_of(replica):
        params = jax.tree.map(lambda leaf: leaf[0], layout.unpack(replica[None]))
        return task.error(problem.model.apply(params, data.test_x), data.test_y).mean()

    def local_step(carry, index, count):
        key = draws.derive_key(config.seed, draws.Purpose.BATCH, index)
        uniform = _draw_each(key, jnp.arange(workers), jax.random.uniform, (config.batch_size,))
        place = (uniform * count[:, None].astype(jnp.float32)).astype(jnp.int32)
        batch = jnp.take_along_axis(network.pool, place, axis=1)
        replicas, memory = carry
        params = layout.unpack(replicas)
        grads = jax.vmap(jax.grad(loss_of))(params, data.train_x[batch], data.train_y[batch])
        updates, stepped = jax.vmap(optimizer.update)(grads, memory, params)
        stepped = (layout.pack(optax.apply_updates(params, updates)), stepped)
        learns = network.active & (count > 0)
        return jax.tree.map(
            lambda new, old: jnp.where(_along(learns, new), new, old), stepped, carry
        )

    def epoch(carry, index):
        replicas, memory, links, clock = carry
        count = (network.held + (index + 1).astype(jnp.float32) * network.arriving).astype(
            jnp.int32
        )
        count = jnp.minimum(count, network.pool.shape[1])
        replicas, memory = jax.lax.fori_loop(
            0,
            config.local_steps,
            lambda i, c: local_step(c, index * config.local_steps + i, count),
            (replicas, memory),
        )
        delivered = None
        if lossy:
            key = draws.derive_key(config.seed, draws.Purpose.LOSS, index)
            delivered, links = gossip.transmit(channel, links, workers, layout.num_packets, key=key)
        replicas = rule.apply((), replicas, delivered)[0]
        clock = clock + _epoch_time(network, draws.derive_key(config.seed, DELAY, index))
        mean = jnp.tensordot(weight, replicas, 1)
        apart = ((replicas - mean[None]) ** 2).sum(axis=(1, 2)) @ weight
        error = jax.vmap(error_of)(replicas) @ weight if task.of_replicas else error_of(mean)
        samples = jnp.where(network.active, count, 0).sum()
        report = {"error": error, "disagreement": apart, "samples": samples, "time": clock}
        return (replicas, memory, links, clock), report

    key = draws.derive_key(config.seed, draws.Purpose.INIT)
    params = problem.model.init(key, data.train_x[: config.batch_size])
    params = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *leaf.shape)), params)
    links = ()
    if lossy:
        key = draws.derive_key(config.seed, draws.Purpose.CHANNEL_INIT)
        links = gossip.init_links(channel, workers, layout.num_packets, key=key)
    carry = (layout.pack(params), jax.vmap(optimizer.init)(params), links, jnp.zeros(()))
    with jax.default_matmul_precision(config.matmul_precision):
        return jax.lax.scan(epoch, carry, jnp.arange(config.steps))[1]


def _along(mask: Bool[Array, " worker"], leaf: Array) -> Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))


def _epoch_time(network: Network, key: jax.Array) -> Float[Array, ""]:
    """One epoch's duration: the slowest of all nodes, then the exchange."""
    least = jnp.concatenate([network.work, network.delay])
    mean = jnp.concatenate([network.straggle, network.late])
    names = [2 * jnp.arange(len(network.work)), 2 * jnp.arange(len(network.delay)) + 1]
    late = mean * _draw_each(key, jnp.concatenate(names), jax.random.exponential, ())
    return network.exchange + (least + late).max()


def _draw_each(key: jax.Array, names: Int[Array, " node"], draw: Callable, shape: tuple) -> Array:
    """A draw for each node, from a key of its own, so that padding changes nothing."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, names)
    return jax.vmap(lambda key: draw(key, shape))(keys)


def train_plans(
    task: Task, chosen: Sequence[tuple[Problem, Plan]], *, seeds: Sequence[int]
) -> xr.Dataset:
    """Trains every plan with every seed, all in one compiled program.

    Args:
      task: what is learnt.
      chosen: plans, each with its problem.
      seeds: of the initial model, batches, losses, delays and shards.

    Returns:
      The numbers of ``train_network`` with dimensions (plan, seed, epoch), NaN past a plan's own
      epochs, which are the coordinate `epochs`.

    Raises:
      ConfigError: as ``as_network``.
    """
    networks = [as_network(problem, plan, task, seed=s) for problem, plan in chosen for s in seeds]
    network = stack(networks)
    epochs = np.array([plan.epochs for _, plan in chosen])
    config = dataclasses.replace(
        task.config, workers=network.active.shape[1], steps=int(epochs.max())
    )
    configs = [dataclasses.replace(config, seed=seed) for _ in chosen for seed in seeds]
    report = _train_all(task, stack_configs(configs), network)
    shape = (len(chosen), len(seeds), config.steps)
    ds = xr.Dataset(
        {
            name: (("plan", "seed", "epoch"), values.reshape(shape))
            for name, values in report.items()
        },
        {
            "plan": np.arange(len(chosen)),
            "seed": np.asarray(seeds),
            "epoch": np.arange(1, config.steps + 1),
            "epochs": ("plan", epochs),
        },
        {"task": task.data.name},
    )
    return ds.where(ds["epoch"] <= ds["epochs"]).transpose("plan", "seed", "epoch")


def _train_all(task: Task, configs: Config, network: Network) -> dict[str, np.ndarray]:
    """``train_network`` of every row, over all devices."""
    lossy = task.config.channel != "bernoulli" or bool(task.config.uplink_drop_probability)
    data = Split(*(getattr(task.data, name) for name in Split._fields))
    runs = len(network.exchange)
    mesh = devices_lib.config_mesh(devices_lib.useful(jax.devices(), runs, 1))
    share = math.ceil(runs / mesh.size)  # of a device
    live = min(share, LIVE) if jax.default_backend() == "cpu" else share
    batch = mesh.size * live * math.ceil(share / live)
    items = jax.tree.map(lambda rows: rows[np.arange(batch) % runs], (configs, network))
    compiled = devices_lib.compile_over_configs(
        lambda data, state, item: (state, train_network(task, data, *item, lossy=lossy)),
        *(data, (), items),
        mesh=mesh,
        live=live,
    )
    data = devices_lib.place(data, mesh, split=False)
    report = compiled(data, (), devices_lib.place(items, mesh, split=True))[1]
    return {name: np.asarray(rows, np.float64)[:runs] for name, rows in report.items()}


def at_end(ds: xr.Dataset) -> xr.Dataset:
    """The numbers after each plan's last epoch, with dimensions (plan, seed)."""
    return ds.sel(epoch=ds["epochs"])
