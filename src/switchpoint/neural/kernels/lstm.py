"""The steps of an LSTM, forward and backward, each in one launch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.common import BF16, FP16, dot, empty, ring_buffer
from switchpoint.neural.kernels.steps import TileContext, Tiles, run_steps

_FORWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_BACKWARD = Tiles(rows=64, units=64, inner=64, warps=4, stages=4)
_UNITS_AT_ONCE = 16  # in the backward pass: all would take too many registers


class Trace(NamedTuple):
    """What the backward pass needs: each step's output and gates, and the cell before it."""

    outputs: Float[Array, "time batch hidden"]
    cells: Float[Array, "time batch hidden"]
    gates: Float[Array, "time batch gates"]
    stack: stacks.Trace | None


class Gradients(NamedTuple):
    """Those of the first cell and of the preactivations; those of step t are in slot t - 1."""

    cell: Float[Array, "batch hidden"]
    preactivations: Float[Array, "time batch gates"]
    stack: stacks.Gradients | None


def forward(
    weight: Float[Array, "hidden gates"],
    table: Float[Array, "tokens gates"],
    tokens: Int[Array, "time batch"],
    output: Float[Array, "batch hidden"],
    cell: Float[Array, "batch hidden"],
    stack: stacks.Stack | None,
) -> tuple[Float[Array, "batch hidden"], Trace]:
    """The cell after the last step, and the trace."""
    time, batch = tokens.shape
    hidden = weight.shape[0]
    tiles = _FORWARD.fitting(batch, hidden, hidden)
    stack, stack_trace = stacks.forward_buffers(stack, time, hidden // tiles.units)
    buffers = (
        cell,
        ring_buffer(output, time, FP16),
        empty(weight, (time, batch, hidden), FP16, "cells"),
        empty(weight, (time, batch, 4 * hidden), FP16, "gates"),
        stack_trace,
    )
    last, *trace = run_steps(
        _forward_step,
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (tokens, table, weight.astype(FP16), stack),
        buffers,
        jnp.arange(time, dtype=jnp.int32),
        "lstm_forward",
    )
    return last, Trace(*trace)


def backward(
    weight: Float[Array, "hidden gates"],
    stack: stacks.Stack | None,
    trace: Trace,
    d_outputs: Float[Array, "time batch hidden"],
    d_cell: Float[Array, "batch hidden"],
    d_stack: Float[Array, "batch entries"] | None,
) -> Gradients:
    """The gradients; `d_cell` and `d_stack` are those of the last cell and stack."""
    time, batch, hidden = d_outputs.shape
    tiles = _BACKWARD.fitting(batch, hidden, 4 * hidden)
    transposed, gradients = stacks.backward_buffers(stack, time, hidden // tiles.units, d_stack)
    return Gradients(
        *run_steps(
            _backward_step,
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (weight.T.astype(BF16), transposed, trace, d_outputs),
            (d_cell, empty(weight, (time, batch, 4 * hidden), BF16, "preactivations"), gradients),
            jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
            "lstm_backward",
        )
    )


def _forward_step(
    context: TileContext,
    tokens: Any,
    table: Any,
    weight: Any,
    stack: Any,
    cell: Any,
    outputs: Any,
    cells: Any,
    gates: Any,
    trace: Any,
) -> None:
    t, rows, units = context.t, context.rows, context.units
    columns = _gate_columns(units, outputs)
    input_gate, forget_gate, cell_gate, output_gate = stacks.preactivations(
        context, columns, tokens, table, weight, stack, outputs, trace
    )
    input_gate = jax.nn.sigmoid(input_gate)
    forget_gate = jax.nn.sigmoid(forget_gate + 1)
    output_gate = jax.nn.sigmoid(output_gate)
    cell_gate = jnp.tanh(cell_gate)
    before = cell[rows, units]
    after = forget_gate * before + input_gate * cell_gate
    output = (output_gate * jnp.tanh(after)).astype(FP16)
    cell[rows, units] = after
    cells[t, rows, units] = before.astype(FP16)
    outputs[t, rows, units] = output
    for gate, column in zip(
        (input_gate, forget_gate, cell_gate, output_gate), columns, strict=True
    ):
        gates[t, rows, column] = gate.astype(FP16)
    if stack is not None:
        stacks.store_partial(context, trace.written, dot(output, stack.write[units, :]))


def _backward_step(
    context: TileContext,
    weight: Any,
    stack: Any,
    trace: Trace,
    d_outputs: Any,
    d_cell: Any,
    d_preactivations: Any,
    gradients: Any,
) -> None:
    t, rows = context.t, context.rows
    start, size = context.units.start, context.units.size
    width = min(size, _UNITS_AT_ONCE)
    parts = [pl.ds(start + i, width) for i in range(0, size, width)]
    d_from_next = stacks.grad_from_next_step(
        context, parts, weight, stack, trace.stack, d_preactivations, gradients
    )
    d_top = jnp.zeros((rows.size, stacks.COLUMNS), jnp.float32)
    for units, d_output in zip(parts, d_from_next, strict=True):
        columns = _gate_columns(units, d_outputs)
        input_gate, forget_gate, cell_gate, output_gate = (
            trace.gates[t, rows, column].astype(jnp.float32) for column in columns
        )
        before = trace.cells[t, rows, units].astype(jnp.float32)
        squashed = jnp.tanh(forget_gate * before + input_gate * cell_gate)
        d_output += d_outputs[t, rows, units]
        d_after = d_cell[rows, units] + d_output * output_gate * (1 - squashed**2)
        d_gates = (
            d_after * cell_gate * input_gate * (1 - input_gate),
            d_after * before * forget_gate * (1 - forget_gate),
            d_after * input_gate * (1 - cell_gate**2),
            d_output * squashed * output_gate * (1 - output_gate),
        )
        d_cell[rows, units] = d_after * forget_gate
        for d_gate, column in zip(d_gates, columns, strict=True):
            d_preactivation = d_gate.astype(BF16)
            d_preactivations[context.previous, rows, column] = d_preactivation
            if stack is not None:
                d_top += dot(d_preactivation, stack.read[column, :])
    if stack is not None:
        stacks.store_partial(context, gradients.tops, d_top)


def _gate_columns(units: Any, outputs: Any) -> list[Any]:
    """The columns of each gate for these units."""
    hidden = outputs.shape[-1]
    return [pl.ds(gate * hidden + units.start, units.size) for gate in range(4)]
