"""compute_dtype and remat: what they change (memory, rounding) and what they must not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from problems import SMALL, loss_on, small, small_data

import jaxlossy
from jaxlossy import data as data_lib
from jaxlossy import draws, memory, models, train
from jaxlossy.config import make_config
from jaxlossy.errors import ConfigError
from jaxlossy.problem import as_examples, make_problem
from jaxlossy.shards import make_shards

EXACT = ("uplink_delivered", "downlink_delivered", "parameters_sent", "bytes_sent")
DEEP = {"model": "cnn", "features": (8,) * 4, "workers": 2, "steps": 2, "eval_every": 1}


def series_data() -> data_lib.Data:
    """Three classes of random series of 128 points, for a deep 1-D CNN."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 128, 2)), rng.integers(0, 3, 40)
    return data_lib.from_arrays((x[:30], y[:30]), (x[30:], y[30:]), num_classes=3)


def prepare(data, **fields):
    config = make_config({**SMALL, "packet_size": None, **fields})
    problem = make_problem(config, data)
    shards = make_shards(
        data.train_y, workers=config.workers, dirichlet_alpha=np.inf, seed=config.shard_seed
    )
    return problem, config, as_examples(data), shards


def equations(jaxpr):
    """All equations, those inside called functions too."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(list(eqn.params.values())):  # some have several, as branches
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def stored_bytes(problem, params, x, y):
    """What the forward pass keeps for the backward pass."""
    pullback = jax.eval_shape(lambda p: jax.vjp(lambda p: loss_on(problem, p, x, y), p)[1], params)
    return memory.num_bytes(pullback)


def test_training_in_bfloat16_is_close_to_float32_and_loses_the_same():
    data = data_lib.load("digits")
    fields = {"workers": 4, "steps": 60, "eval_every": 20, "batch_size": 16, "features": (32,)}
    fields |= {"drop_probability": 0.2, "loss_unit": "packet", "servers": 4}
    runs = {}
    for dtype in ("float32", "bfloat16"):
        problem, config, examples, shards = prepare(data, compute_dtype=dtype, **fields)
        state, runs[dtype] = train.run(problem, config, examples, shards)
        assert {leaf.dtype for leaf in jax.tree.leaves(state.replicas)} == {np.dtype(np.float32)}
    full, half = runs.values()
    for name in EXACT:
        np.testing.assert_array_equal(half[name], full[name])
    for name in ("train_loss", "test_loss", "replica_test_loss"):
        np.testing.assert_allclose(half[name], full[name], rtol=0.03)
        assert (half[name] != full[name]).all()  # or nothing was computed in bfloat16
    assert full["test_accuracy"][-1] > 0.8
    np.testing.assert_allclose(half["test_accuracy"], full["test_accuracy"], atol=0.02)


def test_what_is_drawn_does_not_depend_on_the_compute_dtype():
    def drawn(dtype):
        problem, config, _, shards = small(
            drop_probability=0.4, loss_unit="packet", compute_dtype=dtype
        )
        step = jnp.int32(3)
        batch = draws.draw_batch(config, jnp.asarray(shards), step)
        return batch, draws.draw_delivered(problem, config, (), step)[:2]

    jax.tree.map(np.testing.assert_array_equal, drawn("float32"), drawn("bfloat16"))


class _Net(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(6, 4, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.outer = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.outer(nnx.relu(self.norm(self.inner(x))))


PAIR = (lambda key, x: jax.random.normal(key, (6, 3)), lambda w, x: x @ w)


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({"model": "mlp"}, None),
        ({"model": "logistic"}, None),
        (DEEP, None),
        ({**DEEP, "remat": True}, None),
        ({}, nn.Sequential([nn.Dense(4), nn.LayerNorm(), nn.Dense(3)])),
        ({}, _Net),
        ({}, PAIR),
    ],
)
def test_products_are_in_bfloat16_and_gradients_in_float32(fields, model):
    data = series_data() if "model" in fields and fields["model"] == "cnn" else small_data()
    config = make_config({**SMALL, "packet_size": 1, "compute_dtype": "bfloat16", **fields})
    problem = make_problem(config, data, model=model)
    x, y = jnp.asarray(data.train_x[:4]), jnp.asarray(data.train_y[:4])
    params = problem.model.init(jax.random.key(0), x)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    gradient = jax.grad(lambda p: loss_on(problem, p, x, y))
    products = [
        [variable.aval.dtype for variable in (*eqn.invars, *eqn.outvars)]
        for eqn in equations(jax.make_jaxpr(gradient)(params))
        if eqn.primitive.name == "dot_general"
    ]
    assert products
    assert all(dtypes == [jnp.bfloat16] * 3 for dtypes in products)
    shapes = jax.eval_shape(gradient, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {np.dtype(np.float32)}
    assert jax.eval_shape(problem.model.apply, params, x).dtype == np.float32


def test_integer_inputs_are_not_cast():
    """257 is no bfloat16 number: cast and used as an index, it would be 256."""
    rng = np.random.default_rng(0)
    tokens, y = np.full((8, 2), 257, np.int32), rng.integers(0, 3, 8).astype(np.int32)
    seen = []

    def apply(table, x):
        seen.append((table.dtype, x.dtype))
        return table[x].sum(axis=1)

    data = data_lib.Data("tokens", tokens, y, tokens, y, 3)
    model = (lambda key, x: jnp.zeros((300, 3)).at[257].set(1.0), apply)
    problem = make_problem(make_config({**SMALL, "compute_dtype": "bfloat16"}), data, model=model)
    params = problem.model.init(jax.random.key(0), jnp.asarray(tokens))
    np.testing.assert_array_equal(problem.model.apply(params, jnp.asarray(tokens)), 2.0)
    assert set(seen) == {(np.dtype(jnp.bfloat16), np.dtype(np.int32))}


def test_matmul_precision_changes_nothing_in_bfloat16():
    outputs = []
    for precision in ("float32", "bfloat16"):
        problem, config, examples, _ = small(compute_dtype="bfloat16", matmul_precision=precision)
        state = train.init(problem, config, examples)
        outputs.append(train.evaluate(problem, state, examples)["test_loss"])
    assert outputs[0] == outputs[1]


def test_a_bfloat16_config_counts_smaller_intermediates():
    data, costs = series_data(), {}
    for dtype in ("float32", "bfloat16"):
        problem, config, examples, shards = prepare(
            data, **DEEP, batch_size=64, compute_dtype=dtype
        )
        costs[dtype] = memory.footprint(problem, config, examples, shards)
    # More than half: GroupNorm takes its statistics in float32.
    assert costs["bfloat16"].replica < 0.8 * costs["float32"].replica
    assert costs["bfloat16"].held == costs["float32"].held


def test_a_scan_counts_what_it_stores_for_its_gradient():
    def replica(length):
        def apply(w, x):
            return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=length)[0][:, :3]

        config, data = make_config({**SMALL, "packet_size": 1}), small_data()
        model = (lambda key, x: jax.random.normal(key, (6, 6)), apply)
        problem = make_problem(config, data, model=model)
        shards = np.zeros((4, 15), np.int32)
        return memory.footprint(problem, config, as_examples(data), shards).replica

    each = SMALL["batch_size"] * 6 * 4  # bytes of a step's activations
    assert replica(1000) - replica(10) >= 990 * each


def test_remat_takes_less_memory():
    data, stored, temporary, costs = series_data(), [], [], []
    for remat in (False, True):
        problem, config, examples, shards = prepare(data, **DEEP, batch_size=64, remat=remat)
        x, y = examples.train_x[:8], examples.train_y[:8]
        params = jax.eval_shape(problem.model.init, jax.random.key(0), x)
        stored.append(stored_bytes(problem, params, x, y))
        gradient = jax.jit(jax.grad(lambda p, x, y, problem=problem: loss_on(problem, p, x, y)))
        analysis = gradient.lower(params, x, y).compile().memory_analysis()
        temporary.append(analysis.temp_size_in_bytes)
        costs.append(memory.footprint(problem, config, examples, shards).replica)
    assert stored[1] < 0.2 * stored[0]
    assert costs[1] < 0.8 * costs[0]
    if jax.__version_info__ >= (0, 12):  # before it, XLA's CPU backend moves all to the front
        assert temporary[1] < 0.75 * temporary[0]


def test_remat_computes_the_same():
    # One step: in more of them what rounding changes grows, where a ReLU is near 0.
    fields = {**SMALL, "packet_size": None, **DEEP, "steps": 1, "eval_every": 1}
    fields["sweep"] = {"remat": (False, True)}
    ds = jaxlossy.sweep(fields, data=series_data(), verbose=False)
    assert ds["remat"].values.tolist() == [False, True]
    for name in ("train_loss", "test_loss", "replica_test_loss", "disagreement", *EXACT):
        np.testing.assert_allclose(*ds[name].values, rtol=1e-4)


def test_remat_is_for_built_in_models_with_blocks():
    config = make_config({**SMALL, "remat": True})
    with pytest.raises(ConfigError, match=r"^remat: True is .*: False with model='mlp', which has"):
        make_problem(config, small_data())
    with pytest.raises(ConfigError, match=r"^remat: True is .*: False with a model of your own, "):
        make_problem(config, small_data(), model=models.CNN((4,), 3, remat=True))
