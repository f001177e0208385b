"""Recurrences by kernels: the same function as the plain path, with its own derivative."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from switchpoint.neural.cells import Cell, LSTMCarry, LSTMCell, RNNCell
from switchpoint.neural.kernels import lstm, rnn
from switchpoint.neural.kernels.launch import WIDE

_MOST_TOKENS = 16  # the kernels look at every row of the table


def can_fuse(cell: Cell, tokens: int, time: int) -> bool:
    """Whether there is a kernel for this cell, so many different tokens and so many steps.

    A single step would read and write the same place of its buffer.
    """
    known = isinstance(cell, RNNCell | LSTMCell) and cell.hidden % 16 == 0
    return known and tokens <= _MOST_TOKENS and time > 1


@jax.custom_vjp
def fused_recurrence(
    cell: Cell,
    carry: Any,
    table: Float[Array, "tokens drive"],
    tokens: Int[Array, "time batch"],
) -> tuple[Any, Float[Array, "time batch hidden"]]:
    """The carry after the last step, and the output after each; `table` has each token's drive."""
    return _forward(cell, carry, table, tokens)[0]


def _forward(
    cell: Cell, carry: Any, table: Float[Array, "tokens drive"], tokens: Int[Array, "time batch"]
) -> tuple[Any, Any]:
    if isinstance(cell, LSTMCell):
        last, trace = lstm.forward(cell.weight, table, tokens, carry.output, carry.cell)
        outputs = trace.outputs.astype(table.dtype)
        return (LSTMCarry(outputs[-1], last), outputs), (cell, carry, table, tokens, trace)
    assert isinstance(cell, RNNCell)
    narrow = rnn.forward(cell.weight, table, tokens, carry)
    outputs = narrow.astype(table.dtype)
    return (outputs[-1], outputs), (cell, carry, table, tokens, narrow)


def _backward(residuals: Any, cotangent: Any) -> Any:
    cell, carry, table, tokens, trace = residuals
    d_carry, d_outputs = cotangent
    if isinstance(cell, LSTMCell):
        outputs, first = trace.outputs, carry.output
        d_cell, d_sums = lstm.backward(
            cell.weight, trace, carry.cell, d_outputs, d_carry.output, d_carry.cell
        )
    else:
        outputs, first = trace, carry
        d_cell, d_sums = None, rnn.backward(cell.weight, trace, d_outputs, d_carry)
    # The sums of step t lie beside the outputs of step t - 1, but those of the first step beside
    # the last outputs: there the product is put right.
    of_first = d_sums[-1].astype(table.dtype)
    wrong = first.astype(table.dtype) - outputs[-1].astype(table.dtype)
    d_weight = _product(outputs.astype(WIDE), d_sums, table.dtype) + wrong.T @ of_first
    hot = jax.nn.one_hot(jnp.roll(tokens, -1, axis=0), table.shape[0], dtype=WIDE)
    d_table = _product(hot, d_sums, table.dtype)
    d_first = of_first @ cell.weight.T
    d_start = d_first if d_cell is None else LSTMCarry(d_first, d_cell)
    return eqx.tree_at(lambda c: c.weight, cell, d_weight), d_start, d_table, None


def _product(
    left: Float[Array, "time batch left"], right: Float[Array, "time batch right"], dtype: Any
) -> Float[Array, "left right"]:
    """The sum of outer products over time and batch."""
    flat_left = left.reshape(-1, left.shape[-1])
    return jnp.dot(flat_left.T, right.reshape(-1, right.shape[-1]), preferred_element_type=dtype)


fused_recurrence.defvjp(_forward, _backward)
