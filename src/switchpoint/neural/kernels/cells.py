"""The steps of RNN and LSTM cells, forward and backward, one launch per step.

In an RNN the recurrent weight of a unit with itself is multiplied in float32. It is near 1 in
units with a long time constant, and float16 would round its distance from 1, the rate of decay.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.common import BF16, FP16, dot, empty, ring_buffer
from switchpoint.neural.kernels.steps import TileContext, Tiles, run_steps

_TILES = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_LSTM_BACKWARD = Tiles(rows=64, units=64, inner=64, warps=4, stages=4)
_UNITS_AT_ONCE = 16  # in the backward pass of an LSTM: all would take too many registers


class Trace(NamedTuple):
    """Residuals of each step for the backward pass; `cells` and `gates` are those of an LSTM."""

    outputs: Float[Array, "time batch hidden"]
    cells: Float[Array, "time batch hidden"] | None
    """The cell state before each step."""
    gates: Float[Array, "time batch gates"] | None
    stack: stacks.Trace | None


class Gradients(NamedTuple):
    """The gradients of the first cell state, and of the preactivations: step t in slot t - 1."""

    cell: Float[Array, "batch hidden"] | None
    preactivations: Float[Array, "time batch gates"]
    stack: stacks.Gradients | None


def forward(
    weight: Float[Array, "hidden gates"],
    table: Float[Array, "tokens gates"],
    tokens: Int[Array, "time batch"],
    output: Float[Array, "batch hidden"],
    cell: Float[Array, "batch hidden"] | None,
    stack: stacks.Stack | None,
) -> tuple[Float[Array, "batch hidden"] | None, Trace]:
    """The cell state after the last step, and the trace; `cell` is None in an RNN."""
    time, batch = tokens.shape
    hidden = weight.shape[0]
    tiles = _TILES.fitting(batch, hidden, hidden)
    stack, stack_trace = stacks.forward_buffers(stack, time, hidden // tiles.units)
    cells = gates = None
    if cell is not None:
        cells = empty(weight, (time, batch, hidden), FP16, "cells")
        gates = empty(weight, (time, batch, 4 * hidden), FP16, "gates")
    matrix, diagonal = _split_diagonal(weight)
    last, trace = run_steps(
        _rnn_forward if cell is None else _lstm_forward,
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (tokens, table, (matrix.astype(FP16), diagonal), stack),
        (cell, Trace(ring_buffer(weight, output, time, FP16), cells, gates, stack_trace)),
        jnp.arange(time, dtype=jnp.int32),
        "rnn_forward" if cell is None else "lstm_forward",
    )
    return last, trace


def backward(
    weight: Float[Array, "hidden gates"],
    stack: stacks.Stack | None,
    trace: Trace,
    d_outputs: Float[Array, "time batch hidden"],
    d_end: Float[Array, "batch hidden"],
    d_cell: Float[Array, "batch hidden"] | None,
    d_stack: Float[Array, "batch entries"] | None,
) -> Gradients:
    """The gradients.

    `d_outputs` are those of the outputs as the readout uses them; `d_end`, `d_cell` and `d_stack`
    are those of the last output, cell state and stack as the next chunk uses them.
    """
    time, batch, hidden = d_outputs.shape
    gates = weight.shape[1]
    tiles = (_TILES if d_cell is None else _LSTM_BACKWARD).fitting(batch, hidden, gates)
    transposed, stack_gradients = stacks.backward_buffers(
        stack, time, hidden // tiles.units, d_stack
    )
    matrix, diagonal = _split_diagonal(weight)
    d_preactivations = empty(weight, (time, batch, gates), BF16, "preactivations")
    (gradients,) = run_steps(
        _rnn_backward if d_cell is None else _lstm_backward,
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        ((matrix.T.astype(BF16), diagonal), transposed, trace, (d_outputs, d_end)),
        (Gradients(d_cell, d_preactivations, stack_gradients),),
        jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
        "rnn_backward" if d_cell is None else "lstm_backward",
    )
    return gradients


def _split_diagonal(weight: Array) -> tuple[Array, Array | None]:
    """The weight of an RNN without its diagonal, and the diagonal; that of an LSTM unchanged."""
    if weight.shape[0] != weight.shape[1]:
        return weight, None
    diagonal = jnp.diag(weight)
    return weight - jnp.diag(diagonal), diagonal


def _rnn_forward(
    context: TileContext, tokens: Any, table: Any, weight: Any, stack: Any, cell: None, trace: Any
) -> None:
    del cell
    matrix, diagonal = weight
    t, rows, units = context.t, context.rows, context.units
    (total,) = stacks.preactivations(context, [units], tokens, table, matrix, stack, trace)
    total += trace.outputs[context.previous, rows, units] * diagonal[units][None, :]
    output = jnp.maximum(total, 0).astype(FP16)
    trace.outputs[t, rows, units] = output
    if stack is not None:
        stacks.store_partial(context, trace.stack.written, dot(output, stack.write[units, :]))


def _rnn_backward(
    context: TileContext, weight: Any, stack: Any, trace: Trace, d_outputs: Any, gradients: Any
) -> None:
    matrix, diagonal = weight
    t, rows, units = context.t, context.rows, context.units
    (d_output,) = stacks.grad_from_next_step(context, [units], matrix, stack, trace, gradients)
    from_itself = gradients.preactivations[t, rows, units] * diagonal[units][None, :]
    d_output += jnp.where(context.last, 0.0, from_itself)
    d_output += _from_outside(context, units, *d_outputs)
    active = trace.outputs[t, rows, units] > 0
    d_preactivation = jnp.where(active, d_output, 0.0).astype(BF16)
    gradients.preactivations[context.previous, rows, units] = d_preactivation
    if stack is not None:
        d_top = dot(d_preactivation, stack.read[units, :])
        stacks.store_partial(context, gradients.stack.tops, d_top)


def _lstm_forward(
    context: TileContext, tokens: Any, table: Any, weight: Any, stack: Any, cell: Any, trace: Any
) -> None:
    t, rows, units = context.t, context.rows, context.units
    columns = _gate_columns(units, trace.outputs)
    input_gate, forget_gate, cell_gate, output_gate = stacks.preactivations(
        context, columns, tokens, table, weight[0], stack, trace
    )
    input_gate = jax.nn.sigmoid(input_gate)
    forget_gate = jax.nn.sigmoid(forget_gate + 1)
    output_gate = jax.nn.sigmoid(output_gate)
    cell_gate = jnp.tanh(cell_gate)
    before = cell[rows, units]
    after = forget_gate * before + input_gate * cell_gate
    output = (output_gate * jnp.tanh(after)).astype(FP16)
    cell[rows, units] = after
    trace.cells[t, rows, units] = before.astype(FP16)
    trace.outputs[t, rows, units] = output
    gates = (input_gate, forget_gate, cell_gate, output_gate)
    for gate, column in zip(gates, columns, strict=True):
        trace.gates[t, rows, column] = gate.astype(FP16)
    if stack is not None:
        stacks.store_partial(context, trace.stack.written, dot(output, stack.write[units, :]))


def _lstm_backward(
    context: TileContext, weight: Any, stack: Any, trace: Any, d_outputs: Any, gradients: Any
) -> None:
    t, rows = context.t, context.rows
    start, size = context.units.start, context.units.size
    width = min(size, _UNITS_AT_ONCE)
    parts = [pl.ds(start + i, width) for i in range(0, size, width)]
    d_from_next = stacks.grad_from_next_step(context, parts, weight[0], stack, trace, gradients)
    d_top = jnp.zeros((rows.size, stacks.COLUMNS), jnp.float32)
    for units, d_output in zip(parts, d_from_next, strict=True):
        columns = _gate_columns(units, trace.outputs)
        input_gate, forget_gate, cell_gate, output_gate = (
            trace.gates[t, rows, column].astype(jnp.float32) for column in columns
        )
        before = trace.cells[t, rows, units].astype(jnp.float32)
        squashed = jnp.tanh(forget_gate * before + input_gate * cell_gate)
        d_output += _from_outside(context, units, *d_outputs)
        d_after = gradients.cell[rows, units] + d_output * output_gate * (1 - squashed**2)
        d_gates = (
            d_after * cell_gate * input_gate * (1 - input_gate),
            d_after * before * forget_gate * (1 - forget_gate),
            d_after * input_gate * (1 - cell_gate**2),
            d_output * squashed * output_gate * (1 - output_gate),
        )
        gradients.cell[rows, units] = d_after * forget_gate
        for d_gate, column in zip(d_gates, columns, strict=True):
            d_preactivation = d_gate.astype(BF16)
            gradients.preactivations[context.previous, rows, column] = d_preactivation
            if stack is not None:
                d_top += dot(d_preactivation, stack.read[column, :])
    if stack is not None:
        stacks.store_partial(context, gradients.stack.tops, d_top)


def _from_outside(context: TileContext, units: Any, d_outputs: Any, d_end: Any) -> Any:
    """The gradient of this step's output through the readout, and through the end of the chunk.

    Only the last step loads the latter.
    """
    rows = context.rows
    zero = jnp.zeros((rows.size, units.size), jnp.float32)
    at_end = lax.cond(context.last, lambda: d_end[rows, units], lambda: zero)
    return d_outputs[context.t, rows, units] + at_end


def _gate_columns(units: Any, outputs: Any) -> list[Any]:
    """The columns of each gate for these units."""
    hidden = outputs.shape[-1]
    return [pl.ds(gate * hidden + units.start, units.size) for gate in range(4)]
