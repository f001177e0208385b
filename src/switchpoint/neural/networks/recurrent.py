"""Recurrent networks: RNN, LSTM, and both with a stack.

By default the derivative of a scan adds to every weight's gradient at each step: a small product
and a pass over the whole matrix. Here the backward scan computes only the gradients of the input
preactivations, and the weight gradients are one large product at the end.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from switchpoint import _checks
from switchpoint._settings import NaturalNumber
from switchpoint.neural.cells import Cell, LSTMCell, RNNCell, StackCell
from switchpoint.neural.dense import Dense, Perceptron
from switchpoint.neural.kernels.backend import Backend, is_fused
from switchpoint.neural.model import Model, Option, Recipe
from switchpoint.neural.network import Network, encoded

CELL_OPTIONS = {
    "hidden": Option(256, "the number of units of the cell"),
    "readout": Option(2, "the number of dense layers of 128 units after the cell", NaturalNumber),
}
_STACK_OPTIONS = {
    **CELL_OPTIONS,
    "stack_depth": Option(8, "the number of entries of the stack"),
    "stack_width": Option(8, "the size of an entry"),
}


def _check_stack(length: int, options: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a stack that a sequence cannot fill."""
    depth = _checks.positive_int("stack_depth", options["stack_depth"])
    if depth > length:
        raise ValueError(f"stack_depth must be at most the length {length}, got {depth}")


def _plain(units: str, recipe: Recipe) -> Model:
    return Model(CELL_OPTIONS, recipe, {"units": units, "stack_depth": 0, "stack_width": 0})


def _with_stack(units: str, recipe: Recipe) -> Model:
    return Model(_STACK_OPTIONS, recipe, {"units": units}, _check_stack)


class CellNetwork(Network[Any]):
    """One layer of cells, and a readout of dense layers."""

    alphabet_size: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True)
    readout: int = eqx.field(static=True)
    """The number of hidden layers of the readout."""
    input: Dense
    cell: Cell
    output: Perceptron

    def _build(
        self,
        alphabet: int,
        cell: Cell,
        readout: int,
        inputs: int | None,
        key_input: PRNGKeyArray,
        key_output: PRNGKeyArray,
    ) -> None:
        """Set the fields of this class."""
        self.alphabet_size = alphabet
        self.hidden, self.cell = cell.hidden, cell
        self.readout = _checks.whole_number("readout", readout)
        unscaled = Dense(inputs or alphabet + 1, cell.input_width, key_input)
        self.input = jax.tree.map(lambda leaf: leaf * cell.input_scale, unscaled)
        self.output = Perceptron(cell.hidden, readout, alphabet, key_output)

    def memory(self, batch: int, capacity: int) -> Any:
        del capacity
        return self.cell.start(batch)

    def read(
        self, memory: Any, tokens: Shaped[Array, "batch time *features"]
    ) -> tuple[Any, Float[Array, "batch time alphabet"]]:
        batch, time = tokens.shape[:2]
        # Time and batch share one axis, which makes XLA's products on a CPU faster.
        rows = jnp.swapaxes(tokens, 0, 1).reshape(-1, *tokens.shape[2:])
        inputs = self.input(encoded(rows, self.alphabet + 1))
        memory, outputs = recurrence(self.cell, memory, inputs.reshape(time, batch, -1))
        logits = self.output(outputs.reshape(time * batch, -1)).reshape(time, batch, -1)
        return memory, jnp.swapaxes(logits, 0, 1)


class Recurrent(CellNetwork):
    """One layer of recurrent units, with or without a stack, and a readout of dense layers.

    The memory is the `hidden` numbers of the layer, and as many in the cell of an LSTM; a step
    costs O(hidden^2), with a stack O(hidden^2 + hidden x stack_width + stack_depth x stack_width).
    The stack (Joulin and Mikolov, 2015) has `stack_depth` entries of `stack_width` numbers, and
    each step mixes pushing, popping and keeping it.

    >>> import jax
    >>> import switchpoint as sp
    >>> network = sp.neural.Recurrent(2, "lstm", hidden=8, key=jax.random.key(0))
    >>> network.log_probs([0, 1, 1]).shape
    (3, 2)
    """

    models: ClassVar[Mapping[str, Model]] = {
        "rnn": _plain("rnn", Recipe(1e-3, 24_000)),
        "lstm": _plain("lstm", Recipe(2.5e-3, 8_000, clip_norm=0.1)),
        "stack-rnn": _with_stack("rnn", Recipe(1.5e-3, 12_000, clip_norm=0.1)),
        "stack-lstm": _with_stack("lstm", Recipe(2e-3, 10_000, clip_norm=0.1)),
    }

    units: Literal["rnn", "lstm"] = eqx.field(static=True)
    stack_depth: int = eqx.field(static=True)
    """The number of entries of the stack; 0 means no stack."""
    stack_width: int = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    """See `with_backend`."""

    def __init__(
        self,
        alphabet: int,
        units: Literal["rnn", "lstm"],
        *,
        key: PRNGKeyArray,
        hidden: int = 256,
        readout: int = 2,
        stack_depth: int = 0,
        stack_width: int = 0,
        inputs: int | None = None,
    ) -> None:
        key_input, key_cell, key_stack, key_output = jax.random.split(key, 4)
        self.units = units
        self.backend = "auto"
        self.stack_depth = _checks.whole_number("stack_depth", stack_depth)
        self.stack_width = _checks.whole_number("stack_width", stack_width)
        if (self.stack_depth == 0) != (self.stack_width == 0):
            raise ValueError(
                "stack_depth and stack_width must be both 0 or both positive, "
                f"got {stack_depth} and {stack_width}"
            )
        size = _checks.positive_int("hidden", hidden)
        cell: Any = (RNNCell if units == "rnn" else LSTMCell)(size, key_cell)
        if self.stack_depth:
            cell = StackCell(cell, self.stack_depth, self.stack_width, key_stack)
        self._build(alphabet, cell, readout, inputs, key_input, key_output)

    def read(
        self, memory: Any, tokens: Shaped[Array, "batch time *features"]
    ) -> tuple[Any, Float[Array, "batch time alphabet"]]:
        if is_fused(self.backend) and tokens.ndim == 2:
            # Imported here: Pallas is slow to import, and only GPUs need it.
            from switchpoint.neural.kernels.recurrence import can_fuse, fused_recurrence

            if can_fuse(self.cell, self.alphabet + 1, tokens.shape[1]):
                table = self.input.weight + self.input.bias
                memory, logits = fused_recurrence(self.cell, self.output, memory, table, tokens.T)
                return memory, jnp.swapaxes(logits, 0, 1)
        return super().read(memory, tokens)


@jax.custom_vjp
def recurrence(
    cell: Cell, carry: Any, inputs: Float[Array, "time batch inputs"]
) -> tuple[Any, Float[Array, "time batch hidden"]]:
    """The carry after the last step, and the output after each, from input preactivations."""
    carry, (outputs, _) = _scan(cell, carry, inputs)
    return carry, outputs


def _scan(cell: Cell, carry: Any, inputs: Float[Array, "time batch inputs"]) -> Any:
    """The last carry, and for each step the output after it and the top of the stack before it."""

    def step(carry: Any, now: tuple[Float[Array, "batch _"], ...]) -> Any:
        after = cell.step(carry, now)
        return after, (cell.output(after), cell.stack_top(carry))

    # Kernel launches dominate on a GPU, and unrolled steps share some of them.
    unroll = 1 if jax.default_backend() == "cpu" else 8
    return lax.scan(step, carry, cell.split(inputs), unroll=unroll)


def _forward(cell: Cell, carry: Any, inputs: Float[Array, "time batch inputs"]) -> Any:
    def run(carry: Any, inputs: Float[Array, "time batch inputs"]) -> Any:
        last, (outputs, tops) = _scan(cell, carry, inputs)
        return (last, outputs), tops

    result, pull_back, tops = jax.vjp(run, carry, inputs, has_aux=True)
    return result, (cell, cell.output(carry), result[1], tops, pull_back)


def _backward(residuals: Any, cotangent: Any) -> Any:
    cell, first, after, tops, pull_back = residuals
    d_carry, d_input = pull_back(cotangent)
    before = jnp.concatenate([first[None], after[:-1]])
    rows = jax.tree.map(_rows, (before, tops, after))
    (d_cell,) = jax.linear_transpose(lambda cell: cell.feedback(*rows), cell)(_rows(d_input))
    return d_cell, d_carry, d_input


def _rows(values: Float[Array, "time batch columns"]) -> Float[Array, "rows columns"]:
    return values.reshape(-1, values.shape[-1])


recurrence.defvjp(_forward, _backward)
