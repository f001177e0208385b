"""Networks of residual layers, each of which has a state that is updated token by token."""

from typing import Any, ClassVar

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from switchpoint import _checks
from switchpoint.neural.blocks import LayerNorm
from switchpoint.neural.dense import Dense
from switchpoint.neural.network import Network, encoded


class StateSpaceNetwork(Network[Any]):
    """A stack of `layers` blocks with states of `state_size`, on tokens of `width` numbers.

    A subclass implements `memory`, and names the class of its blocks: `block(width, state_size,
    key)` is a module that maps its input and its memory to its output and its next memory. By
    default the sizes are those in its `models`.
    """

    block: ClassVar[type[eqx.Module]]

    alphabet_size: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    embedding: Dense
    blocks: Any
    """All layers in one: each array stacks them along its first axis, as those of a memory do."""
    final_norm: LayerNorm
    output: Dense

    def __init__(
        self,
        alphabet: int,
        *,
        key: PRNGKeyArray,
        layers: int | None = None,
        width: int | None = None,
        state_size: int | None = None,
        inputs: int | None = None,
    ) -> None:
        keys = jax.random.split(key, 3)
        (model,) = self.models.values()
        given = {"layers": layers, "width": width, "state_size": state_size}
        self.alphabet_size = _checks.positive_int("alphabet", alphabet)
        self.layers, self.width, self.state_size = (
            _checks.positive_int(name, model.options[name].default if size is None else size)
            for name, size in given.items()
        )
        self.embedding = Dense(inputs or alphabet + 1, self.width, keys[0])
        self.blocks = jax.vmap(lambda key: self.block(self.width, self.state_size, key))(
            jax.random.split(keys[1], self.layers)
        )
        self.final_norm = LayerNorm(self.width)
        self.output = Dense(self.width, alphabet, keys[2])

    def read(
        self, memory: Any, tokens: Shaped[Array, "batch time *features"]
    ) -> tuple[Any, Float[Array, "batch time alphabet"]]:
        def layer(x: Float[Array, "batch time width"], now: tuple[Any, Any]) -> tuple[Array, Any]:
            block, before = now
            return block(x, before)

        x = self.embedding(encoded(tokens, self.alphabet + 1))
        x, memory = lax.scan(layer, x, (self.blocks, memory))
        return memory, self.output(self.final_norm(x))
