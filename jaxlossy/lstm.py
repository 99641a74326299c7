"""A recurrent network that reads an utterance: its intent, and a slot for every token."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int


class LSTM(nn.Module):
    """An embedding, one LSTM layer (Hochreiter & Schmidhuber 1997) and two dense heads.

    Slots are read off the state after each token, the intent off the mean of these states. What
    follows the last token changes neither.

    Attributes:
      width: of the embedding and of the state.
      tokens: how many there are; 0 pads.
      intents, slots: how many there are.
    """

    width: int
    tokens: int
    intents: int
    slots: int

    @nn.compact
    def __call__(
        self, x: Int[Array, "batch time"]
    ) -> tuple[Float[Array, "batch intents"], Float[Array, "batch time slots"]]:
        real = (x > 0)[..., None]
        x = nn.Embed(self.tokens, self.width)(x)
        # Of all tokens at once: in the loop over time only the product with the state is left.
        gates = nn.Dense(4 * self.width, name="input")(x)
        state = self.param("state", _draw_squares, (self.width, 4 * self.width))
        states = _lstm(gates.swapaxes(0, 1), jnp.asarray(state, gates.dtype)).swapaxes(0, 1)
        total = jnp.where(real, states, 0).sum(axis=1)
        mean = total / jnp.maximum(real.sum(axis=1), 1).astype(total.dtype)
        return nn.Dense(self.intents, name="intent")(mean), nn.Dense(self.slots, name="slot")(
            states
        )


def _lstm(
    gates: Float[Array, "time batch four_width"], kernel: Float[Array, "width four_width"]
) -> Float[Array, "time batch width"]:
    """The state after every token, from what the tokens add to the gates i, f, g and o."""

    def step(carry, added):
        hidden, cell = carry
        i, f, g, o = jnp.split(added + hidden @ kernel, 4, axis=-1)
        cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * jnp.tanh(g)
        hidden = nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((gates.shape[1], kernel.shape[0]), gates.dtype)
    return jax.lax.scan(step, (start, start), gates)[1]


def _draw_squares(key, shape):
    """Orthogonal matrices side by side, one a gate."""
    size = shape[0]
    draw = jax.vmap(lambda key: nn.initializers.orthogonal()(key, (size, size)))
    return jnp.concatenate(draw(jax.random.split(key, shape[1] // size)), axis=1)
