"""The stack of a cell, as part of its step kernels.

A step reads the top of the stack, which depends on everything that the previous output wrote. Each
program of a launch computes only some units of that output: it stores their partial sum of what is
written, and every program of the next launch reduces the partial sums. So each knows the actions
and the new top before it computes its own preactivations. Each updates some of the other entries;
together they store the whole stack. The stack is updated at the beginning of a step, not at its
end: the first step changes nothing, and the update after the last step is left to the caller.

The backward pass mirrors this. The gradient of the top comes in partial sums, as do the gradients
of the probabilities of push, pop and keep: sums, over all entries, of the entry's gradient times
the value that the action would put there. The terms below the top are ready one launch ahead, when
the gradients of the entries are stored, and the programs that store them sum these terms too.

Entries of a stack are padded to 16 columns, the minimum for a product of tiles. What is written has
the value in the first 13 columns, and push, pop and keep in the last three.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.kernels.common import BF16, FP16, dot, empty, ring_buffer
from switchpoint.neural.kernels.steps import TileContext, add_products, table_rows

COLUMNS = 16
MAX_WIDTH = COLUMNS - 3
ALL = pl.ds(0, COLUMNS)
_ACTIONS = range(MAX_WIDTH, COLUMNS)
_CHUNK = 4  # entries of the stack that a program holds at a time


class Stack(NamedTuple):
    """The stack before the first step, and its weights."""

    initial: Float[Array, "batch entries"]
    read: Float[Array, "16 gates"]
    write: Float[Array, "hidden 16"]
    table: Float[Array, "tokens 16"]
    """The contribution of each token to what is written."""


class Transposed(NamedTuple):
    """The weights, transposed for the backward pass."""

    read: Float[Array, "gates 16"]
    write: Float[Array, "16 hidden"]


class Trace(NamedTuple):
    """The stack that each step reads, and its update after that: value and probabilities."""

    stacks: Float[Array, "time batch entries"]
    updates: Float[Array, "time batch 16"]
    written: Float[Array, "2 tiles batch 16"]
    """Partial sums of what step t writes, in slot t modulo 2."""


class Gradients(NamedTuple):
    """Gradients of the updates, and of the stacks without the part of the same step at the top.

    The contribution of step t to the gradients of the step before it is in slot t modulo 2.
    """

    stacks: Float[Array, "2 batch entries"]
    written: Float[Array, "time batch 16"]
    tops: Float[Array, "2 tiles batch 16"]
    """Partial sums of the gradient of the top."""
    actions: Float[Array, "2 tiles batch 16"]
    """Partial sums of the gradients of the actions, in their columns, without the top's part."""


def padded(values: Float[Array, "*axes width"], width: int = COLUMNS) -> Float[Array, "*axes more"]:
    """The same with zeros at the end of the last axis."""
    return jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])])


def value_first(written: Float[Array, "rows written"]) -> Float[Array, "rows 16"]:
    """The update with the value before the actions, as the kernels store it."""
    actions, value = jnp.split(written, [3], axis=-1)
    return jnp.concatenate([padded(value, MAX_WIDTH), actions], axis=-1)


def forward_buffers(
    stack: Stack | None, time: int, tiles: int
) -> tuple[Stack | None, Trace | None]:
    """The inputs and buffers of the forward pass, where `tiles` programs share a row."""
    if stack is None:
        return None, None
    # A stack may change slowly over many steps: it is stored in 32 bits.
    stacks = ring_buffer(stack.write, stack.initial, time, jnp.float32)
    batch = len(stack.initial)
    updates = empty(stack.write, (time, batch, COLUMNS), jnp.float32, "updates")
    partial_sums = empty(stack.write, (2, tiles, batch, COLUMNS), jnp.float32, "partial_sums")
    narrow = stack._replace(read=stack.read.astype(FP16), write=stack.write.astype(FP16))
    return narrow, Trace(stacks, updates, partial_sums)


def backward_buffers(
    stack: Stack | None, time: int, tiles: int, d_last: Float[Array, "batch entries"] | None
) -> tuple[Transposed | None, Gradients | None]:
    """The inputs of the backward pass besides the trace, and its buffers."""
    if stack is None or d_last is None:
        return None, None
    batch = len(d_last)
    written = empty(stack.write, (time, batch, COLUMNS), BF16, "written")
    tops, actions = (
        empty(stack.write, (2, tiles, batch, COLUMNS), jnp.float32, name)
        for name in ("tops", "actions")
    )
    transposed = Transposed(stack.read.T.astype(BF16), stack.write.T.astype(BF16))
    both = jnp.broadcast_to(d_last, (2, *d_last.shape))
    return transposed, Gradients(both, written, tops, actions)


def preactivations(
    context: TileContext,
    columns: list[Any],
    tokens: Any,
    table: Any,
    weight: Any,
    stack: Stack | None,
    trace: Any,
) -> list[Any]:
    """The sum of the contributions of the previous output, the token and the top of the stack."""
    sums = [jnp.zeros((context.rows.size, column.size), jnp.float32) for column in columns]
    if stack is not None:
        written = reduce_partials(trace.stack.written, context.t + 1, context.rows)
        written += table_rows(stack.table, tokens[context.previous, context.rows], ALL)
        top = update_stack(context, written, trace.stack)
        sums = [dot(top, stack.read[:, column]) for column in columns]
    sums = add_products(context, sums, trace.outputs, context.previous, weight, columns)
    token = tokens[context.t, context.rows]
    return [
        total + table_rows(table, token, column)
        for total, column in zip(sums, columns, strict=True)
    ]


def grad_from_next_step(
    context: TileContext,
    columns: list[Any],
    weight: Any,
    stack: Transposed | None,
    trace: Any,
    gradients: Any,
) -> list[Any]:
    """The contribution of the next step to the gradient of this step's output, in these columns.

    `weight` is transposed. The gradients of the next step's preactivations are in this step's slot.
    """
    if stack is not None:
        d_top = reduce_partials(gradients.stack.tops, context.t + 1, context.rows)
        d_top = jnp.where(context.last, 0.0, d_top)
        d_written = update_stack_backward(context, d_top, trace.stack, gradients.stack)
    sums = [jnp.zeros((context.rows.size, column.size), jnp.float32) for column in columns]
    sums = add_products(context, sums, gradients.preactivations, context.t, weight, columns)
    sums = [jnp.where(context.last, 0.0, total) for total in sums]
    if stack is not None:
        sums = [
            total + dot(d_written, stack.write[:, column])
            for total, column in zip(sums, columns, strict=True)
        ]
    return sums


def store_partial(context: TileContext, partial_sums: Any, partial_sum: Any) -> None:
    """Store the partial sum that this program computed at this step."""
    partial_sums[context.t % 2, context.tile, context.rows, ALL] = partial_sum


def reduce_partials(partial_sums: Any, t: Any, rows: Any) -> Any:
    """The sum over all programs for these rows, as of step t."""
    return sum(partial_sums[t % 2, tile, rows, ALL] for tile in range(partial_sums.shape[1]))


def update_stack(context: TileContext, written: Any, trace: Trace) -> Any:
    """The top that this step reads, after the update that the previous step has written."""
    column = _columns()
    is_value = column < MAX_WIDTH
    strength = jnp.where(is_value, -jnp.inf, written)
    action = jnp.exp(strength - jnp.max(strength, axis=1, keepdims=True))
    action = action / jnp.sum(action, axis=1, keepdims=True)
    only_keep = jnp.where(column == _ACTIONS[2], 1.0, 0.0)
    update = jnp.where(context.t == 0, only_keep, jnp.where(is_value, written, action))
    value, push, pop, keep = _split(update)

    def updated(above: Any, entry: Any, below: Any) -> Any:
        return push * above + pop * below + keep * entry

    first, second = _entries(trace.stacks, context.previous, context.rows, (0, 1))

    def store(depths: list[Any], none: None) -> None:
        before = _entries(trace.stacks, context.previous, context.rows, depths)
        before[0] = jnp.where(depths[0] < 0, value, before[0])
        _store(context, trace.stacks, context.t, depths, list(map(updated, *_neighbours(before))))
        return none

    _for_stored_depths(context, trace.stacks, trace.written, store, None)

    @pl.when(context.tile == 0)
    def _() -> None:
        trace.updates[context.previous, context.rows, ALL] = update

    return updated(value, first, second).astype(FP16)


def update_stack_backward(
    context: TileContext, d_top: Any, trace: Trace, gradients: Gradients
) -> Any:
    """The gradient of what this step writes, from that of the top that the next step reads."""
    t, rows, column = context.t, context.rows, _columns()
    update = trace.updates[t, rows, ALL]
    value, push, pop, keep = _split(update)
    (d_first,) = _entries(gradients.stacks, (t + 1) % 2, rows, (0,))
    d_first += d_top
    first, second = _entries(trace.stacks, t, rows, (0, 1))
    below_top = jnp.where(context.last, 0.0, reduce_partials(gradients.actions, t + 1, rows))
    d_action = below_top + _in_action_columns(d_first * value, d_first * second, d_first * first)
    mean = jnp.sum(jnp.where(column < MAX_WIDTH, 0.0, update * d_action), axis=1, keepdims=True)
    d_written = jnp.where(column < MAX_WIDTH, push * d_first, update * (d_action - mean))
    d_written = d_written.astype(BF16)

    def store(depths: list[Any], d_actions: Any) -> Any:
        d_after = _entries(gradients.stacks, (t + 1) % 2, rows, depths)
        d_after = [
            jnp.where(d == 0, d_first, entry) for d, entry in zip(depths, d_after, strict=True)
        ]
        d_before = [
            push * below + pop * above + keep * entry
            for above, entry, below in zip(*_neighbours(d_after), strict=True)
        ]
        # For the step before: the values its actions would have put into these entries.
        before = _entries(trace.stacks, context.previous, rows, depths)
        d_below_top = [
            jnp.where((d > 0) & (d < _depth(gradients.stacks)), entry, 0.0)
            for d, entry in zip(depths[1:-1], d_before, strict=True)
        ]
        by_push, by_keep, by_pop = (
            sum(map(operator.mul, d_below_top, put)) for put in _neighbours(before)
        )
        _store(context, gradients.stacks, t % 2, depths, d_before)
        return d_actions + _in_action_columns(by_push, by_pop, by_keep)

    none = jnp.zeros((rows.size, COLUMNS), jnp.float32)
    d_actions = _for_stored_depths(context, gradients.stacks, gradients.actions, store, none)
    store_partial(context, gradients.actions, d_actions)

    @pl.when(context.tile == 0)
    def _() -> None:
        gradients.written[t, rows, ALL] = d_written

    return d_written


def _columns() -> Any:
    return lax.broadcasted_iota(jnp.int32, (1, COLUMNS), 1)


def _split(update: Any) -> tuple[Any, Any, Any, Any]:
    """The value, and the probabilities of push, pop and keep."""
    column = _columns()
    push, pop, keep = (
        jnp.sum(jnp.where(column == action, update, 0.0), axis=1, keepdims=True)
        for action in _ACTIONS
    )
    return jnp.where(column < MAX_WIDTH, update, 0.0), push, pop, keep


def _in_action_columns(push: Any, pop: Any, keep: Any) -> Any:
    """The sum of each over all columns, in the column of its action; zeros elsewhere."""
    column = _columns()
    sums: Any = 0.0
    for action, terms in zip(_ACTIONS, (push, pop, keep), strict=True):
        sums = jnp.where(column == action, jnp.sum(terms, axis=1, keepdims=True), sums)
    return sums


def _for_stored_depths(
    context: TileContext,
    stacks: Any,
    partial_sums: Any,
    body: Callable[[list[Any], Any], Any],
    carry: Any,
) -> Any:
    """Fold `body` over the depths that this program stores, a few at a time.

    It receives them between the one above and the one below.
    """
    count = -(-_depth(stacks) // partial_sums.shape[1])
    chunk = min(count, _CHUNK)
    chunks = -(-count // chunk)

    def some(number: Any, carry: Any) -> Any:
        first = (context.tile * chunks + number) * chunk
        return body([first + i for i in range(-1, chunk + 1)], carry)

    return some(0, carry) if chunks == 1 else lax.fori_loop(0, chunks, some, carry)


def _entries(stacks: Any, slot: Any, rows: Any, depths: Sequence[Any]) -> list[Any]:
    """The entries at these depths, zero above and below the stack."""
    last = _depth(stacks) - 1
    return [
        jnp.where(
            (d >= 0) & (d <= last), stacks[slot, rows, _entry_columns(jnp.clip(d, 0, last))], 0
        )
        for d in depths
    ]


def _neighbours(entries: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """For all entries but the outermost two: those above, themselves, and those below."""
    return entries[:-2], entries[1:-1], entries[2:]


def _store(
    context: TileContext, stacks: Any, slot: Any, depths: list[Any], entries: list[Any]
) -> None:
    """Store the entries at the inner depths, where these are in the stack.

    All are stored together, since loads are not moved ahead of stores.
    """
    for d, entry in zip(depths[1:-1], entries, strict=True):

        @pl.when(d < _depth(stacks))
        def _(d: Any = d, entry: Any = entry) -> None:
            stacks[slot, context.rows, _entry_columns(d)] = entry


def _depth(stacks: Any) -> int:
    return int(stacks.shape[-1] // COLUMNS)


def _entry_columns(d: Any) -> Any:
    return pl.ds(d * COLUMNS, COLUMNS)
