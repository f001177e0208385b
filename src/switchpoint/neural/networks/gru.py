"""The gated recurrent unit."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.cells import Cell
from switchpoint.neural.dense import fan_in_normal
from switchpoint.neural.model import Model, Recipe
from switchpoint.neural.networks.recurrent import CELL_OPTIONS, CellNetwork


class GRUCell(Cell[Float[Array, "batch hidden"]]):
    """The cell of Cho et al. (2014), whose reset gate acts on a product with the memory.

    r = sigmoid(h W_r + i_r), z = sigmoid(h W_z + i_z + 1), n = tanh(i_n + r (h W_n + i_m)) and
    h' = (1 - z) n + z h, where i are the input preactivations of the gates. The update gate z
    starts open, so that a new network remembers.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {"weight": 3}  # W_r, W_z and W_n

    hidden: int = eqx.field(static=True)
    weight: Float[Array, "hidden gates"]

    def __init__(self, hidden: int, key: PRNGKeyArray) -> None:
        self.hidden = hidden
        self.weight = fan_in_normal(key, hidden, 3 * hidden)

    @property
    def input_width(self) -> int:
        return 4 * self.hidden

    def start(self, batch: int) -> Float[Array, "batch hidden"]:
        return jnp.zeros((batch, self.hidden))

    def split(self, inputs: Float[Array, "*axes inputs"]) -> tuple[Float[Array, "*axes _"], ...]:
        return tuple(jnp.split(inputs, 4, axis=-1))

    def step(
        self, carry: Float[Array, "batch hidden"], inputs: tuple[Float[Array, "batch _"], ...]
    ) -> Float[Array, "batch hidden"]:
        products = jnp.split(carry @ self.weight, 3, axis=-1)
        reset, update, remembered = (a + b for a, b in zip(products, inputs[:3], strict=True))
        new = jnp.tanh(inputs[3] + jax.nn.sigmoid(reset) * remembered)
        update = jax.nn.sigmoid(update + 1)
        return (1 - update) * new + update * carry

    def output(self, carry: Float[Array, "batch hidden"]) -> Float[Array, "batch hidden"]:
        return carry

    def feedback(self, before: Any, top: Any, after: Any) -> Any:
        del top, after
        return jnp.concatenate([before @ self.weight, jnp.zeros_like(before)], axis=-1)


class GRU(CellNetwork):
    """One layer of gated recurrent units, and a readout of dense layers.

    The memory is the `hidden` numbers of the layer; a step costs O(hidden^2) for each sequence.

    >>> import jax
    >>> import switchpoint as sp
    >>> network = sp.neural.GRU(2, hidden=8, key=jax.random.key(0))
    >>> network.log_probs([0, 1, 1]).shape
    (3, 2)
    """

    models: ClassVar[Mapping[str, Model]] = {
        "gru": Model(
            {
                "hidden": CELL_OPTIONS["hidden"]._replace(default=64),
                "readout": CELL_OPTIONS["readout"]._replace(default=1),
            },
            Recipe(1e-2, 8_000, batch=32),
        )
    }

    def __init__(
        self,
        alphabet: int,
        *,
        key: PRNGKeyArray,
        hidden: int = 64,
        readout: int = 1,
        inputs: int | None = None,
    ) -> None:
        key_cell, *keys = jax.random.split(key, 3)
        cell = GRUCell(_checks.positive_int("hidden", hidden), key_cell)
        self._build(_checks.positive_int("alphabet", alphabet), cell, readout, inputs, *keys)
