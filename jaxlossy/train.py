"""One config: state, step, evaluation. The only batching in here is the worker axis.

A step is `local_steps` optimizer steps on every worker and the aggregation of what the network
delivers. What chance decides about it, batches and losses, is drawn before, for several steps at
once. A *segment* is `eval_every` steps and an evaluation; ``run`` strings segments together, and is
the reference that a sweep of hundreds has to equal.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxlossy import channel as channel_lib
from jaxlossy import packets
from jaxlossy.chunks import map_in_place
from jaxlossy.config import Config
from jaxlossy.devices import platform_dependent
from jaxlossy.draws import Draws, Purpose, assign, derive_key, draw, drawn_together
from jaxlossy.kernels import copies
from jaxlossy.kernels.calls import call, like
from jaxlossy.packed import Packed
from jaxlossy.problem import Examples, Problem


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Everything a config carries from step to step.

    Attributes:
      step: steps taken.
      replicas: every worker's parameters.
      optimizer: optax state, its leaves with a leading worker axis.
      channel, aggregation: what the channel and the rule remember.
      statistics: every worker's running statistics, its own, with a leading worker axis; they are
        no part of what is exchanged. Empty for a model without.
    """

    step: Int[Array, ""]
    replicas: Float[Array, "worker packet length"]
    optimizer: Any
    channel: Any
    aggregation: Any
    statistics: Any


class Report(NamedTuple):
    """What a step reports: the workers' mean batch loss before it, and packets on the wire."""

    train_loss: jax.Array
    traffic: channel_lib.Traffic


def init(problem: Problem, config: Config, examples: Examples) -> State:
    """The state before the first step: all replicas equal."""
    layout, workers = problem.layout, config.workers
    key = derive_key(config.seed, Purpose.INIT)
    x = examples.train_x[: config.batch_size]

    def for_everyone(tree):
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *jnp.shape(leaf))), tree)

    everyone = for_everyone(problem.model.init(key, x))
    replicas = layout.pack(everyone)
    zero = jnp.zeros((), jnp.int32)
    return State(
        step=zero,
        replicas=replicas,
        optimizer=jax.vmap(problem.optimizer(config).init)(everyone),
        channel=problem.channel(config).init(
            assign(problem, config, zero), key=derive_key(config.seed, Purpose.CHANNEL_INIT)
        ),
        aggregation=problem.aggregation(config).init(replicas),
        statistics=for_everyone(problem.model.start(x)),
    )


def _take(examples: jax.Array, indices: jax.Array) -> jax.Array:
    """Examples with these indices; a kernel copies whole ones on CPUs, where XLA does not."""
    table = examples.reshape(len(examples), -1)

    def on_cpu(table, indices):
        shape = like(table, *indices.shape, table.shape[1])
        return call(copies.take_rows, shape, table, indices)

    def in_xla(table, indices):
        return table[indices]

    has_kernel = table.dtype.itemsize == 4
    rows = platform_dependent(table, indices, cpu=on_cpu if has_kernel else in_xla, default=in_xla)
    return rows.reshape(*indices.shape, *examples.shape[1:])


def step(
    problem: Problem, config: Config, state: State, examples: Examples, draws: Draws
) -> tuple[State, Float[Array, ""]]:
    """One round: local optimizer steps, then aggregation of what is delivered.

    Args:
      state: its channel belongs to whoever draws, and stays as it is.
      draws: of this step.

    Returns:
      The next state, and the workers' mean batch loss.
    """
    layout, optimizer = problem.layout, problem.optimizer(config)
    rule = problem.aggregation(config)

    def loss_of(params, statistics, x, y):
        outputs, statistics = problem.model.train(params, x, statistics)
        return problem.loss(outputs, y).mean(), statistics

    def gradient(params, statistics, batch):
        x, y = (_take(leaf, batch) for leaf in (examples.train_x, examples.train_y))
        return jax.value_and_grad(loss_of, has_aux=True)(params, statistics, x, y)

    def update(states, grads):
        params, optimizer_state = states
        updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), ()

    def local_step(states, batch):
        *states, statistics = states
        (loss, statistics), grads = gradient(states[0], statistics, batch)
        states, _ = update(states, grads)
        return (*states, statistics), loss

    def payload(statistics, given):
        params, batch = given
        (loss, statistics), grads = gradient(params, statistics, batch)
        return statistics, (layout.pack_one(grads).ravel(), loss)

    over_workers = functools.partial(map_in_place, problem.live_workers)
    replicas = Packed.of(layout, state.replicas)
    if rule.payload == "model":
        (replicas, optimizer_state, statistics), losses = over_workers(
            lambda states, batches: jax.lax.scan(local_step, states, batches),
            (replicas, state.optimizer, state.statistics),
            draws.batches.swapaxes(0, 1),
        )
        packets, rule_state = rule.apply(state.aggregation, replicas.packets, draws.delivered)
    else:
        statistics, (rows, losses) = over_workers(
            payload, state.statistics, (replicas, draws.batches[0])
        )
        packets = Packed(layout, rows).packets
        packets, rule_state = rule.apply(state.aggregation, packets, draws.delivered)
        (replicas, optimizer_state), _ = over_workers(
            update, (replicas, state.optimizer), Packed.of(layout, packets)
        )
        packets = replicas.packets
    state = State(state.step + 1, packets, optimizer_state, state.channel, rule_state, statistics)
    return state, losses.mean()


def advance(
    problem: Problem,
    config: Config,
    state: State,
    examples: Examples,
    shards: Int[Array, "worker examples"],
    count: int,
) -> tuple[State, Report]:
    """`count` steps, a static number; the report has a leading step axis."""
    together = drawn_together(problem, config, count)

    def steps(state, _):
        channel, draws = draw(problem, config, state.channel, shards, state.step, together)
        state = dataclasses.replace(state, channel=channel)
        state, losses = jax.lax.scan(
            lambda state, draws: step(problem, config, state, examples, draws), state, draws
        )
        return state, Report(losses, draws.traffic)

    with jax.default_matmul_precision(config.matmul_precision):
        state, report = jax.lax.scan(steps, state, length=count // together)
    return state, jax.tree.map(lambda leaf: leaf.reshape(count), report)


def evaluate(problem: Problem, state: State, examples: Examples) -> dict[str, jax.Array]:
    """Test metrics of the mean model and of the replicas, and how far the replicas are apart.

    Replicas are evaluated with their own running statistics, the mean model with the mean of these.

    Returns:
      test_loss and the problem's scores, as test_accuracy: of the mean model. replica_test_loss,
      replica_test_accuracy, ...: means over the replicas. disagreement: mean squared distance of
      the replicas to the mean model.
    """
    layout = problem.layout
    mean = state.replicas.mean(axis=0, keepdims=True)

    def scores(params, statistics):
        def chunk(part):
            x, y, weight = part
            outputs = problem.model.apply(params, x, statistics)
            scores = {"loss": problem.loss(outputs, y)}
            scores |= {name: score(outputs, y) for name, score in problem.scores.items()}
            return jax.tree.map(lambda values: values @ weight, scores)

        parts = (examples.test_x, examples.test_y, examples.test_weight)
        count = examples.test_weight.sum()
        return jax.tree.map(lambda sums: sums.sum(axis=0) / count, jax.lax.map(chunk, parts))

    # Apart from the replicas, which would have to move to lie beside it.
    of_mean = scores(
        jax.tree.map(lambda leaf: leaf[0], layout.unpack(mean)),
        jax.tree.map(lambda leaf: leaf.mean(axis=0), state.statistics),
    )
    _, of_replicas = map_in_place(
        problem.live_workers,
        lambda states, given: (states, scores(*given)),
        (),
        (Packed.of(layout, state.replicas), state.statistics),
    )
    apart = (state.replicas - mean).reshape(-1)
    return {
        # As a product: XLA's CPU backend sums so many numbers to one some ten times slower.
        "disagreement": jnp.vdot(apart, apart) / state.replicas.shape[0],
        **{f"test_{name}": value for name, value in of_mean.items()},
        **{f"replica_test_{name}": values.mean() for name, values in of_replicas.items()},
    }


def segment(
    problem: Problem,
    config: Config,
    state: State,
    examples: Examples,
    shards: Int[Array, "worker examples"],
) -> tuple[State, tuple[Report, dict[str, jax.Array]]]:
    """`eval_every` steps and an evaluation; the report has a leading step axis."""
    state, report = advance(problem, config, state, examples, shards, config.eval_every)
    with jax.default_matmul_precision(config.matmul_precision):
        return state, (report, evaluate(problem, state, examples))


def metrics(
    problem: Problem, report: Report, evaluation: dict[str, jax.Array]
) -> dict[str, np.ndarray]:
    """A segment's output as the numbers that results have, on the host.

    Args:
      report: with the step axis last; any axes before it.
      evaluation: with the same axes, without the step axis.

    Returns:
      Float64 arrays without the step axis: the evaluation, train_loss (mean over the segment),
      uplink_delivered and downlink_delivered (fractions of what crossed the network, NaN where
      nothing did), parameters_sent and bytes_sent (all workers and servers, in this segment).
    """
    host: Any = jax.tree.map(np.asarray, report)
    layout = problem.layout
    sent = jax.tree.map(lambda counts: counts.sum(axis=-1, dtype=np.int64), host.traffic)
    num_packets = sent.sent_up + sent.sent_down
    parameters = num_packets * layout.size - sent.sent_last * (layout.size - layout.last_size)

    def fraction(part, whole):
        return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)

    return {
        "train_loss": host.train_loss.mean(axis=-1, dtype=np.float64),
        **{name: np.asarray(value).astype(np.float64) for name, value in evaluation.items()},
        "uplink_delivered": fraction(sent.delivered_up, sent.sent_up),
        "downlink_delivered": fraction(sent.delivered_down, sent.sent_down),
        "parameters_sent": parameters.astype(np.float64),
        "bytes_sent": (
            parameters * packets.PARAMETER_BYTES + num_packets * packets.HEADER_BYTES
        ).astype(np.float64),
    }


def run(
    problem: Problem, config: Config, examples: Examples, shards: Int[Array, "worker examples"]
) -> tuple[State, dict[str, np.ndarray]]:
    """Trains one config, alone.

    Returns:
      The final state, and ``metrics`` with a leading axis of steps // eval_every segments.
    """
    examples, shards = jax.tree.map(jnp.asarray, (examples, shards))
    train = jax.jit(functools.partial(segment, problem))
    state = jax.jit(functools.partial(init, problem))(config, examples)
    rows = []
    for _ in range(config.steps // config.eval_every):
        state, report = train(config, state, examples, shards)
        rows.append(metrics(problem, *report))
    return state, {name: np.stack([row[name] for row in rows]) for name in rows[0]}
