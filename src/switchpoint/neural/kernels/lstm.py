"""The steps of an LSTM, forward and backward, each in one launch."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.call import NARROW, WIDE, unwritten
from switchpoint.neural.kernels.launch import Tiles, begun, run_steps
from switchpoint.neural.kernels.sums import Part, d_output_of, part_of, sums_before

_FORWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_BACKWARD = Tiles(rows=64, units=64, inner=128, warps=4, stages=3)


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass: outputs, cells and gates of each step."""

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
    stack, stack_trace = stacks.forward_parts(stack, time)
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
    cell: Float[Array, "batch hidden"],
    d_outputs: Float[Array, "time batch hidden"],
    d_output: Float[Array, "batch hidden"],
    d_cell: Float[Array, "batch hidden"],
    d_stack: Float[Array, "batch places"] | None,
) -> Derivatives:
    """The derivatives; `cell` is the first, `d_output`, `d_cell` and `d_stack` are of the last."""
    time, batch, hidden = d_outputs.shape
    tiles = _BACKWARD.fitting(batch, hidden, 4 * hidden)
    transposed, d_stack_trace = stacks.backward_parts(stack, time, d_stack)
    return Derivatives(
        *run_steps(
            partial(_backward_step, tiles=tiles, count=time),
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (weight.T.astype(WIDE), transposed, trace, cell, d_outputs, d_output),
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
    columns = _columns(part, outputs)
    write, forget, candidate, show = sums_before(
        part, columns, tokens, table, weight, stack, outputs, stack_trace
    )
    write, forget, show = jax.nn.sigmoid(write), jax.nn.sigmoid(forget + 1), jax.nn.sigmoid(show)
    candidate = jnp.tanh(candidate)
    after = forget * cell[rows, own] + write * candidate
    cell[rows, own] = after
    cells[t, rows, own] = after.astype(NARROW)
    outputs[t, rows, own] = (show * jnp.tanh(after)).astype(NARROW)
    for gate, column in zip((write, forget, candidate, show), columns, strict=True):
        gates[t, rows, column] = gate.astype(NARROW)


def _backward_step(
    time: Any,
    weight: Any,
    stack: Any,
    trace: Trace,
    first_cell: Any,
    d_outputs: Any,
    d_last: Any,
    d_cell: Any,
    d_sums: Any,
    d_stack_trace: Any,
    *,
    tiles: Tiles,
    count: int,
) -> None:
    part = part_of(time, count, tiles)
    t, rows, own = part.t, part.rows, part.own
    columns = _columns(part, d_outputs)
    d_output = d_output_of(
        part, weight, stack, trace.stack, d_outputs, d_last, d_sums, d_stack_trace
    )
    write, forget, candidate, show = (
        trace.gates[t, rows, column].astype(jnp.float32) for column in columns
    )
    squashed = jnp.tanh(trace.cells[t, rows, own].astype(jnp.float32))
    before = jnp.where(
        t == 0,
        first_cell[rows, own],
        trace.cells[part.previous, rows, own].astype(jnp.float32),
    )
    d_after = d_cell[rows, own] + d_output * show * (1 - squashed**2)
    slopes = (
        d_after * candidate * write * (1 - write),
        d_after * before * forget * (1 - forget),
        d_after * write * (1 - candidate**2),
        d_output * squashed * show * (1 - show),
    )
    for slope, column in zip(slopes, columns, strict=True):
        d_sums[part.previous, rows, column] = slope.astype(WIDE)
    d_cell[rows, own] = d_after * forget


def _columns(part: Part, outputs: Any) -> list[Any]:
    """Where the sums of each gate are for the units of this program."""
    hidden = outputs.shape[-1]
    return [pl.ds(gate * hidden + part.own.start, part.own.size) for gate in range(4)]
