"""The steps of an LSTM, forward and backward, each in one launch."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels.launch import NARROW, WIDE, Tiles, begun, run_steps, unwritten

_FORWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_BACKWARD = Tiles(rows=64, units=64, inner=128, warps=4, stages=3)


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass: outputs, cells and gates of each step."""

    outputs: Float[Array, "time batch hidden"]
    cells: Float[Array, "time batch hidden"]
    gates: Float[Array, "time batch gates"]


def forward(
    weight: Float[Array, "hidden gates"],
    table: Float[Array, "tokens gates"],
    tokens: Int[Array, "time batch"],
    output: Float[Array, "batch hidden"],
    cell: Float[Array, "batch hidden"],
) -> tuple[Float[Array, "batch hidden"], Trace]:
    """The cell after the last step, and the trace."""
    time, batch = tokens.shape
    hidden = weight.shape[0]
    tiles = _FORWARD.fitting(batch, hidden, hidden)
    buffers = (
        cell,
        begun(output, time, NARROW),
        unwritten(weight, (time, batch, hidden), NARROW),
        unwritten(weight, (time, batch, 4 * hidden), NARROW),
    )
    last, *trace = run_steps(
        partial(_forward_step, tiles=tiles, hidden=hidden, count=time),
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (tokens, table, weight.astype(NARROW)),
        buffers,
        jnp.arange(time, dtype=jnp.int32),
        "lstm_forward",
    )
    return last, Trace(*trace)


def backward(
    weight: Float[Array, "hidden gates"],
    trace: Trace,
    cell: Float[Array, "batch hidden"],
    d_outputs: Float[Array, "time batch hidden"],
    d_output: Float[Array, "batch hidden"],
    d_cell: Float[Array, "batch hidden"],
) -> tuple[Float[Array, "batch hidden"], Float[Array, "time batch gates"]]:
    """The derivatives of the first cell, and of the sums before each gate.

    `cell` is the first one; `d_output` and `d_cell` are of the last ones. What belongs to step
    t is at the place t - 1, beside the outputs that it was multiplied by.
    """
    time, batch, hidden = d_outputs.shape
    tiles = _BACKWARD.fitting(batch, hidden, 4 * hidden)
    d_cell, d_sums = run_steps(
        partial(_backward_step, tiles=tiles, hidden=hidden, count=time),
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (weight.T.astype(WIDE), d_outputs, d_output, cell, trace.cells, trace.gates),
        (d_cell, unwritten(weight, (time, batch, 4 * hidden), WIDE)),
        jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
        "lstm_backward",
    )
    return d_cell, d_sums


def _forward_step(
    time: Any,
    tokens: Any,
    table: Any,
    weight: Any,
    cell: Any,
    outputs: Any,
    cells: Any,
    gates: Any,
    *,
    tiles: Tiles,
    hidden: int,
    count: int,
) -> None:
    t = time[0]
    previous = (t + count - 1) % count
    rows, own, columns = _part(tiles, hidden)

    def add(k: Any, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        inner = pl.ds(k * tiles.inner, tiles.inner)
        before = outputs[previous, rows, inner]
        return tuple(
            s + jnp.dot(before, weight[inner, column], preferred_element_type=jnp.float32)
            for s, column in zip(sums, columns, strict=True)
        )

    zero = jnp.zeros((tiles.rows, tiles.units), jnp.float32)
    sums = lax.fori_loop(0, hidden // tiles.inner, add, (zero,) * 4)
    token = tokens[t, rows]
    write, forget, candidate, show = (
        s + chosen(table, token, column) for s, column in zip(sums, columns, strict=True)
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
    d_outputs: Any,
    d_output_last: Any,
    first_cell: Any,
    cells: Any,
    gates: Any,
    d_cell: Any,
    d_sums: Any,
    *,
    tiles: Tiles,
    hidden: int,
    count: int,
) -> None:
    t = time[0]
    previous = (t + count - 1) % count
    rows, own, columns = _part(tiles, hidden)
    d_output = d_outputs[t, rows, own] + jnp.where(
        t == count - 1,
        d_output_last[rows, own],
        from_next(d_sums, weight, t, rows, own, tiles),
    )
    write, forget, candidate, show = (
        gates[t, rows, column].astype(jnp.float32) for column in columns
    )
    squashed = jnp.tanh(cells[t, rows, own].astype(jnp.float32))
    before = jnp.where(
        t == 0, first_cell[rows, own], cells[previous, rows, own].astype(jnp.float32)
    )
    d_after = d_cell[rows, own] + d_output * show * (1 - squashed**2)
    slopes = (
        d_after * candidate * write * (1 - write),
        d_after * before * forget * (1 - forget),
        d_after * write * (1 - candidate**2),
        d_output * squashed * show * (1 - show),
    )
    for slope, column in zip(slopes, columns, strict=True):
        d_sums[previous, rows, column] = slope.astype(WIDE)
    d_cell[rows, own] = d_after * forget


def _part(tiles: Tiles, hidden: int) -> tuple[Any, Any, list[Any]]:
    """What this program computes: the sequences, the units, and the units of each gate."""
    rows = pl.ds(pl.program_id(0) * tiles.rows, tiles.rows)
    first = pl.program_id(1) * tiles.units
    columns = [pl.ds(gate * hidden + first, tiles.units) for gate in range(4)]
    return rows, pl.ds(first, tiles.units), columns


def chosen(table: Any, token: Any, column: Any) -> Any:
    """The table's row of each token, in these columns."""
    rows = [
        jnp.where(token[:, None] == k, table[k, column][None, :], 0.0)
        for k in range(table.shape[0])
    ]
    return sum(rows)


def from_next(d_sums: Any, weight: Any, t: Any, rows: Any, own: Any, tiles: Tiles) -> Any:
    """What the sums of the next step say about the outputs of step t."""

    def add(k: Any, total: Any) -> Any:
        inner = pl.ds(k * tiles.inner, tiles.inner)
        return total + jnp.dot(
            d_sums[t, rows, inner], weight[inner, own], preferred_element_type=jnp.float32
        )

    zero = jnp.zeros((tiles.rows, tiles.units), jnp.float32)
    return lax.fori_loop(0, weight.shape[0] // tiles.inner, add, zero)
