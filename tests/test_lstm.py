"""The LSTM on utterances: what it computes, that padding is nothing, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from problems import SMALL, small_data

import jaxlossy
from jaxlossy import data as data_lib
from jaxlossy import tasks
from jaxlossy.config import make_config
from jaxlossy.errors import ConfigError
from jaxlossy.lstm import LSTM
from jaxlossy.problem import make_problem

TOKENS = np.array([[3, 1, 4, 0, 0], [2, 2, 0, 0, 0], [1, 2, 3, 4, 1]], np.int32)
LABELS = np.array([[1, 0, 2, 0, -1, -1], [0, 1, 1, -1, -1, -1], [1, 2, 2, 2, 2, 0]], np.int32)


def utterances():
    return data_lib.Data("utterances", TOKENS, LABELS, TOKENS, LABELS, 2, 5, 3)


@pytest.fixture(scope="module")
def model():
    net = LSTM(width=4, tokens=5, intents=2, slots=3)
    return net, jax.jit(net.init)(jax.random.key(0), TOKENS)


def test_the_states_are_those_of_flax(model):
    net, variables = model
    params = jax.tree.map(np.asarray, variables["params"])

    def split(kernel):
        return dict(zip("ifgo", np.split(kernel, 4, axis=-1), strict=True))

    state, into, bias = (
        split(params["state"]),
        split(params["input"]["kernel"]),
        split(params["input"]["bias"]),
    )
    cell = {f"i{gate}": {"kernel": into[gate]} for gate in "ifgo"}
    cell |= {f"h{gate}": {"kernel": state[gate], "bias": bias[gate]} for gate in "ifgo"}
    x = params["Embed_0"]["embedding"][TOKENS]
    states = np.asarray(nn.RNN(nn.OptimizedLSTMCell(4)).apply({"params": {"cell": cell}}, x))
    intents, slots = net.apply(variables, TOKENS)
    head = params["slot"]
    np.testing.assert_allclose(slots, states @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-6)
    mean = np.stack([states[i, :n].mean(axis=0) for i, n in enumerate((3, 2, 5))])
    head = params["intent"]
    np.testing.assert_allclose(intents, mean @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-6)


def test_padding_changes_nothing(model):
    net, variables = model
    task = tasks.task_of(utterances())

    @jax.jit
    def losses_and_gradient(x, y):
        def mean(params):
            losses = task.loss(net.apply({"params": params}, x), y)
            return losses.mean(), losses

        (_, losses), gradient = jax.value_and_grad(mean, has_aux=True)(variables["params"])
        return losses, gradient

    longer = np.pad(TOKENS, ((0, 0), (0, 3))), np.pad(LABELS, ((0, 0), (0, 3)), constant_values=-1)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
        losses_and_gradient(TOKENS, LABELS),
        losses_and_gradient(*longer),
    )
    outputs = net.apply(variables, TOKENS)
    noise = jnp.where((LABELS[:, 1:] < 0)[..., None], 7.0, 0.0)
    for function in (task.loss, *task.scores.values()):
        np.testing.assert_array_equal(
            function(outputs, LABELS), function((outputs[0], outputs[1] + noise), LABELS)
        )


def test_scores_are_of_intents_and_of_real_tokens():
    intents = jax.nn.one_hot(jnp.array([1, 1, 1]), 2)
    slots = jax.nn.one_hot(jnp.array([[0, 1, 1, 2, 2], [1, 1, 1, 1, 1], [2, 2, 2, 2, 2]]), 3)
    scores = tasks.task_of(utterances()).scores
    found = {name: score((intents, slots), LABELS).tolist() for name, score in scores.items()}
    assert found["accuracy"] == [1, 0, 1]
    assert found["slot_accuracy"] == pytest.approx([1 / 3, 1, 4 / 5])


def test_it_learns_what_is_made_up_and_results_have_its_slots():
    config = {"model": "lstm", "features": (16,), "data": "atis_like", "workers": 4}
    config |= {"batch_size": 16, "steps": 60, "eval_every": 30, "learning_rate": 1.0}
    config |= {"dirichlet_alpha": 1.0, "sweep": {"drop_probability": (0.0, 0.2)}}
    ds = jaxlossy.sweep(config, verbose=False)
    assert (ds["train_loss"][:, 1] < 0.7 * ds["train_loss"][:, 0]).all()
    last = jaxlossy.final(ds)
    for name in ("test_accuracy", "test_slot_accuracy", "replica_test_slot_accuracy"):
        assert (last[name] > 0.7).all()
    assert "right" in ds["test_slot_accuracy"].attrs["long_name"]
    assert "test_slot_accuracy" not in jaxlossy.sweep(
        {**SMALL, "sweep": {"seed": (0,)}}, data=small_data(), verbose=False
    )


def test_products_are_in_bfloat16_where_asked_for():
    config = make_config({**SMALL, "model": "lstm", "compute_dtype": "bfloat16", "batch_size": 3})
    problem = make_problem(config, utterances())
    params = jax.jit(problem.model.init)(jax.random.key(0), TOKENS)
    text = str(jax.make_jaxpr(lambda p: problem.model.apply(p, TOKENS))(params))
    products = [line for line in text.splitlines() if "dot_general[" in line]
    assert len(products) == 4
    assert all("bf16[" in line for line in products)
    assert {leaf.dtype for leaf in problem.model.apply(params, TOKENS)} == {np.dtype("float32")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": (4, 4)}, r"^features: \(4, 4\) is not .* one width with model='lstm'"),
        (
            {"model": "mlp"},
            r"^model: 'mlp' is not .* one with outputs of \(\(3, 2\), \(3, 5, 3\)\), "
            r"one an intent, and one a slot for every token, not \(3, 2\)",
        ),
    ],
)
def test_what_utterances_do_not_allow_is_refused(fields, message):
    config = make_config({**SMALL, "model": "lstm", "batch_size": 3, **fields})
    with pytest.raises(ConfigError, match=message), jax.numpy_dtype_promotion("standard"):
        make_problem(config, utterances())
