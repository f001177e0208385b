"""The steps of an LSTM, forward and backward, each in one launch."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.arithmetic import dot
from switchpoint.neural.kernels.call import NARROW, WIDE, unwritten
from switchpoint.neural.kernels.launch import Tiles, begun, run_steps
from switchpoint.neural.kernels.part import part_of
from switchpoint.neural.kernels.sums import said_by_next, sums_before

_FORWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_BACKWARD = Tiles(rows=64, units=64, inner=64, warps=4, stages=4)
_AT_ONCE = 16  # units whose derivatives are made together: all would take too many registers


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass: of each step the output and the gates.

    And the cell before it, from which they make the one after it.
    """

    outputs: Float[Array, "time batch hidden"]
    cells: Float[Array, "time batch hidden"]
    gates: Float[Array, "time batch gates"]
    stack: stacks.Trace | None


class Derivatives(NamedTuple):
    """Those of the first cell and of the sums before the gates.

    What belongs to step t is at the place t - 1, beside the outputs that it was multiplied by.
    """

    cell: Float[Array, "batch hidden"]
    sums: Float[Array, "time batch gates"]
    stack: stacks.Derivatives | None


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
    stack, stack_trace = stacks.forward_parts(stack, time, hidden // tiles.units)
    buffers = (
        cell,
        begun(output, time, NARROW),
        unwritten(weight, (time, batch, hidden), NARROW, "cells"),
        unwritten(weight, (time, batch, 4 * hidden), NARROW, "gates"),
        stack_trace,
    )
    last, *trace = run_steps(
        partial(_forward_step, tiles=tiles, count=time),
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (tokens, table, weight.astype(NARROW), stack),
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
    d_stack: Float[Array, "batch places"] | None,
) -> Derivatives:
    """The derivatives; `d_cell` and `d_stack` are of the last."""
    time, batch, hidden = d_outputs.shape
    tiles = _BACKWARD.fitting(batch, hidden, 4 * hidden)
    transposed, d_stack_trace = stacks.backward_parts(stack, time, hidden // tiles.units, d_stack)
    return Derivatives(
        *run_steps(
            partial(_backward_step, tiles=tiles, count=time),
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (weight.T.astype(WIDE), transposed, trace, d_outputs),
            (d_cell, unwritten(weight, (time, batch, 4 * hidden), WIDE, "sums"), d_stack_trace),
            jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
            "lstm_backward",
        )
    )


def _forward_step(
    time: Any,
    tokens: Any,
    table: Any,
    weight: Any,
    stack: Any,
    cell: Any,
    outputs: Any,
    cells: Any,
    gates: Any,
    stack_trace: Any,
    *,
    tiles: Tiles,
    count: int,
) -> None:
    part = part_of(time, count, tiles)
    t, rows, own = part.t, part.rows, part.own
    columns = _columns(own, outputs)
    write, forget, candidate, show = sums_before(
        part, columns, tokens, table, weight, stack, outputs, stack_trace
    )
    write, forget, show = jax.nn.sigmoid(write), jax.nn.sigmoid(forget + 1), jax.nn.sigmoid(show)
    candidate = jnp.tanh(candidate)
    before = cell[rows, own]
    after = forget * before + write * candidate
    output = (show * jnp.tanh(after)).astype(NARROW)
    cell[rows, own] = after
    cells[t, rows, own] = before.astype(NARROW)
    outputs[t, rows, own] = output
    for gate, column in zip((write, forget, candidate, show), columns, strict=True):
        gates[t, rows, column] = gate.astype(NARROW)
    if stack is not None:
        stacks.store_share(part, stack_trace.written, dot(output, stack.write[own, :]))


def _backward_step(
    time: Any,
    weight: Any,
    stack: Any,
    trace: Trace,
    d_outputs: Any,
    d_cell: Any,
    d_sums: Any,
    d_stack_trace: Any,
    *,
    tiles: Tiles,
    count: int,
) -> None:
    part = part_of(time, count, tiles)
    t, rows = part.t, part.rows
    width = min(tiles.units, _AT_ONCE)
    pieces = [pl.ds(part.own.start + i, width) for i in range(0, tiles.units, width)]
    d_from_next = said_by_next(part, pieces, weight, stack, trace.stack, d_sums, d_stack_trace)
    d_top = jnp.zeros((tiles.rows, stacks.COLUMNS), jnp.float32)
    for own, d_output in zip(pieces, d_from_next, strict=True):
        columns = _columns(own, d_outputs)
        write, forget, candidate, show = (
            trace.gates[t, rows, column].astype(jnp.float32) for column in columns
        )
        before = trace.cells[t, rows, own].astype(jnp.float32)
        squashed = jnp.tanh(forget * before + write * candidate)
        d_output += d_outputs[t, rows, own]
        d_after = d_cell[rows, own] + d_output * show * (1 - squashed**2)
        slopes = (
            d_after * candidate * write * (1 - write),
            d_after * before * forget * (1 - forget),
            d_after * write * (1 - candidate**2),
            d_output * squashed * show * (1 - show),
        )
        d_cell[rows, own] = d_after * forget
        for slope, column in zip(slopes, columns, strict=True):
            d_sum = slope.astype(WIDE)
            d_sums[part.previous, rows, column] = d_sum
            if stack is not None:
                d_top += dot(d_sum, stack.read[column, :])
    if stack is not None:
        stacks.store_share(part, d_stack_trace.tops, d_top)


def _columns(own: Any, outputs: Any) -> list[Any]:
    """Where the sums of each gate are for these units."""
    hidden = outputs.shape[-1]
    return [pl.ds(gate * hidden + own.start, own.size) for gate in range(4)]
