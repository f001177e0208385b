"""Recurrent networks on GPU kernels: the function of the plain path, with a custom gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from switchpoint.neural.cells import (
    Cell,
    LSTMCarry,
    LSTMCell,
    RNNCell,
    StackCarry,
    StackCell,
    stack_update,
)
from switchpoint.neural.dense import Perceptron
from switchpoint.neural.kernels import cells
from switchpoint.neural.kernels import readout as readouts
from switchpoint.neural.kernels.common import BF16, weight_gradient
from switchpoint.neural.kernels.stack import COLUMNS, MAX_WIDTH, Stack, padded, value_first

_MAX_TOKENS = 16  # the kernels scan every row of the table
_MAX_DEPTH = 256  # they store every stack of a sequence


def can_fuse(cell: Cell, tokens: int, time: int) -> bool:
    """Whether there is a kernel for this cell, number of different tokens and number of steps.

    A single step would read and write the same slot of its ring buffer.
    """
    if isinstance(cell, StackCell):
        fits = cell.width <= MAX_WIDTH and cell.depth <= _MAX_DEPTH
        return fits and can_fuse(cell.inner, tokens, time)
    has_kernel = isinstance(cell, RNNCell | LSTMCell) and cell.hidden % 16 == 0
    return has_kernel and tokens <= _MAX_TOKENS and time > 1


def fused_recurrence(
    cell: Cell,
    readout: Perceptron,
    carry: Any,
    table: Float[Array, "tokens gates"],
    tokens: Int[Array, "time batch"],
) -> tuple[Any, Float[Array, "time batch alphabet"]]:
    """The carry after the last step, and the logits after each.

    `table` has each token's input preactivation.
    """
    if not isinstance(cell, StackCell):
        last, _, logits = _fused(cell, readout, carry, table, None, tokens)
        return last, logits
    for_inner, for_stack = jnp.split(table, [cell.inner.input_width], axis=-1)
    stack = Stack(
        padded(carry.stack).reshape(len(carry.stack), -1),
        padded(cell.read.T).T,
        value_first(cell.write),
        value_first(for_stack),
    )
    inner, entries, logits = _fused(cell.inner, readout, carry.inner, for_inner, stack, tokens)
    # The kernels update the stack at the beginning of a step: the last update is left.
    before = entries.reshape(*carry.stack.shape[:2], COLUMNS)[..., : cell.width]
    output = cell.inner.output(inner)
    written = output @ cell.write + jax.nn.one_hot(tokens[-1], len(table)) @ for_stack
    actions, value = jnp.split(written, [3], axis=-1)
    return StackCarry(inner, stack_update(before, jax.nn.softmax(actions), value)), logits


@jax.custom_vjp
def _fused(*arguments: Any) -> tuple[Any, Any, Float[Array, "time batch alphabet"]]:
    """The carry after the last step, the stack that it read, and the logits after each."""
    return _forward(*arguments)[0]


def _forward(
    cell: Any,
    readout: Perceptron,
    carry: Any,
    table: Float[Array, "tokens gates"],
    stack: Stack | None,
    tokens: Int[Array, "time batch"],
) -> tuple[Any, Any]:
    is_lstm = isinstance(cell, LSTMCell)
    output, state = (carry.output, carry.cell) if is_lstm else (carry, None)
    last: Any
    last, trace = cells.forward(cell.weight, table, tokens, output, state, stack)
    output = trace.outputs[-1].astype(table.dtype)
    end = LSTMCarry(output, last) if is_lstm else output
    entries = None if trace.stack is None else trace.stack.stacks[-1]
    logits = readouts.forward(readout, _flat(trace.outputs)).reshape(*tokens.shape, -1)
    return (end, entries, logits), (cell, readout, carry, table, stack, tokens, trace)


def _backward(residuals: Any, cotangent: Any) -> Any:
    cell, readout, carry, table, stack, tokens, trace = residuals
    d_carry, d_entries, d_logits = cotangent
    d_readout, flat = readouts.backward(readout, _flat(trace.outputs), _flat(d_logits))
    d_outputs = flat.reshape(trace.outputs.shape)
    is_lstm = isinstance(cell, LSTMCell)
    initial, d_end, d_state = (
        (carry.output, d_carry.output, d_carry.cell) if is_lstm else (carry, d_carry, None)
    )
    gradients: Any = cells.backward(cell.weight, stack, trace, d_outputs, d_end, d_state, d_entries)
    # The preactivations of step t share a slot with the outputs of step t - 1, but those of the
    # first step with the last outputs, not the initial one: the gradient is corrected for that.
    outputs, d_preactivations = trace.outputs.astype(BF16), gradients.preactivations
    d_first = d_preactivations[-1].astype(table.dtype)
    correction = initial.astype(table.dtype) - trace.outputs[-1].astype(table.dtype)
    d_weight = weight_gradient(outputs, d_preactivations) + correction.T @ d_first
    hot = jax.nn.one_hot(jnp.roll(tokens, -1, axis=0), len(table), dtype=BF16)
    d_table = weight_gradient(hot, d_preactivations)
    d_initial = d_first @ cell.weight.T
    d_start = LSTMCarry(d_initial, gradients.cell) if is_lstm else d_initial
    d_stack = None
    if stack is not None:
        tops = jnp.roll(trace.stack.stacks[..., :COLUMNS].astype(BF16), -1, axis=0)
        hot = jax.nn.one_hot(tokens, len(table), dtype=BF16)
        d_stack = Stack(
            gradients.stack.stacks[0].at[:, :COLUMNS].add(d_first @ stack.read.T),
            weight_gradient(tops, d_preactivations),
            weight_gradient(outputs, gradients.stack.written),
            weight_gradient(hot, gradients.stack.written),
        )
    d_cell = eqx.tree_at(lambda c: c.weight, cell, d_weight)
    return d_cell, d_readout, d_start, d_table, d_stack, None


def _flat(values: Float[Array, "time batch columns"]) -> Float[Array, "rows columns"]:
    return values.reshape(-1, values.shape[-1])


_fused.defvjp(_forward, _backward)
