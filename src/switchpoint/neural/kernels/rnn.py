"""The steps of an RNN with ReLU units, forward and backward, each in one launch."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels.launch import NARROW, WIDE, Tiles, begun, run_steps, unwritten
from switchpoint.neural.kernels.lstm import chosen, from_next

_FORWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_BACKWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)


def forward(
    weight: Float[Array, "hidden hidden"],
    table: Float[Array, "tokens hidden"],
    tokens: Int[Array, "time batch"],
    output: Float[Array, "batch hidden"],
) -> Float[Array, "time batch hidden"]:
    """The output after each step."""
    time, batch = tokens.shape
    hidden = weight.shape[0]
    tiles = _FORWARD.fitting(batch, hidden, hidden)
    (outputs,) = run_steps(
        partial(_forward_step, tiles=tiles, count=time),
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (tokens, table, weight.astype(NARROW)),
        (begun(output, time, NARROW),),
        jnp.arange(time, dtype=jnp.int32),
        "rnn_forward",
    )
    return outputs


def backward(
    weight: Float[Array, "hidden hidden"],
    outputs: Float[Array, "time batch hidden"],
    d_outputs: Float[Array, "time batch hidden"],
    d_output: Float[Array, "batch hidden"],
) -> Float[Array, "time batch hidden"]:
    """The derivatives of the sums before each unit; those of step t are at the place t - 1.

    `d_output` is of the last output.
    """
    time, batch, hidden = d_outputs.shape
    tiles = _BACKWARD.fitting(batch, hidden, hidden)
    (d_sums,) = run_steps(
        partial(_backward_step, tiles=tiles, count=time),
        tiles,
        (batch // tiles.rows, hidden // tiles.units),
        (weight.T.astype(WIDE), d_outputs, d_output, outputs),
        (unwritten(weight, (time, batch, hidden), WIDE),),
        jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
        "rnn_backward",
    )
    return d_sums


def _forward_step(
    time: Any, tokens: Any, table: Any, weight: Any, outputs: Any, *, tiles: Tiles, count: int
) -> None:
    t = time[0]
    previous = (t + count - 1) % count
    rows = pl.ds(pl.program_id(0) * tiles.rows, tiles.rows)
    own = pl.ds(pl.program_id(1) * tiles.units, tiles.units)

    def add(k: Any, total: Any) -> Any:
        inner = pl.ds(k * tiles.inner, tiles.inner)
        return total + jnp.dot(
            outputs[previous, rows, inner], weight[inner, own], preferred_element_type=jnp.float32
        )

    zero = jnp.zeros((tiles.rows, tiles.units), jnp.float32)
    total = lax.fori_loop(0, weight.shape[0] // tiles.inner, add, zero)
    total = total + chosen(table, tokens[t, rows], own)
    outputs[t, rows, own] = jnp.maximum(total, 0).astype(NARROW)


def _backward_step(
    time: Any,
    weight: Any,
    d_outputs: Any,
    d_output_last: Any,
    outputs: Any,
    d_sums: Any,
    *,
    tiles: Tiles,
    count: int,
) -> None:
    t = time[0]
    rows = pl.ds(pl.program_id(0) * tiles.rows, tiles.rows)
    own = pl.ds(pl.program_id(1) * tiles.units, tiles.units)
    d_output = d_outputs[t, rows, own] + jnp.where(
        t == count - 1,
        d_output_last[rows, own],
        from_next(d_sums, weight, t, rows, own, tiles),
    )
    active = outputs[t, rows, own] > 0
    slope = jnp.where(active, d_output, 0.0).astype(WIDE)
    d_sums[(t + count - 1) % count, rows, own] = slope
