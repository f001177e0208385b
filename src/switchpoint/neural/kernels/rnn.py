"""The steps of an RNN with ReLU units, forward and backward, each in one launch.

What a unit keeps of itself is multiplied in float32. It is near 1 in units that forget slowly, and
narrow numbers would round its distance from 1, which is how fast they forget.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.arithmetic import dot
from switchpoint.neural.kernels.call import NARROW, WIDE, unwritten
from switchpoint.neural.kernels.launch import Tiles, begun, run_steps
from switchpoint.neural.kernels.part import part_of
from switchpoint.neural.kernels.sums import said_by_next, sums_before

_FORWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)
_BACKWARD = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass: the outputs of each step."""

    outputs: Float[Array, "time batch hidden"]
    stack: stacks.Trace | None


class Derivatives(NamedTuple):
    """Those of the sums before the units; those of step t are at the place t - 1."""

    sums: Float[Array, "time batch hidden"]
    stack: stacks.Derivatives | None


def forward(
    weight: Float[Array, "hidden hidden"],
    table: Float[Array, "tokens hidden"],
    tokens: Int[Array, "time batch"],
    output: Float[Array, "batch hidden"],
    stack: stacks.Stack | None,
) -> Trace:
    """The output after each step."""
    time, batch = tokens.shape
    hidden = weight.shape[0]
    tiles = _FORWARD.fitting(batch, hidden, hidden)
    stack, stack_trace = stacks.forward_parts(stack, time, hidden // tiles.units)
    return Trace(
        *run_steps(
            partial(_forward_step, tiles=tiles, count=time),
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (tokens, table, _from_others(weight).astype(NARROW), jnp.diag(weight), stack),
            (begun(output, time, NARROW), stack_trace),
            jnp.arange(time, dtype=jnp.int32),
            "rnn_forward",
        )
    )


def backward(
    weight: Float[Array, "hidden hidden"],
    stack: stacks.Stack | None,
    trace: Trace,
    d_outputs: Float[Array, "time batch hidden"],
    d_stack: Float[Array, "batch places"] | None,
) -> Derivatives:
    """The derivatives; `d_stack` is of the last stack."""
    time, batch, hidden = d_outputs.shape
    tiles = _BACKWARD.fitting(batch, hidden, hidden)
    transposed, d_stack_trace = stacks.backward_parts(stack, time, hidden // tiles.units, d_stack)
    return Derivatives(
        *run_steps(
            partial(_backward_step, tiles=tiles, count=time),
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (_from_others(weight).T.astype(WIDE), jnp.diag(weight), transposed, trace, d_outputs),
            (unwritten(weight, (time, batch, hidden), WIDE, "sums"), d_stack_trace),
            jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
            "rnn_backward",
        )
    )


def _forward_step(
    time: Any,
    tokens: Any,
    table: Any,
    weight: Any,
    kept: Any,
    stack: Any,
    outputs: Any,
    stack_trace: Any,
    *,
    tiles: Tiles,
    count: int,
) -> None:
    part = part_of(time, count, tiles)
    (total,) = sums_before(part, [part.own], tokens, table, weight, stack, outputs, stack_trace)
    total += outputs[part.previous, part.rows, part.own] * kept[part.own][None, :]
    output = jnp.maximum(total, 0).astype(NARROW)
    outputs[part.t, part.rows, part.own] = output
    if stack is not None:
        stacks.store_share(part, stack_trace.written, dot(output, stack.write[part.own, :]))


def _backward_step(
    time: Any,
    weight: Any,
    kept: Any,
    stack: Any,
    trace: Trace,
    d_outputs: Any,
    d_sums: Any,
    d_stack_trace: Any,
    *,
    tiles: Tiles,
    count: int,
) -> None:
    part = part_of(time, count, tiles)
    (d_output,) = said_by_next(part, [part.own], weight, stack, trace.stack, d_sums, d_stack_trace)
    own = d_sums[part.t, part.rows, part.own] * kept[part.own][None, :]
    d_output += jnp.where(part.last, 0.0, own) + d_outputs[part.t, part.rows, part.own]
    active = trace.outputs[part.t, part.rows, part.own] > 0
    d_sum = jnp.where(active, d_output, 0.0).astype(WIDE)
    d_sums[part.previous, part.rows, part.own] = d_sum
    if stack is not None:
        stacks.store_share(part, d_stack_trace.tops, dot(d_sum, stack.read[part.own, :]))


def _from_others(weight: Float[Array, "hidden hidden"]) -> Float[Array, "hidden hidden"]:
    return weight - jnp.diag(jnp.diag(weight))
