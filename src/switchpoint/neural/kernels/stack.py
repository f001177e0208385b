"""What a stack adds to the steps of a cell.

A step needs the top of the stack, and for that what the whole output before it writes. Each program
of a launch has some units of the output only: it stores what these add to what is written, its
share, and each program of the next launch adds up the shares. Thus each knows the move and the new
top, before it begins with its own sums; the other entries it moves for its part, so that together
they store the whole stack. The stack is moved at the beginning of a step, not at its end: the first
step moves nothing, and the move after the last step is left to the caller.

Backward it is the same. What the sums of a step say of the top comes in shares, and so do the
slopes of push, pop and keep. A slope adds up the products of all entries' derivatives with what the
action would put there. Those below the top are known one launch ahead, where the derivatives are
stored: the programs that store them add up their products too.

Entries of a stack are padded to 16 numbers, the least that a product of tiles can have. What is
written has the value in the first 13 columns, and in the last three push, pop and keep.
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.kernels.call import NARROW, WIDE, unwritten
from switchpoint.neural.kernels.launch import begun
from switchpoint.neural.kernels.part import Part

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
    written: Float[Array, "2 tiles batch 16"]
    """What step t writes, in shares, is at the place t modulo 2."""


class Derivatives(NamedTuple):
    """Of the stacks, but for what their own step says of the top, and of what is written.

    What is known after step t, for the step before it, is at the place t modulo 2.
    """

    stacks: Float[Array, "2 batch places"]
    written: Float[Array, "time batch 16"]
    tops: Float[Array, "2 tiles batch 16"]
    """What the sums of a step say of the top, in shares."""
    slopes: Float[Array, "2 tiles batch 16"]
    """Of the actions, in their columns, without what the top adds; in shares."""


def padded(values: Float[Array, "*axes width"], width: int = COLUMNS) -> Float[Array, "*axes more"]:
    """The same with zeros at the end of the last axis."""
    return jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])])


def value_first(written: Float[Array, "rows written"]) -> Float[Array, "rows 16"]:
    """What is written, which begins with the actions, in the order of the kernels."""
    actions, value = jnp.split(written, [3], axis=-1)
    return jnp.concatenate([padded(value, MOST_VALUES), actions], axis=-1)


def forward_parts(stack: Stack | None, time: int, tiles: int) -> tuple[Stack | None, Trace | None]:
    """What the forward pass reads, and its buffers, where so many programs share a row."""
    if stack is None:
        return None, None
    # A stack may change by little at each step, and for long: it is kept in 32 bits.
    stacks = begun(stack.first, time, jnp.float32)
    batch = len(stack.first)
    moves = unwritten(stack.write, (time, batch, COLUMNS), jnp.float32, "moves")
    shares = unwritten(stack.write, (2, tiles, batch, COLUMNS), jnp.float32, "shares")
    narrow = stack._replace(read=stack.read.astype(NARROW), write=stack.write.astype(NARROW))
    return narrow, Trace(stacks, moves, shares)


def backward_parts(
    stack: Stack | None, time: int, tiles: int, d_last: Float[Array, "batch places"] | None
) -> tuple[Transposed | None, Derivatives | None]:
    """What the backward pass reads besides the trace, and its buffers."""
    if stack is None or d_last is None:
        return None, None
    batch = len(d_last)
    written = unwritten(stack.write, (time, batch, COLUMNS), WIDE, "written")
    tops, slopes = (
        unwritten(stack.write, (2, tiles, batch, COLUMNS), jnp.float32, name)
        for name in ("tops", "slopes")
    )
    transposed = Transposed(stack.read.T.astype(WIDE), stack.write.T.astype(WIDE))
    both = jnp.broadcast_to(d_last, (2, *d_last.shape))
    return transposed, Derivatives(both, written, tops, slopes)


def store_share(part: Part, shares: Any, share: Any) -> None:
    """Store what this program found at this step."""
    shares[part.t % 2, part.tile, part.rows, ALL] = share


def added_up(shares: Any, t: Any, rows: Any) -> Any:
    """What all programs for these rows found at step t."""
    return sum(shares[t % 2, tile, rows, ALL] for tile in range(shares.shape[1]))


def top(part: Part, written: Any, trace: Trace) -> Any:
    """The top that this step reads, after the move that the step before has written."""
    column = _columns()
    is_value = column < MOST_VALUES
    strength = jnp.where(is_value, -jnp.inf, written)
    action = jnp.exp(strength - jnp.max(strength, axis=1, keepdims=True))
    action = action / jnp.sum(action, axis=1, keepdims=True)
    only_keep = jnp.where(column == _ACTIONS[2], 1.0, 0.0)
    move = jnp.where(part.t == 0, only_keep, jnp.where(is_value, written, action))
    value, push, pop, keep = _apart(move)

    def moved(above: Any, own: Any, below: Any) -> Any:
        return push * above + pop * below + keep * own

    first, second = _entries(trace.stacks, part.previous, part.rows, (0, 1))
    depths = _own_depths(part, trace.stacks, trace.written)
    before = _entries(trace.stacks, part.previous, part.rows, depths)
    before[0] = jnp.where(depths[0] < 0, value, before[0])
    _store(part, trace.stacks, part.t, depths, list(map(moved, *_neighbours(before))))

    @pl.when(part.tile == 0)
    def _() -> None:
        trace.moves[part.previous, part.rows, ALL] = move

    return moved(value, first, second).astype(NARROW)


def d_written(part: Part, d_top: Any, trace: Trace, d_trace: Derivatives) -> Any:
    """The derivative of what this step writes, from that of the top which the next step reads."""
    t, rows, column = part.t, part.rows, _columns()
    move = trace.moves[t, rows, ALL]
    value, push, pop, keep = _apart(move)
    (d_first,) = _entries(d_trace.stacks, (t + 1) % 2, rows, (0,))
    d_first += d_top
    first, second = _entries(trace.stacks, t, rows, (0, 1))
    below_top = jnp.where(part.last, 0.0, added_up(d_trace.slopes, t + 1, rows))
    slopes = below_top + _in_action_columns(d_first * value, d_first * second, d_first * first)
    mean = jnp.sum(jnp.where(column < MOST_VALUES, 0.0, move * slopes), axis=1, keepdims=True)
    found = jnp.where(column < MOST_VALUES, push * d_first, move * (slopes - mean)).astype(WIDE)

    depths = _own_depths(part, d_trace.stacks, d_trace.slopes)
    d_after = _entries(d_trace.stacks, (t + 1) % 2, rows, depths)
    d_after = [jnp.where(d == 0, d_first, entry) for d, entry in zip(depths, d_after, strict=True)]
    d_own = [
        push * below + pop * above + keep * own
        for above, own, below in zip(*_neighbours(d_after), strict=True)
    ]
    # For the step before: what its actions would have put into these entries.
    before = _entries(trace.stacks, part.previous, rows, depths)
    d_below_top = [
        jnp.where((d > 0) & (d < _depth(d_trace.stacks)), entry, 0.0)
        for d, entry in zip(depths[1:-1], d_own, strict=True)
    ]
    by_push, by_keep, by_pop = (
        sum(map(operator.mul, d_below_top, put)) for put in _neighbours(before)
    )
    _store(part, d_trace.stacks, t % 2, depths, d_own)
    store_share(part, d_trace.slopes, _in_action_columns(by_push, by_pop, by_keep))

    @pl.when(part.tile == 0)
    def _() -> None:
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


def _in_action_columns(push: Any, pop: Any, keep: Any) -> Any:
    """The sum of each over all columns, in the column of its action; else zeros."""
    column = _columns()
    found: Any = 0.0
    for action, terms in zip(_ACTIONS, (push, pop, keep), strict=True):
        found = jnp.where(column == action, jnp.sum(terms, axis=1, keepdims=True), found)
    return found


def _own_depths(part: Part, stacks: Any, shares: Any) -> list[Any]:
    """The depths that this program stores, between the one above and the one below them."""
    count = -(-_depth(stacks) // shares.shape[1])
    return [part.tile * count + i for i in range(-1, count + 1)]


def _entries(stacks: Any, place: Any, rows: Any, depths: Sequence[Any]) -> list[Any]:
    """The entries at these depths; above and below the stack there are zeros."""
    last = _depth(stacks) - 1
    return [
        jnp.where((d >= 0) & (d <= last), stacks[place, rows, _columns_of(jnp.clip(d, 0, last))], 0)
        for d in depths
    ]


def _neighbours(entries: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Of all entries but the outermost two: those above, themselves, and those below."""
    return entries[:-2], entries[1:-1], entries[2:]


def _store(part: Part, stacks: Any, place: Any, depths: list[Any], entries: list[Any]) -> None:
    """Store the entries at the inner depths, those that are in the stack.

    They come together, since a load does not pass a store before it.
    """
    for d, entry in zip(depths[1:-1], entries, strict=True):

        @pl.when(d < _depth(stacks))
        def _(d: Any = d, entry: Any = entry) -> None:
            stacks[place, part.rows, _columns_of(d)] = entry


def _depth(stacks: Any) -> int:
    return int(stacks.shape[-1] // COLUMNS)


def _columns_of(d: Any) -> Any:
    return pl.ds(d * COLUMNS, COLUMNS)
