"""The kernels for CPUs against flax and NumPy: values, gradients, edges, other processors."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxlossy import dense as dense_lib
from jaxlossy import normalization
from jaxlossy.convolution import Conv, conv
from jaxlossy.dense import Dense, dense
from jaxlossy.kernels import calls, copies
from jaxlossy.normalization import GroupNorm, group_norm

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def compare(ours, theirs, shape, replicas=2):
    """Parameters are alike, and so are results and gradients of replicas that differ."""
    x = draw(replicas, *shape)
    params = theirs.init(jax.random.key(0), x[0])["params"]
    drawn = ours.init(jax.random.key(0), x[0])["params"]
    jax.tree.map(np.testing.assert_array_equal, drawn, params)
    leaves, treedef = jax.tree.flatten(params)
    leaves = [draw(replicas, *leaf.shape, seed=i) for i, leaf in enumerate(leaves)]
    weight = draw(*jax.eval_shape(jax.vmap(lambda x: ours.apply({"params": params}, x)), x).shape)

    def run(module):
        def loss(params, x, weight):
            y = module.apply({"params": params}, x)
            return (y * weight).sum(), y

        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        return jax.jit(jax.vmap(gradient))(treedef.unflatten(leaves), x, weight)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), run(ours), run(theirs))


@pytest.fixture(params=["cpu", "default"])
def form(request, monkeypatch):
    """Both forms, as if the device were another one."""
    for module in (dense_lib, normalization):
        monkeypatch.setattr(
            module, "platform_dependent", lambda *args, **forms: forms[request.param](*args)
        )


@pytest.mark.parametrize(
    ("shape", "features"), [((1, 1), 1), ((7, 5), 3), ((33, 17), 130), ((4, 9, 64), 10)]
)
@pytest.mark.usefixtures("form")
def test_a_dense_layer_is_that_of_flax(shape, features):
    compare(Dense(features), nn.Dense(features), shape)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((3, 6, 5, 16), 8), ((2, 7, 24), 8), ((2, 3, 3, 2, 40), 4), ((3, 5, 1), 1)],
)
@pytest.mark.usefixtures("form")
def test_group_normalisation_is_that_of_flax(shape, groups):
    compare(GroupNorm(groups), nn.GroupNorm(groups), shape)
    compare(GroupNorm(groups, relu=True), WithReLU(groups), shape)


class WithReLU(nn.GroupNorm):
    @nn.compact
    def __call__(self, x):
        return nn.relu(super().__call__(x))


def test_what_does_not_differ_between_replicas_is_shared():
    """Of axes of vmap, an argument may have any."""
    x, kernel, bias = draw(2, 3, 4, 5), draw(3, 5, 6), draw(2, 6)
    over_kernels = jax.vmap(dense, (0, 0, None))
    result = jax.jit(jax.vmap(over_kernels, (0, None, 0)))(x, kernel, bias)
    expected = np.einsum("arxi,rio->arxo", x, kernel) + np.asarray(bias)[:, None, None]
    np.testing.assert_allclose(result, expected, **CLOSE)


def test_what_is_not_a_number_stays_with_its_replica():
    x, kernel = draw(3, 4, 6), draw(3, 6, 20)
    spoilt = x.at[1, 2, 3].set(jnp.nan).at[1, 3, 3].set(jnp.inf)
    result = np.array(jax.vmap(dense)(spoilt, kernel, jnp.zeros((3, 20))))
    assert np.isnan(result[1, 2]).all()
    assert np.isinf(result[1, 3]).all()
    result[1, 2:] = 0
    assert np.isfinite(result).all()
    images = draw(3, 1, 4, 4, 2).at[1, 0, 1, 1].set(jnp.nan)
    result = jax.vmap(conv)(images, draw(3, 3, 3, 2, 5))
    assert np.isnan(result[1, 0, :3, :3]).all()
    assert np.isfinite(result[1, 0, 3]).all()
    assert np.isfinite(result[::2]).all()
    result = jax.vmap(lambda x: group_norm(x, jnp.ones(2), jnp.zeros(2), 1, True))(images)
    assert np.isnan(result[1]).all()
    assert np.isfinite(result[::2]).all()


def test_rows_are_those_with_the_indices_and_never_beyond_the_table():
    table, indices = draw(3, 5, 7), np.array([[[0, 4, 4], [2, -9, 9]]] * 3)

    def take(table, indices):
        return calls.call(copies.take_rows, calls.like(table, 3, 7), table, indices)

    expected = np.asarray(table)[:, np.clip(indices[0], 0, 4)]
    found = jax.vmap(jax.vmap(take, (None, 0)))(table, indices)
    np.testing.assert_array_equal(found, expected)
    found = jax.vmap(jax.vmap(take, (0, None)), (None, 0))(table, indices[0])
    np.testing.assert_array_equal(found, expected.swapaxes(0, 1))


@pytest.mark.parametrize(
    ("module", "shape"), [(Dense(3), (4, 5)), (Conv(3), (2, 4, 4, 2)), (GroupNorm(2), (2, 4, 4))]
)
def test_numbers_of_half_the_size_are_left_to_xla(monkeypatch, module, shape):
    def refuse(*args, **kwargs):
        raise AssertionError("a kernel of float32")

    x = draw(*shape)
    params = module.init(jax.random.key(0), x)
    exact = module.apply(params, x)
    monkeypatch.setattr(calls.jax.ffi, "ffi_call", refuse)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x))
    result, pull = jax.vjp(module.apply, *half)
    assert result.dtype == jnp.bfloat16
    np.testing.assert_allclose(result.astype(jnp.float32), exact, rtol=0.05, atol=0.05)
    assert {leaf.dtype for leaf in jax.tree.leaves(pull(result))} == {jnp.dtype(jnp.bfloat16)}


OTHER = """
import jax
import jax.numpy as jnp
import numpy as np
from jaxlossy.dense import dense
from jaxlossy import generator
from jaxlossy.kernels.registers import LANES
from jaxlossy.normalization import group_norm

rng = np.random.default_rng(0)
for m, k, n in ((1, 1, 1), (6, 3, 7), (33, 5, 70), (17, 2, 129)):
    x, w, b, g = (
        rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n), (n,), (m, n))
    )
    y, pull = jax.vjp(dense, *map(jnp.asarray, (x, w, b)))
    for found, expected in zip((y, *pull(g)), (x @ w + b, g @ w.T, x.T @ g, g.sum(0))):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    y = group_norm(jnp.asarray(g[None]), jnp.ones(n), jnp.asarray(b), 1)[0]
    expected = (g - g.mean()) / np.sqrt(g.var() + 1e-6) + b
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
for count in (1, 16, 21):
    found, expected = (jax.random.bits(key(3), (count,)) for key in (generator.key, jax.random.key))
    np.testing.assert_array_equal(found, expected)
print(LANES)
"""


@pytest.mark.parametrize(
    ("name", "features", "lanes"),
    [(None, None, None), ("haswell", "+avx,+avx2,+fma", 8), ("nehalem", "+sse2", 4)],
)
def test_processors_with_other_registers(tmp_path, name, features, lanes):
    """All sizes of tiles, and their edges."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("names of x86 processors")
    other = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features} if name else {}
    environment = {**os.environ, **other, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", OTHER], env=environment, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert lanes is None or int(found.stdout) == lanes
