"""The steps of an RNN with ReLU units, forward and backward, each in one launch.

The recurrent weight of a unit with itself is multiplied in float32. It is near 1 in units with a
long time constant, and float16 would round its distance from 1, which is the rate of decay.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.common import BF16, FP16, dot, empty, ring_buffer
from switchpoint.neural.kernels.steps import TileContext, Tiles, run_steps

_TILES = Tiles(rows=32, units=64, inner=64, warps=4, stages=3)


class Trace(NamedTuple):
    """What the backward pass needs of the forward pass: the outputs of each step."""

    outputs: Float[Array, "time batch hidden"]
    stack: stacks.Trace | None


class Gradients(NamedTuple):
    """Those of the preactivations; those of step t are in slot t - 1."""

    preactivations: Float[Array, "time batch hidden"]
    stack: stacks.Gradients | None


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
    tiles = _TILES.fitting(batch, hidden, hidden)
    stack, stack_trace = stacks.forward_buffers(stack, time, hidden // tiles.units)
    return Trace(
        *run_steps(
            _forward_step,
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (tokens, table, _off_diagonal(weight).astype(FP16), jnp.diag(weight), stack),
            (ring_buffer(output, time, FP16), stack_trace),
            jnp.arange(time, dtype=jnp.int32),
            "rnn_forward",
        )
    )


def backward(
    weight: Float[Array, "hidden hidden"],
    stack: stacks.Stack | None,
    trace: Trace,
    d_outputs: Float[Array, "time batch hidden"],
    d_stack: Float[Array, "batch entries"] | None,
) -> Gradients:
    """The gradients; `d_stack` is that of the last stack."""
    time, batch, hidden = d_outputs.shape
    tiles = _TILES.fitting(batch, hidden, hidden)
    transposed, gradients = stacks.backward_buffers(stack, time, hidden // tiles.units, d_stack)
    return Gradients(
        *run_steps(
            _backward_step,
            tiles,
            (batch // tiles.rows, hidden // tiles.units),
            (_off_diagonal(weight).T.astype(BF16), jnp.diag(weight), transposed, trace, d_outputs),
            (empty(weight, (time, batch, hidden), BF16, "preactivations"), gradients),
            jnp.arange(time - 1, -1, -1, dtype=jnp.int32),
            "rnn_backward",
        )
    )


def _forward_step(
    context: TileContext,
    tokens: Any,
    table: Any,
    weight: Any,
    diagonal: Any,
    stack: Any,
    outputs: Any,
    trace: Any,
) -> None:
    t, rows, units = context.t, context.rows, context.units
    (total,) = stacks.preactivations(context, [units], tokens, table, weight, stack, outputs, trace)
    total += outputs[context.previous, rows, units] * diagonal[units][None, :]
    output = jnp.maximum(total, 0).astype(FP16)
    outputs[t, rows, units] = output
    if stack is not None:
        stacks.store_partial(context, trace.written, dot(output, stack.write[units, :]))


def _backward_step(
    context: TileContext,
    weight: Any,
    diagonal: Any,
    stack: Any,
    trace: Trace,
    d_outputs: Any,
    d_preactivations: Any,
    gradients: Any,
) -> None:
    t, rows, units = context.t, context.rows, context.units
    (d_output,) = stacks.grad_from_next_step(
        context, [units], weight, stack, trace.stack, d_preactivations, gradients
    )
    from_itself = d_preactivations[t, rows, units] * diagonal[units][None, :]
    d_output += jnp.where(context.last, 0.0, from_itself) + d_outputs[t, rows, units]
    active = trace.outputs[t, rows, units] > 0
    d_preactivation = jnp.where(active, d_output, 0.0).astype(BF16)
    d_preactivations[context.previous, rows, units] = d_preactivation
    if stack is not None:
        stacks.store_partial(context, gradients.tops, dot(d_preactivation, stack.read[units, :]))


def _off_diagonal(weight: Float[Array, "hidden hidden"]) -> Float[Array, "hidden hidden"]:
    return weight - jnp.diag(jnp.diag(weight))
