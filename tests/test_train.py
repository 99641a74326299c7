import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from problems import SMALL, loss_on, small, small_data

from jaxlossy import draws, packets, train
from jaxlossy import problem as problem_lib
from jaxlossy.aggregation import gradient_averaging, model_averaging
from jaxlossy.channel import Channel, Delivered, bernoulli, traffic
from jaxlossy.config import make_config, stack_configs
from jaxlossy.errors import ConfigError
from jaxlossy.problem import as_examples, make_problem

STEPS = 4


def _start(problem, config, examples):
    state = train.init(problem, config, examples)
    return state, jax.tree.map(lambda leaf: leaf[0], problem.layout.unpack(state.replicas))


def _ordinary_training(problem, config, examples, shards, optimizer, *groups):
    """Data-parallel training without a network: of each group one model, batches together."""
    _, first = _start(problem, config, examples)

    @jax.jit
    def step(params, state, batch):
        grads = jax.grad(functools.partial(loss_on, problem))(
            params, examples.train_x[batch], examples.train_y[batch]
        )
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def train_one(workers):
        params, state = first, optimizer.init(first)
        for index in range(config.steps * config.local_steps):
            batches = draws.draw_batch(config, jnp.asarray(shards), jnp.int32(index))
            params, state = step(params, state, batches[np.asarray(workers)].ravel())
        return params

    return [train_one(workers) for workers in groups]


def _run_together(problem, configs, examples, shards):
    """``train.run`` of configs that share a program, in one: all with a leading config axis."""
    count = configs[0].steps // configs[0].eval_every

    @jax.jit
    @jax.vmap
    def run(config):
        def segment(state, _):
            return train.segment(problem, config, state, examples, jnp.asarray(shards))

        return jax.lax.scan(segment, train.init(problem, config, examples), length=count)

    state, (report, evaluation) = run(stack_configs(configs))
    return state, train.metrics(problem, report, evaluation)


def _assert_replicas_close(problem, state, i, params, **tolerance):
    replica = jax.tree.map(lambda leaf: leaf[i], problem.layout.unpack(state.replicas))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), replica, params)


@pytest.fixture(scope="module")
def sgd():
    """What SGD makes of all workers' batches together; it knows of no servers."""
    return _ordinary_training(*small(steps=STEPS, eval_every=1), optax.sgd(0.2), range(4))[0]


@pytest.mark.parametrize("placement", packets.PLACEMENTS)
@pytest.mark.parametrize("aggregation", ["model_averaging", "gradient_averaging"])
def test_without_loss_it_is_sgd_on_the_workers_batches_together(placement, aggregation, sgd):
    fields = {"placement": placement, "aggregation": aggregation, "steps": STEPS, "eval_every": 1}
    problem, _, examples, shards = small(**fields)
    configs = [make_config({**SMALL, **fields, "servers": servers}) for servers in (1, 3, 4)]
    states, metrics = _run_together(problem, configs, examples, shards)
    for n, config in enumerate(configs):
        state = jax.tree.map(lambda leaf, n=n: leaf[n], states)
        for i in range(config.workers):
            _assert_replicas_close(problem, state, i, sgd, rtol=1e-5, atol=1e-6)
    assert metrics["disagreement"].shape == (3, STEPS)
    assert (metrics["disagreement"] < 1e-10).all()
    np.testing.assert_array_equal(metrics["uplink_delivered"], 1)


@pytest.mark.parametrize(
    ("aggregation", "name", "optimizer"),
    [
        ("model_averaging", "momentum", optax.sgd(0.2, momentum=0.9)),
        ("gradient_averaging", "momentum", optax.sgd(0.2, momentum=0.9)),
        ("gradient_averaging", "adam", optax.adam(0.2)),
    ],
)
def test_without_loss_other_optimizers_are_themselves(aggregation, name, optimizer):
    problem, config, examples, shards = small(aggregation=aggregation, optimizer=name)
    with jax.numpy_dtype_promotion("standard"):  # optax.adam's bias correction needs it
        (expected,) = _ordinary_training(problem, config, examples, shards, optimizer, range(4))
        state, _ = train.run(problem, config, examples, shards)
    # Adam divides by a root of small numbers, which magnifies the rounding of the sums.
    _assert_replicas_close(problem, state, 0, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("aggregation", ["model_averaging", "gradient_averaging"])
def test_with_everything_lost_and_separate_servers_workers_are_isolated(aggregation):
    problem, config, examples, shards = small(
        placement="separate", aggregation=aggregation, drop_probability=1.0, servers=3
    )
    state, metrics = train.run(problem, config, examples, shards)
    everyone = _ordinary_training(
        problem, config, examples, shards, optax.sgd(0.2), *[[i] for i in range(config.workers)]
    )
    for i, alone in enumerate(everyone):
        _assert_replicas_close(problem, state, i, alone, rtol=1e-5, atol=1e-6)
    assert metrics["disagreement"][-1] > 1e-3
    np.testing.assert_array_equal(metrics["uplink_delivered"], 0)
    assert np.isnan(metrics["downlink_delivered"]).all()  # silent servers send nothing


def test_local_steps_are_federated_averaging():
    problem, config, examples, shards = small(local_steps=3, steps=1, eval_every=1)
    state, _ = train.run(problem, config, examples, shards)
    alone = _ordinary_training(
        problem, config, examples, shards, optax.sgd(0.2), *[[i] for i in range(config.workers)]
    )
    mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *alone)
    _assert_replicas_close(problem, state, 2, mean, rtol=1e-5, atol=1e-6)


def test_configs_that_differ_in_loss_see_the_same_data_and_lose_the_same_first():
    problem, low, _, shards = small(drop_probability=0.2, loss_unit="packet")
    _, high, *_ = small(drop_probability=0.5, loss_unit="packet")
    step = jnp.int32(3)
    np.testing.assert_array_equal(
        draws.draw_batch(low, shards, step), draws.draw_batch(high, shards, step)
    )
    assignment, few, _ = draws.draw_delivered(problem, low, (), step)
    assignment_high, many, _ = draws.draw_delivered(problem, high, (), step)
    np.testing.assert_array_equal(assignment.local, assignment_high.local)
    for a, b in zip(few, many, strict=True):
        assert (a | ~b).all()  # what the lossier one delivers, the other delivers too
        assert a.sum() > b.sum()


def test_a_config_draws_the_same_alone_and_among_hundreds():
    problem, *_, shards = small()
    configs = [
        make_config({**SMALL, "drop_probability": p, "servers": s, "seed": seed})
        for p in (0.0, 0.1, 0.3, 0.7)
        for s in (1, 2, 4)
        for seed in range(20)
    ]

    def drawn(config):
        _, delivered, _ = draws.draw_delivered(problem, config, (), jnp.int32(5))
        return draws.draw_batch(config, shards, jnp.int32(5)), delivered

    together = jax.jit(jax.vmap(drawn))(stack_configs(configs))
    for index in (0, 37, 239):
        alone = drawn(configs[index])
        jax.tree.map(
            lambda many, one, i=index: np.testing.assert_array_equal(many[i], one), together, alone
        )


def test_different_seeds_steps_and_purposes_draw_differently():
    keys = [
        jax.random.key_data(draws.derive_key(seed, purpose, step)).tolist()
        for seed in (0, 1)
        for purpose in draws.Purpose
        for step in (0, 1, 2)
    ]
    assert len({tuple(key) for key in keys}) == len(keys)


def test_batches_stay_in_the_workers_own_shard():
    *_, config, _, shards = small()
    batch = np.asarray(draws.draw_batch(config, shards, jnp.int32(0)))
    for own, shard in zip(batch, shards, strict=True):
        assert set(own) <= set(shard.tolist())


@pytest.mark.parametrize(
    ("placement", "messages"), [("random", 2 * 3), ("fixed", 2 * 3), ("separate", 2 * 4)]
)
def test_traffic_counts_every_parameter_that_crosses_the_network(placement, messages):
    problem, config, examples, shards = small(placement=placement, servers=3)
    _, metrics = train.run(problem, config, examples, shards)
    layout = problem.layout
    assert layout.last_size < layout.size  # or the last packet would not be put to the test
    parameters = messages * layout.num_parameters * config.eval_every
    headers = 40 * messages * layout.num_packets * config.eval_every
    np.testing.assert_array_equal(metrics["parameters_sent"], parameters)
    np.testing.assert_array_equal(metrics["bytes_sent"], 4 * parameters + headers)


def test_delivered_fractions_follow_each_directions_probability():
    problem, config, examples, shards = small(
        uplink_drop_probability=0.1,
        downlink_drop_probability=0.4,
        loss_unit="packet",
        steps=400,
        eval_every=400,
    )
    _, metrics = train.run(problem, config, examples, shards)
    sent = 400 * 3 * problem.layout.num_packets
    for name, p in (("uplink_delivered", 0.1), ("downlink_delivered", 0.4)):
        error = np.sqrt(p * (1 - p) / sent)
        assert abs(metrics[name][0] - (1 - p)) < 4 * error


def test_evaluation_is_what_it_says():
    problem, config, examples, shards = small(drop_probability=0.5, workers=3)
    state, metrics = train.run(problem, config, examples, shards)
    data = small_data()
    replicas = [
        jax.tree.map(lambda leaf, i=i: leaf[i], problem.layout.unpack(state.replicas))
        for i in range(3)
    ]
    mean = jax.tree.map(lambda *leaves: sum(leaves) / 3, *replicas)

    def score(params):
        outputs = problem.model.apply(params, data.test_x)
        right = (outputs.argmax(axis=1) == data.test_y).mean()
        return float(problem.loss(outputs, data.test_y).mean()), float(right)

    scores = np.array([score(replica) for replica in replicas]).mean(axis=0)
    distances = [
        sum(
            float(((a - b) ** 2).sum())
            for a, b in zip(*map(jax.tree.leaves, (r, mean)), strict=True)
        )
        for r in replicas
    ]
    last = {name: values[-1] for name, values in metrics.items()}
    assert (last["test_loss"], last["test_accuracy"]) == pytest.approx(score(mean), rel=1e-5)
    assert (last["replica_test_loss"], last["replica_test_accuracy"]) == pytest.approx(
        scores, rel=1e-5
    )
    assert last["disagreement"] == pytest.approx(np.mean(distances), rel=1e-4)


def test_the_padded_test_chunk_counts_nothing_twice(monkeypatch):
    problem, config, examples, _ = small()
    state = train.init(problem, config, examples)
    whole = train.evaluate(problem, state, examples)
    monkeypatch.setattr(problem_lib, "EVAL_CHUNK", 7)  # 30 examples: five chunks, the last with two
    chunked = jax.tree.map(jnp.asarray, as_examples(small_data()))
    assert chunked.test_x.shape[:2] == (5, 7)
    for name, value in train.evaluate(problem, state, chunked).items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-6)


def test_a_single_worker_has_nobody_to_lose_to():
    problem, config, examples, shards = small(workers=1, drop_probability=0.9)
    state, metrics = train.run(problem, config, examples, shards)
    (expected,) = _ordinary_training(problem, config, examples, shards, optax.sgd(0.2), [0])
    _assert_replicas_close(problem, state, 0, expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(metrics["uplink_delivered"]).all()  # nothing was on the wire
    np.testing.assert_array_equal(metrics["bytes_sent"], 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"model": "mpl"},
            "model: 'mpl' is not allowed (allowed: cnn, logistic, lstm, mlp, resnet110, resnet20; "
            "did you mean 'mlp'?)",
        ),
        ({"placement": "randon"}, "placement: 'randon' is not allowed (allowed: fixed, random, "
         "separate; did you mean 'random'?)"),
        ({"channel": "bernouli"}, "channel: 'bernouli' is not allowed (allowed: bernoulli, "
         "gilbert_elliott, trace; did you mean 'bernoulli'?)"),
        ({"loss_unit": "packets"}, "loss_unit: 'packets' is not allowed (allowed: message, "
         "packet; did you mean 'packet'?)"),
        ({"aggregation": "averaging"}, "aggregation: 'averaging' is not allowed (allowed: "
         "gradient_averaging, model_averaging; did you mean 'model_averaging'?)"),
        ({"optimizer": "sdg"}, "optimizer: 'sdg' is not allowed (allowed: adam, momentum, sgd; "
         "did you mean 'sgd'?)"),
        ({"schedule": "cosin"}, "schedule: 'cosin' is not allowed (allowed: constant, cosine, "
         "exponential, steps; did you mean 'cosine'?)"),
        ({"normalization": "batch"}, "normalization: 'batch' is not allowed (allowed: 'group' with "
         "model='mlp', which does not normalise)"),
        ({"model": "lstm"}, "model: 'lstm' is not allowed (allowed: for utterances, such as "
         "data='atis'; small has none)"),
        ({"servers": 9, "placement": "separate"}, "servers: 9 is not allowed (allowed: at most 8, "
         "the packets of 7 that 53 parameters make; lower packet_size for more)"),
    ],
)  # fmt: skip
def test_what_the_problem_does_not_allow_is_refused(fields, message):
    with pytest.raises(ConfigError) as error:
        small(**fields)
    assert str(error.value) == message


def test_a_loss_without_an_example_axis_is_refused():
    config = make_config(SMALL)
    with pytest.raises(ConfigError, match=r"^loss: \(\) is not allowed .allowed: one value an"):
        make_problem(config, small_data(), loss=lambda outputs, labels: outputs.mean())


def test_a_model_that_does_not_take_the_data_is_refused():
    config = make_config(SMALL)
    pair = (lambda key, x: jnp.zeros((4, 3)), lambda w, x: x @ w)
    with pytest.raises(ConfigError, match=r"^model: 'mlp' is not .* inputs of \(6,\); dot_gen"):
        make_problem(config, small_data(), model=pair)


def test_a_loss_that_does_not_take_the_labels_is_refused():
    def squared(outputs, labels):
        return ((outputs - labels) ** 2).sum(axis=1)

    with pytest.raises(
        ConfigError, match=r"^loss: 'squared' is not .* outputs of \(4, 3\) and labels"
    ):
        make_problem(make_config(SMALL), small_data(), loss=squared)


NOT_A_CHANNEL = "a function of a config that returns a Channel"


def _channel_of(make_masks):
    def sample(state, assignment, *, key):
        return make_masks(assignment.local), state

    return lambda config: Channel(lambda assignment, *, key: (), sample)


@pytest.mark.parametrize(
    ("channel", "allowed"),
    [
        ("bernoulli", NOT_A_CHANNEL),
        (bernoulli(0.1, 0.1), NOT_A_CHANNEL),
        (lambda config: None, NOT_A_CHANNEL),
        (_channel_of(lambda local: Delivered(True, True)), r"two boolean masks of \(4, 8\)"),
        (_channel_of(lambda local: Delivered(local.T, local.T)), r"two boolean masks of \(4, 8\)"),
        (
            _channel_of(lambda local: Delivered(local.astype(jnp.float32), local)),
            "two boolean masks",
        ),
    ],
)
def test_what_is_no_channel_is_refused(channel, allowed):
    with pytest.raises(ConfigError, match=f"^channel: 'bernoulli' is not allowed .*{allowed}"):
        make_problem(make_config(SMALL), small_data(), channel=channel)


@pytest.mark.parametrize(
    ("aggregation", "allowed"),
    [
        (model_averaging(), "returns an Aggregation"),
        (lambda config: 3, "returns an Aggregation; it returned int"),
        (
            lambda config: model_averaging()._replace(apply=lambda s, p, d: (p.mean(axis=0), s)),
            r"float32 packets of \(4, 8, 7\)",
        ),
    ],
)
def test_what_is_no_aggregation_is_refused(aggregation, allowed):
    with pytest.raises(ConfigError, match=f"^aggregation: 'model_averaging' is not .*{allowed}"):
        make_problem(make_config(SMALL), small_data(), aggregation=aggregation)


def test_an_unknown_payload_is_refused():
    with pytest.raises(ConfigError, match=r"^payload: 'models' is not .*did you mean 'model'"):
        make_problem(
            make_config(SMALL),
            small_data(),
            aggregation=lambda config: model_averaging()._replace(payload="models"),
        )


def test_local_steps_are_refused_wherever_gradients_are_exchanged():
    config = make_config({**SMALL, "local_steps": 2})
    message = r"^local_steps: 2 is not allowed .allowed: 1 where gradients are exchanged.$"
    with pytest.raises(ConfigError, match=message):
        make_problem(config, small_data(), aggregation=lambda config: gradient_averaging())
    named = make_config({**SMALL, "local_steps": 2, "aggregation": "gradient_averaging"})
    with pytest.raises(ConfigError, match=message):
        make_problem(named, small_data())
    make_problem(named, small_data(), aggregation=lambda config: model_averaging())


@pytest.mark.parametrize("optimizer", ["sgd", optax.sgd(0.1), lambda schedule: None])
def test_what_is_no_optimizer_is_refused(optimizer):
    with pytest.raises(ConfigError, match=r"^optimizer: 'sgd' is not .* such as optax\.adamw"):
        make_problem(make_config(SMALL), small_data(), optimizer=optimizer)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_the_default_loss_takes_one_output_a_class(outputs):
    with pytest.raises(ConfigError, match=r"^model: .* \(4, 3\), one a class, not \(4, "):
        make_problem(make_config(SMALL), small_data(), model=nn.Dense(outputs))


def test_draws_do_not_depend_on_the_x64_mode():
    problem, config, _, shards = small(drop_probability=0.5, loss_unit="packet")

    def drawn():
        batch = draws.draw_batch(config, jnp.asarray(shards), jnp.int32(3))
        return jax.tree.map(
            np.asarray, (batch, draws.draw_delivered(problem, config, (), jnp.int32(3))[:2])
        )

    usual = drawn()
    with jax.enable_x64(True):
        jax.tree.map(np.testing.assert_array_equal, drawn(), usual)


CHANNELS = [
    {"channel": "bernoulli", "loss_unit": "packet"},
    {"channel": "gilbert_elliott", "burst_ratio": 3.0, "placement": "fixed"},
]


@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("channel", CHANNELS)
def test_draws_of_a_run_of_steps_are_those_of_its_steps(channel, local_steps):
    problem, config, examples, shards = small(
        drop_probability=0.4, servers=2, local_steps=local_steps, **channel
    )
    shards, first, count = jnp.asarray(shards), 5, 3
    channel_state = train.init(problem, config, examples).channel
    after, drawn = jax.jit(functools.partial(draws.draw, problem, count=count))(
        config, channel_state, shards, jnp.int32(first)
    )
    for place in range(count):
        index = jnp.int32(first + place)
        assignment, delivered, channel_state = draws.draw_delivered(
            problem, config, channel_state, index
        )
        batches = [
            draws.draw_batch(config, shards, index * local_steps + n) for n in range(local_steps)
        ]
        expected = draws.Draws(jnp.stack(batches), delivered, traffic(assignment, delivered))
        jax.tree.map(
            lambda found, one, p=place: np.testing.assert_array_equal(found[p], one),
            drawn,
            expected,
        )
    jax.tree.map(np.testing.assert_array_equal, after, channel_state)
    assert not np.array_equal(drawn.batches[0], drawn.batches[1])


@pytest.mark.parametrize("channel", CHANNELS)
def test_training_does_not_depend_on_how_many_steps_are_drawn_together(monkeypatch, channel):
    def trained(count, num_bytes, together):
        monkeypatch.setattr(draws, "AHEAD_BYTES", num_bytes)
        assert draws.drawn_together(problem, config, count) == together
        found = jax.jit(functools.partial(train.advance, problem, count=count))(
            config, state, examples, jnp.asarray(shards)
        )
        assert found[1].train_loss.shape == (count,)
        assert found[0].step == count
        return found

    problem, config, examples, shards = small(drop_probability=0.4, servers=2, **channel)
    state = train.init(problem, config, examples)
    step = 2 * 4 * problem.layout.num_packets + 4 * 4 * 4  # bytes: two masks, four batches of four
    one = trained(6, step - 1, 1)
    for num_bytes, together in ((4 * step, 3), (10 * step, 6)):
        many = trained(6, num_bytes, together)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), many, one)
        jax.tree.map(np.testing.assert_array_equal, many[1].traffic, one[1].traffic)
    # A prime number of them, of which four would fit: one by one, the same as the first of six.
    prime = trained(5, 4 * step, 1)
    np.testing.assert_allclose(prime[1].train_loss, one[1].train_loss[:5], rtol=1e-6)
    first = jax.tree.map(lambda counts: counts[:5], one[1].traffic)
    jax.tree.map(np.testing.assert_array_equal, prime[1].traffic, first)
