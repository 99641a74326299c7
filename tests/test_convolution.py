"""The convolution against flax's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxlossy import convolution
from jaxlossy.convolution import Conv


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    "shape", [(9, 2), (9, 5), (6, 5, 3), (6, 5, 4), (4, 3, 5, 1), (4, 3, 5, 4), (1, 1, 7)]
)
def test_values_and_gradients_are_those_of_a_convolution(monkeypatch, shape, stride):
    """Both forms, each with a bias and without, in one program."""
    space = len(shape) - 1

    def of(module, params, x):
        def loss(params, x):
            y = module.apply({"params": params}, x)
            return (jnp.sin(y)).sum(), y

        (_, y), grads = jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)
        return y, grads

    def compare(use_bias, x):
        ours = Conv(4, stride, use_bias)
        flax = nn.Conv(4, (3,) * space, stride, padding=1, use_bias=use_bias)
        params = flax.init(jax.random.key(1), x)["params"]
        if use_bias:
            params = {**params, "bias": jnp.arange(4.0)}
        drawn = ours.init(jax.random.key(1), x)["params"]
        assert jax.tree.map(jnp.shape, drawn) == jax.tree.map(jnp.shape, params)
        found = {}
        for form in ("cpu", "default"):
            monkeypatch.setattr(
                convolution,
                "platform_dependent",
                lambda *args, form=form, **forms: forms[form](*args),
            )
            found[form] = of(ours, params, x)
        return drawn["kernel"], of(flax, params, x), found

    @jax.jit
    def run(x):
        return [compare(use_bias, x) for use_bias in (True, False)]

    for drawn, expected, forms in run(jax.random.normal(jax.random.key(0), (2, *shape))):
        assert drawn.std() == pytest.approx((3**space * shape[-1]) ** -0.5, rel=0.4)
        assert set(forms) == {"cpu", "default"}
        for found in forms.values():
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
                found,
                expected,
            )


def test_forward_over_a_batch_of_kernels():
    """Every replica has a kernel of its own."""
    x = jax.random.normal(jax.random.key(0), (3, 2, 5, 4, 2))
    module = Conv(3)
    params = jax.vmap(module.init)(jax.random.split(jax.random.key(1), 3), x)
    together = jax.vmap(module.apply)(params, x)
    for i in range(3):
        alone = module.apply(jax.tree.map(lambda leaf, i=i: leaf[i], params), x[i])
        np.testing.assert_allclose(together[i], alone, rtol=1e-5, atol=1e-6)
