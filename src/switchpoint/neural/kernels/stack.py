"""What a stack adds to the steps of a cell.

A step needs the whole output before it, and each program of its launch has that at hand. So each
finds out for itself what that output writes and what is then on top, and one of them stores the
stack. The stack is thus moved at the beginning of a step, not at its end: the first step moves
nothing, and the move after the last step is left to the caller.

Entries of a stack are padded to 16 numbers, the least that a product of tiles can have. What is
written has the value in the first 13 columns, and in the last three push, pop and keep.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.kernels.call import NARROW, WIDE, unwritten
from switchpoint.neural.kernels.launch import begun

COLUMNS = 16
MOST_VALUES = COLUMNS - 3
ALL = pl.ds(0, COLUMNS)
_ACTIONS = range(MOST_VALUES, COLUMNS)


class Stack(NamedTuple):
    """The stack before the first step, and its weights."""

    first: Float[Array, "batch places"]
    read: Float[Array, "16 sums"]
    write: Float[Array, "hidden 16"]
    table: Float[Array, "tokens 16"]
    """What each token adds to what is written."""


class Transposed(NamedTuple):
    """The weights, as the backward pass wants them."""

    read: Float[Array, "sums 16"]
    write: Float[Array, "16 hidden"]


class Trace(NamedTuple):
    """The stack that each step reads, and its move after that: value and probabilities."""

    stacks: Float[Array, "time batch places"]
    moves: Float[Array, "time batch 16"]


class Derivatives(NamedTuple):
    """Of the stacks, but for what their own step says of the top, and of what is written.

    Those of the stack that step t reads are at the place t modulo 2.
    """

    stacks: Float[Array, "2 batch places"]
    written: Float[Array, "time batch 16"]


def padded(values: Float[Array, "*axes width"], width: int = COLUMNS) -> Float[Array, "*axes more"]:
    """The same with zeros at the end of the last axis."""
    return jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])])


def value_first(written: Float[Array, "rows written"]) -> Float[Array, "rows 16"]:
    """What is written, which begins with the actions, in the order of the kernels."""
    actions, value = jnp.split(written, [3], axis=-1)
    return jnp.concatenate([padded(value, MOST_VALUES), actions], axis=-1)


def forward_parts(stack: Stack | None, time: int) -> tuple[Stack | None, Trace | None]:
    """What the forward pass reads, and its buffers."""
    if stack is None:
        return None, None
    # A stack may change by little at each step, and for long: it is kept in 32 bits.
    stacks = begun(stack.first, time, jnp.float32)
    moves = unwritten(stack.write, (time, stack.first.shape[0], COLUMNS), NARROW, "moves")
    narrow = stack._replace(read=stack.read.astype(NARROW), write=stack.write.astype(NARROW))
    return narrow, Trace(stacks, moves)


def backward_parts(
    stack: Stack | None, time: int, d_last: Float[Array, "batch places"] | None
) -> tuple[Transposed | None, Derivatives | None]:
    """What the backward pass reads besides the trace, and its buffers."""
    if stack is None or d_last is None:
        return None, None
    written = unwritten(stack.write, (time, d_last.shape[0], COLUMNS), WIDE, "written")
    transposed = Transposed(stack.read.T.astype(WIDE), stack.write.T.astype(WIDE))
    return transposed, Derivatives(jnp.broadcast_to(d_last, (2, *d_last.shape)), written)


def top(written: Any, trace: Trace, t: Any, previous: Any, rows: Any) -> Any:
    """The top that step t reads, after the move that the step before has written."""
    column = _columns()
    is_value = column < MOST_VALUES
    strength = jnp.where(is_value, -jnp.inf, written)
    action = jnp.exp(strength - jnp.max(strength, axis=1, keepdims=True))
    action = action / jnp.sum(action, axis=1, keepdims=True)
    only_keep = jnp.where(column == _ACTIONS[2], 1.0, 0.0)
    move = jnp.where(t == 0, only_keep, jnp.where(is_value, written, action))
    value, push, pop, keep = _apart(move)

    def after(d: int) -> Any:
        above, own, below = (_entry(trace.stacks, previous, rows, d + i) for i in (-1, 0, 1))
        return push * (above if d else value) + pop * below + keep * own

    found = after(0)

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        _store(trace.stacks, t, rows, [found, *map(after, range(1, _depth(trace.stacks)))])
        trace.moves[previous, rows, ALL] = move.astype(NARROW)

    return found.astype(NARROW)


def d_written(d_top: Any, trace: Trace, d_trace: Derivatives, t: Any, rows: Any) -> Any:
    """The derivative of what step t writes, from that of the top which the next step reads."""
    depth = _depth(trace.stacks)
    value, push, pop, keep = _apart(trace.moves[t, rows, ALL].astype(jnp.float32))
    d_first = _entry(d_trace.stacks, (t + 1) % 2, rows, 0) + d_top

    def d_after(d: int) -> Any:
        return d_first if d == 0 else _entry(d_trace.stacks, (t + 1) % 2, rows, d)

    to_push = to_pop = to_keep = jnp.zeros_like(value)
    above, own = value, _entry(trace.stacks, t, rows, 0)
    for d in range(depth):
        d_own, below = d_after(d), _entry(trace.stacks, t, rows, d + 1)
        to_push += d_own * above
        to_pop += d_own * below
        to_keep += d_own * own
        above, own = own, below
    slopes = [jnp.sum(x, axis=1, keepdims=True) for x in (to_push, to_pop, to_keep)]
    mean = push * slopes[0] + pop * slopes[1] + keep * slopes[2]
    column = _columns()
    found = jnp.where(column < MOST_VALUES, push * d_first, 0.0)
    for action, chance, slope in zip(_ACTIONS, (push, pop, keep), slopes, strict=True):
        found = jnp.where(column == action, chance * (slope - mean), found)
    found = found.astype(WIDE)

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        # The entries are read again: to keep them all since the first time takes many registers.
        d_before = [
            push * d_after(d + 1) + pop * d_after(d - 1) + keep * d_after(d) for d in range(depth)
        ]
        _store(d_trace.stacks, t % 2, rows, d_before)
        d_trace.written[t, rows, ALL] = found

    return found


def _columns() -> Any:
    return lax.broadcasted_iota(jnp.int32, (1, COLUMNS), 1)


def _apart(move: Any) -> tuple[Any, Any, Any, Any]:
    """The value, and the probabilities of push, pop and keep."""
    column = _columns()
    push, pop, keep = (
        jnp.sum(jnp.where(column == own, move, 0.0), axis=1, keepdims=True) for own in _ACTIONS
    )
    return jnp.where(column < MOST_VALUES, move, 0.0), push, pop, keep


def _entry(stacks: Any, place: Any, rows: Any, d: int) -> Any:
    """The entry at depth `d`; above and below the stack there are zeros."""
    if d not in range(_depth(stacks)):
        return 0.0
    return stacks[place, rows, _columns_of(d)]


def _store(stacks: Any, place: Any, rows: Any, entries: list[Any]) -> None:
    """Store all entries; they come together, since a load does not pass a store before it."""
    for d, entry in enumerate(entries):
        stacks[place, rows, _columns_of(d)] = entry


def _depth(stacks: Any) -> int:
    return int(stacks.shape[-1] // COLUMNS)


def _columns_of(d: int) -> Any:
    return pl.ds(d * COLUMNS, COLUMNS)
