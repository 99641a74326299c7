"""The PyTorch programs of the benchmark take jaxlossy's steps, from the same draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlossy import data as data_lib
from jaxlossy import draws, train
from jaxlossy.config import make_config
from jaxlossy.problem import as_examples, make_problem
from jaxlossy.shards import make_shards

torch = pytest.importorskip("torch")
import torch_rivals  # noqa: E402  (imports torch)

PROGRAMS = ["loop", "vmap"]


def as_torch(tree):
    return jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), tree)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("drop_probability", [0.0, 0.5])
@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ((4, 4, 1), {"model": "mlp", "features": (8,)}),
        ((8, 6, 2), {"model": "cnn", "features": (8, 16)}),
        ((9, 2), {"model": "cnn", "features": (6,)}),
        ((8, 8, 3), {"model": "resnet20"}),
    ],
)
def test_a_step_is_a_step_of_jaxlossy(program, drop_probability, shape, fields):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, *shape)), np.arange(80) % 10
    data = data_lib.from_arrays((x, y), (x[:10], y[:10]), name="random")
    # A single server loses a whole model or nothing, so the order of parameters does not matter.
    given = {"drop_probability": drop_probability, "placement": "separate", "learning_rate": 0.5}
    config = make_config(
        {"seed": 1, "workers": 4, "batch_size": 4, "packet_size": 7, **given, **fields}
    )
    problem, examples = make_problem(config, data), jax.tree.map(jnp.asarray, as_examples(data))
    shards = jnp.asarray(make_shards(y, workers=4, dirichlet_alpha=np.inf, seed=0))
    state = train.init(problem, config, examples)

    model = torch_rivals.TORCH_MODELS[config.model](shape, config.features)

    def packed(replicas):
        def one(worker):
            params = jax.tree.map(lambda p: np.asarray(p[worker]), problem.layout.unpack(replicas))
            torch_rivals.load(model, params)
            return torch_rivals.pack(model, 7)

        return torch.stack([one(worker) for worker in range(4)])[None]

    replicas = packed(state.replicas)
    make_step = {"loop": torch_rivals.loop_step, "vmap": torch_rivals.vmap_step}[program]
    torch_step = make_step(model, replicas, 0.5)
    jax_step = jax.jit(functools.partial(train.advance, problem, count=1))
    for index in range(2):  # the second one from replicas that differ
        batch = draws.draw_batch(config, shards, jnp.int32(index))
        _, delivered, _ = draws.draw_delivered(problem, config, (), jnp.int32(index))
        given = (examples.train_x[batch], examples.train_y[batch].astype(jnp.int32))
        masks = (delivered.up.astype(jnp.float32), delivered.down.astype(jnp.float32))
        x_, y_, up, down = (leaf[None] for leaf in as_torch((*given, *masks)))
        torch_step(torch_rivals.Batch(x_, y_.long(), up, down))
        state, _ = jax_step(config, state, examples, shards)
    expected = packed(state.replicas)
    torch.testing.assert_close(replicas, expected, rtol=0, atol=1e-5)
    assert (expected.std(dim=1).max() > 1e-3) == (drop_probability > 0)


def test_the_average_is_of_what_arrived_and_lost_packets_stay():
    replicas = torch.tensor([1.0, 3.0, 8.0])[:, None, None].repeat(1, 2, 1)
    up = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    down = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    torch_rivals.average(replicas, up, down)
    assert replicas[:, :, 0].tolist() == [[2.0, 1.0], [3.0, 3.0], [2.0, 8.0]]


@pytest.mark.parametrize("name", ["mlp", "resnet20"])
def test_both_programs_train_the_same(name):
    shape = (8, 8, 3)
    numbers = {"workers": 2, "batch_size": 3, "packet_size": 365, "learning_rate": 0.1}
    make = [torch_rivals.torch_loop, torch_rivals.torch_vmap]
    advances = [f(shape, name, (8,), 2, **numbers, drop_probability=0.5) for f in make]
    start = advances[0](0).clone()
    loop, vmap = (advance(2) for advance in advances)
    torch.testing.assert_close(loop, vmap, rtol=0, atol=1e-5)
    assert (loop != start).any(dim=(2, 3)).all()  # every replica of every config moved
    assert (loop[:, 0] != loop[:, 1]).any()


def test_resnet20_has_its_parameters():
    model = torch_rivals.TORCH_MODELS["resnet20"]((32, 32, 3), ())
    assert sum(parameter.numel() for parameter in model.parameters()) == 269_722
    assert model(torch.zeros(2, 32, 32, 3)).shape == (2, 10)
