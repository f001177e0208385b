"""Recurrent networks: RNN, LSTM, and both with a stack."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.cells import Cell, LSTMCell, RNNCell
from switchpoint.neural.dense import Dense, Perceptron
from switchpoint.neural.kernels.backend import Backend, copy_with_backend, is_fused
from switchpoint.neural.kernels.recurrence import can_fuse, fused_recurrence
from switchpoint.neural.network import Network
from switchpoint.neural.recurrence import recurrence
from switchpoint.neural.stack import StackCell


class Recurrent(Network[Any]):
    """One layer of recurrent units, with a stack or without, and a read-out of dense layers."""

    alphabet_size: int = eqx.field(static=True)
    units: Literal["rnn", "lstm"] = eqx.field(static=True)
    hidden: int = eqx.field(static=True)
    readout: int = eqx.field(static=True)
    """How many hidden layers the read-out has."""
    stack_depth: int = eqx.field(static=True)
    """How many places the stack has; 0 is no stack."""
    stack_width: int = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    """What computes; see `with_backend`."""
    input: Dense
    cell: Cell
    output: Perceptron

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
    ) -> None:
        key_input, key_cell, key_stack, key_output = jax.random.split(key, 4)
        self.alphabet_size = alphabet
        self.units = units
        self.backend = "auto"
        self.hidden = _checks.positive_int("hidden", hidden)
        self.readout = _checks.whole_number("readout", readout)
        self.stack_depth = _checks.whole_number("stack_depth", stack_depth)
        self.stack_width = _checks.whole_number("stack_width", stack_width)
        if (self.stack_depth == 0) != (self.stack_width == 0):
            raise ValueError(
                "stack_depth and stack_width must both be 0 or both be above, "
                f"got {stack_depth} and {stack_width}"
            )
        inner = (RNNCell if units == "rnn" else LSTMCell)(self.hidden, key_cell)
        self.cell = inner
        if self.stack_depth:
            self.cell = StackCell(inner, self.stack_depth, self.stack_width, key_stack)
        drive = Dense(alphabet + 1, self.cell.drive_width, key_input)
        self.input = jax.tree.map(lambda leaf: leaf * self.cell.drive_scale, drive)
        self.output = Perceptron(self.hidden, self.readout, alphabet, key_output)

    def with_backend(self, backend: str) -> "Recurrent":
        return copy_with_backend(self, backend)

    def memory(self, batch: int, room: int) -> Any:
        del room
        return self.cell.start(batch)

    def read(
        self, memory: Any, tokens: Int[Array, "batch time"]
    ) -> tuple[Any, Float[Array, "batch time alphabet"]]:
        batch, time = tokens.shape
        if is_fused(self.backend) and can_fuse(self.cell, self.alphabet + 1, time):
            table = self.input.weight + self.input.bias
            memory, logits = fused_recurrence(self.cell, self.output, memory, table, tokens.T)
        else:
            # One-hot products, since their derivative is a product too, not a scatter; and all of
            # time and batch in one axis, since XLA's products on a CPU are quicker so.
            drive = self.input(jax.nn.one_hot(tokens.T.reshape(-1), self.alphabet + 1))
            memory, outputs = recurrence(self.cell, memory, drive.reshape(time, batch, -1))
            logits = self.output(outputs.reshape(-1, self.hidden)).reshape(time, batch, -1)
        return memory, jnp.swapaxes(logits, 0, 1)
