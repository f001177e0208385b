"""Recurrences by kernels: the same function as the plain path, with its own derivative."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.neural.cells import Cell, LSTMCarry, LSTMCell, RNNCell
from switchpoint.neural.dense import Perceptron
from switchpoint.neural.kernels import lstm, rnn
from switchpoint.neural.kernels import readout as readouts
from switchpoint.neural.kernels.arithmetic import product
from switchpoint.neural.kernels.call import WIDE
from switchpoint.neural.kernels.stack import COLUMNS, MOST_VALUES, Stack, padded, value_first
from switchpoint.neural.stack import StackCarry, StackCell, moved

_MOST_TOKENS = 16  # the kernels look at every row of the table
_MOST_ENTRIES = 16  # and at every entry of the stack


def can_fuse(cell: Cell, tokens: int, time: int) -> bool:
    """Whether there is a kernel for this cell, so many different tokens and so many steps.

    A single step would read and write the same place of its buffer.
    """
    if isinstance(cell, StackCell):
        fits = cell.width <= MOST_VALUES and cell.depth <= _MOST_ENTRIES
        return fits and can_fuse(cell.inner, tokens, time)
    known = isinstance(cell, RNNCell | LSTMCell) and cell.hidden % 16 == 0
    return known and tokens <= _MOST_TOKENS and time > 1


def fused_recurrence(
    cell: Cell,
    readout: Perceptron,
    carry: Any,
    table: Float[Array, "tokens drive"],
    tokens: Int[Array, "time batch"],
) -> tuple[Any, Float[Array, "time batch alphabet"]]:
    """The carry after the last step, and what is read out of the output after each.

    `table` has each token's drive.
    """
    if not isinstance(cell, StackCell):
        last, _, logits = _fused(cell, readout, carry, table, None, tokens)
        return last, logits
    for_inner, for_stack = jnp.split(table, [cell.inner.drive_width], axis=-1)
    stack = Stack(
        padded(carry.stack).reshape(len(carry.stack), -1),
        padded(cell.read.T).T,
        value_first(cell.write),
        value_first(for_stack),
    )
    inner, entries, logits = _fused(cell.inner, readout, carry.inner, for_inner, stack, tokens)
    # The kernels move the stack at the beginning of a step, and after the last there is no more.
    before = entries.reshape(*carry.stack.shape[:2], COLUMNS)[..., : cell.width]
    output = cell.inner.output(inner)
    written = output @ cell.write + jax.nn.one_hot(tokens[-1], len(table)) @ for_stack
    actions, value = jnp.split(written, [3], axis=-1)
    return StackCarry(inner, moved(before, jax.nn.softmax(actions), value)), logits


@jax.custom_vjp
def _fused(
    cell: Cell,
    readout: Perceptron,
    carry: Any,
    table: Float[Array, "tokens drive"],
    stack: Stack | None,
    tokens: Int[Array, "time batch"],
) -> tuple[Any, Any, Float[Array, "time batch alphabet"]]:
    """The carry after the last step, the stack that it read, and the logits after each."""
    return _forward(cell, readout, carry, table, stack, tokens)[0]


def _forward(
    cell: Cell,
    readout: Perceptron,
    carry: Any,
    table: Float[Array, "tokens drive"],
    stack: Stack | None,
    tokens: Int[Array, "time batch"],
) -> tuple[Any, Any]:
    trace: rnn.Trace | lstm.Trace
    if isinstance(cell, LSTMCell):
        last, trace = lstm.forward(cell.weight, table, tokens, carry.output, carry.cell, stack)
        end: Any = LSTMCarry(trace.outputs[-1].astype(table.dtype), last)
    else:
        assert isinstance(cell, RNNCell)
        trace = rnn.forward(cell.weight, table, tokens, carry, stack)
        end = trace.outputs[-1].astype(table.dtype)
    entries = None if trace.stack is None else trace.stack.stacks[-1]
    logits = readouts.forward(readout, _flat(trace.outputs)).reshape(*tokens.shape, -1)
    return (end, entries, logits), (cell, readout, carry, table, stack, tokens, trace)


def _backward(residuals: Any, cotangent: Any) -> Any:
    cell, readout, carry, table, stack, tokens, trace = residuals
    d_carry, d_entries, d_logits = cotangent
    d_readout, flat = readouts.backward(readout, _flat(trace.outputs), _flat(d_logits))
    d_outputs = flat.reshape(trace.outputs.shape)
    if isinstance(cell, LSTMCell):
        first = carry.output
        d_outputs = _added_to_last(d_outputs, d_carry.output)
        found: Any = lstm.backward(cell.weight, stack, trace, d_outputs, d_carry.cell, d_entries)
    else:
        first = carry
        d_outputs = _added_to_last(d_outputs, d_carry)
        found = rnn.backward(cell.weight, stack, trace, d_outputs, d_entries)
    # The sums of step t lie beside the outputs of step t - 1, but those of the first step beside
    # the last outputs: there the product is put right.
    outputs, of_first = trace.outputs.astype(WIDE), found.sums[-1].astype(table.dtype)
    wrong = first.astype(table.dtype) - trace.outputs[-1].astype(table.dtype)
    d_weight = product(outputs, found.sums) + wrong.T @ of_first
    hot = jax.nn.one_hot(jnp.roll(tokens, -1, axis=0), len(table), dtype=WIDE)
    d_table = product(hot, found.sums)
    d_first = of_first @ cell.weight.T
    d_start = LSTMCarry(d_first, found.cell) if isinstance(cell, LSTMCell) else d_first
    d_stack = None
    if stack is not None:
        tops = jnp.roll(trace.stack.stacks[..., :COLUMNS].astype(WIDE), -1, axis=0)
        hot = jax.nn.one_hot(tokens, len(table), dtype=WIDE)
        d_stack = Stack(
            found.stack.stacks[0].at[:, :COLUMNS].add(of_first @ stack.read.T),
            product(tops, found.sums),
            product(outputs, found.stack.written),
            product(hot, found.stack.written),
        )
    d_cell = eqx.tree_at(lambda c: c.weight, cell, d_weight)
    return d_cell, d_readout, d_start, d_table, d_stack, None


def _added_to_last(
    values: Float[Array, "time batch hidden"], more: Float[Array, "batch hidden"]
) -> Float[Array, "time batch hidden"]:
    """The same with `more` added at the last time."""
    last = (values[-1] + more).astype(values.dtype)
    return lax.dynamic_update_index_in_dim(values, last, len(values) - 1, 0)


def _flat(values: Float[Array, "time batch columns"]) -> Float[Array, "rows columns"]:
    return values.reshape(-1, values.shape[-1])


_fused.defvjp(_forward, _backward)
