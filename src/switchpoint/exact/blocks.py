"""The forward recursion over the start of the current segment, for any family and any prior.

As in `recursion.py`, but hypotheses are about statistics that merge. Time is cut into blocks. The
log densities of a block under all starts before it are one vector operation: the statistics from
each start to the block, merged with those inside the block before each time; or, for families with
a closed form, those of all observations up to each time. `block_weights.py` has the weights.
"""

import functools
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.exact.block_weights import (
    Endings,
    Filtered,
    Own,
    Starts,
    Weights,
    earlier_at_once,
    earlier_by_steps,
    filter_block,
)
from switchpoint.exact.layout import Layout
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import (
    Statistics,
    log_density,
    no_statistics,
    observe,
    prior_statistics,
)

BLOCK = 32  # times
_BLOCK_OF_MANY = 16  # of many sequences, which fill a vector with fewer starts
_MANY = 64  # sequences

# Pieces save more time than their compilation takes, over several calls, from so many (time, start)
# pairs: as many take a tenth of a second.
_PIECE_WORK = 2**25


class Sequences(eqx.Module):
    """A flat batch of sequences."""

    values: Float[Array, "flat time *event"]
    """The observations minus the offset; NaN where they are missing."""
    offset: Float[Array, "flat *event"]
    complete: bool = eqx.field(static=True, default=False)
    """Whether it is known that no observation is missing."""


class Blocks(NamedTuple):
    """What the hypotheses need to know of each block of times."""

    values: Float[Array, "blocks block flat *event"]
    before: Statistics
    """Of the block before each of its times: (blocks, block, flat)."""
    through: Statistics
    """Of the block up to each of its times, that one included."""
    own_logs: Float[Array, "blocks block starts flat"]
    """ln p(x_t) under segments that start in it."""
    own: Statistics
    """Of segments that start in it, before each of its times, if asked for; as `own_logs`."""
    last: Statistics
    """Of segments that start in it, at its end: (blocks, starts, flat)."""


def initial_statistics(segment: Segment, offset: Float[Array, "flat *event"]) -> Statistics:
    """The statistics of a segment before its first observation, for each sequence."""
    return jax.vmap(lambda by: segment.translate(prior_statistics(segment), by))(offset)


def cut_into_blocks(
    segment: Segment, sequences: Sequences, with_own: bool = False, block: int = BLOCK
) -> Blocks:
    """The blocks of sequences; the last is filled up with missing observations."""
    flat, time, *event = sequences.values.shape
    block = min(block, time)
    count = -(-time // block)
    padding = [(0, 0), (0, count * block - time), *((0, 0),) * len(event)]
    values = jnp.pad(sequences.values, padding, constant_values=jnp.nan)
    values = jnp.moveaxis(values.reshape(flat, count, block, *event), 0, 2)
    steps = jnp.moveaxis(values, 1, 0)
    observe_one, density = (functools.partial(each, segment) for each in (observe, log_density))
    observe_each = jax.vmap(jax.vmap(observe_one))  # over blocks and sequences
    observe_own = jax.vmap(jax.vmap(jax.vmap(observe_one)), in_axes=(1, None), out_axes=1)
    density_own = jax.vmap(jax.vmap(jax.vmap(density)), in_axes=(1, None), out_axes=1)

    def like(statistics: Statistics, shape: tuple[int, ...]) -> Statistics:
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape[1:])), statistics
        )

    nothing = jax.tree.map(lambda leaf: leaf[None], no_statistics(segment))
    runs = like(nothing, (count, flat))
    fresh = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, block, *leaf.shape)),
        initial_statistics(segment, sequences.offset),
    )

    def step(carry: tuple[Statistics, Statistics], now: tuple[Array, Array]) -> tuple[Any, Any]:
        runs, own = carry
        index, x = now
        seen = jax.tree.map(
            lambda new, old: _where_start(jnp.arange(block) <= index, new, old),
            observe_own(own, x),
            own,
        )
        through = observe_each(runs, x)
        return (through, seen), (runs, through, density_own(own, x), own if with_own else None)

    (_, last), each = lax.scan(step, (runs, fresh), (jnp.arange(block), steps))
    before, through, logs, own = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), each)
    return Blocks(values, before, through, logs, own, last)


def _where_start(condition: Array, new: Array, old: Array) -> Array:
    """Along the second axis."""
    return jnp.where(condition.reshape(1, -1, *(1,) * (new.ndim - 2)), new, old)


def pair_log_density(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, index: Int[Array, ""]
) -> Float[Array, "block *hypotheses"]:
    """ln p(x_t | the segment started at s), for the times t of one block and all starts s."""

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, ""]:
        return log_density(segment, segment.merge(statistics, before), x)

    logs = layout.by_pair(of_pair)(statistics, block.before, block.values)
    return layout.put_block(logs, block.own_logs, index, leading=1)


def next_statistics(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, index: Int[Array, ""]
) -> Statistics:
    """The statistics from every start to the end of the block."""
    total = jax.tree.map(lambda leaf: leaf[-1], block.through)
    merged = layout.by_hypothesis(segment.merge)(statistics, total)
    return jax.tree.map(lambda leaf, own: layout.put_block(leaf, own, index), merged, block.last)


def _pieces(count: int, block: int, work: int, min_work: int) -> list[tuple[int, int]]:
    """Ranges of blocks, each compiled for the starts up to its end, if there is enough work."""
    parts = max(1, min(4, count * block // 64)) if work >= min_work else 1
    return list(itertools.pairwise(count * part // parts for part in range(parts + 1)))


class Held(NamedTuple):
    """What every start has gathered up to the beginning b of each block: (blocks, *hypotheses)."""

    statistics: Statistics
    gains: Float[Array, "..."]
    """ln P(x_s..x_(b-1)) / P(x_s..x_(b-1) | x_<s)."""


def filter_sequences(
    prior: Prior, segment: Segment, sequences: Sequences, with_probs: bool = False
) -> Filtered:
    """The recursion over whole sequences."""
    layout = Layout(many=len(sequences.values) >= _MANY)
    block = _BLOCK_OF_MANY if layout.many else BLOCK
    blocks = cut_into_blocks(segment, sequences, with_probs, block)
    return filter_blocks(prior, segment, sequences, blocks, layout, with_probs=with_probs)[0]


def filter_blocks(
    prior: Prior,
    segment: Segment,
    sequences: Sequences,
    blocks: Blocks,
    layout: Layout,
    *,
    with_probs: bool = False,
    for_posterior: bool = False,
) -> tuple[Filtered, Held | None]:
    """The recursion over the blocks of sequences; what a posterior needs if asked for."""
    flat, time = sequences.values.shape[:2]
    count, block = blocks.values.shape[:2]
    fresh = initial_statistics(segment, sequences.offset)
    # A posterior takes long to compile; many sequences come in chunks of the same shape.
    ranges = [(0, count)]
    if not for_posterior:
        ranges = _pieces(
            count, block, flat * time**2, _PIECE_WORK // 8 if layout.many else _PIECE_WORK
        )
    closed = has_closed_form(segment) and not for_posterior
    table = None
    if closed and sequences.complete:
        longest = max(last - first for first, last in ranges)
        table = count_table(segment, count, block, longest)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def body(
        carry: tuple[Held, Weights], now: tuple[Int[Array, ""], Blocks]
    ) -> tuple[tuple[Held, Weights], tuple[Filtered, Held | None]]:
        index, here = now
        held, weights = carry
        statistics = held.statistics
        rows = weights.log_weights.shape[layout.axes[0]]
        starts = jnp.arange(rows * block, dtype=jnp.int32).reshape(rows, block)
        of_counts = None
        if table is not None:
            of_counts = lax.dynamic_slice_in_dim(table, count - index, rows, axis=1)
        weights, filtered, logs = _filter_block(
            prior,
            segment,
            layout,
            Starts(starts, starts),
            weights,
            statistics,
            here,
            index,
            index,
            closed=closed,
            of_counts=of_counts,
            with_probs=with_probs,
            with_runs=for_posterior,
        )
        after = next_statistics(segment, layout, statistics, here, index)
        if logs is None or not for_posterior:
            return (Held(after, held.gains), weights), (filtered, None)
        gains = held.gains + gains_of(layout, logs, filtered.log_density, index).sum(0)
        return (Held(after, gains), weights), (filtered, held)

    # The gains are zeros, which cost nothing, unless they are asked for.
    new = Held(fresh, jnp.zeros(flat)), jnp.full(flat, -jnp.inf)
    held, log_weights = layout.fresh_hypotheses(new, 0, block)
    carry = held, Weights(log_weights, jnp.zeros(flat))
    parts = []
    for first, last in ranges:
        more = layout.fresh_hypotheses(new, last - first, block)
        held, log_weights = layout.append((carry[0], carry[1].log_weights), more)
        carry = held, Weights(log_weights, carry[1].log_start)
        indices = jnp.arange(first, last, dtype=jnp.int32)
        here = jax.tree.map(lambda leaf, a=first, b=last: leaf[a:b], blocks)
        carry, (part, kept) = lax.scan(body, carry, (indices, here))
        parts.append(part)

    def joined(*leaves: Array) -> Array:
        whole = jnp.concatenate(leaves)
        return jnp.moveaxis(whole.reshape(-1, *whole.shape[2:])[:time], 0, 1)

    return jax.tree.map(joined, *parts), kept


def _filter_block(
    prior: Prior,
    segment: Segment,
    layout: Layout,
    starts: Starts,
    weights: Weights,
    statistics: Statistics,
    here: Blocks,
    index: Int[Array, ""],
    row: Int[Array, ""],
    *,
    closed: bool,
    of_counts: Float[Array, "block rows lanes"] | None = None,
    with_probs: bool = False,
    with_runs: bool = False,
) -> tuple[Weights, Filtered, Array | None]:
    """The weights after a block, and the log density of each pair if there is no closed form."""
    block = len(here.values)
    times = index * block + jnp.arange(block, dtype=jnp.int32)
    runs = jnp.maximum(times[:, None, None] - starts.relative, 0) + 1
    endings = Endings.of(prior, starts.absolute, runs, with_runs)
    probs = own_probs = logs = None
    if with_probs:
        probs, own_probs = _pair_probs(segment, layout, statistics, here)
    if closed:
        together = run_log_density(segment, layout, statistics, here, of_counts)
        earlier = earlier_at_once(layout, weights.log_weights, endings, together, probs)
    else:
        logs = pair_log_density(segment, layout, statistics, here, row)
        earlier = earlier_by_steps(layout, weights.log_weights, endings, logs, probs)
    own_starts = lax.dynamic_index_in_dim(starts.absolute, row, keepdims=False)
    own = Own(own_starts, here.own_logs, own_probs)
    weights, filtered = filter_block(prior, layout, weights.log_start, earlier, own, row)
    return weights, filtered, logs


def has_closed_form(segment: Segment) -> bool:
    """Whether the log density of a run of observations is a function of its statistics."""
    before, run = prior_statistics(segment), no_statistics(segment)
    return jax.eval_shape(segment.run_log_density, before, run) is not None


def run_log_density(
    segment: Segment,
    layout: Layout,
    statistics: Statistics,
    here: Blocks,
    of_counts: Float[Array, "block rows lanes"] | None,
) -> Float[Array, "block *hypotheses"]:
    """ln p(the observations of a block up to t | the segment started at s), for all pairs."""
    parts: Any = layout.by_pair(segment.run_log_density)(statistics, here.through)
    counted, of_values = parts
    if of_counts is not None:
        counted = layout.spread_starts(of_counts, leading=1)
    return counted + of_values


def count_table(
    segment: Segment, count: int, block: int, more: int
) -> Float[Array, "block rows lanes"]:
    """The first term of `run_log_density` where no observation is missing.

    For the starts of row `count - d`, and the block that is `d` after theirs. There are `more`
    rows of zeros, for starts that are still to come.
    """
    layout = Layout(many=True)
    zeros = Sequences(
        jnp.zeros((1, block, *segment.event_shape)), jnp.zeros((1, *segment.event_shape))
    )
    blocks = cut_into_blocks(segment, zeros, block=block)
    here: Blocks = jax.tree.map(lambda leaf: leaf[0], blocks)
    merge = jax.vmap(jax.vmap(segment.merge), in_axes=(0, None))
    total = jax.tree.map(lambda leaf: leaf[-1], here.through)

    def step(runs: Statistics, _: None) -> tuple[Statistics, Statistics]:
        return merge(runs, total), runs

    _, statistics = lax.scan(step, here.last, None, length=count, reverse=True)
    table, _ = layout.by_pair(segment.run_log_density)(statistics, here.through)
    return jnp.pad(table[..., 0], ((0, 0), (0, more), (0, 0)))


def gains_of(
    layout: Layout,
    logs: Float[Array, "block *hypotheses"],
    evidence: Float[Array, "block flat"],
    index: Int[Array, ""],
) -> Float[Array, "block *hypotheses"]:
    """ln p(x_t | the segment started at s) - ln p(x_t | x_<t); 0 before s."""
    rows, lanes = (logs.shape[axis + 1] for axis in layout.axes)
    times = index * lanes + jnp.arange(len(logs), dtype=jnp.int32)
    starts = jnp.arange(rows * lanes, dtype=jnp.int32).reshape(rows, lanes)
    begun = jax.vmap(lambda time: layout.spread_starts(starts <= time))(times)
    return jnp.where(begun, logs - jax.vmap(layout.spread)(evidence), 0.0)


class Hypotheses(NamedTuple):
    """Hypotheses about the start of the current segment of one stream."""

    starts: Int[Array, " hypotheses"]
    """Their starts, as the prior takes them."""
    runs: Int[Array, " hypotheses"]
    """The number of observations since."""
    log_weights: Float[Array, " hypotheses"]
    statistics: Statistics


def whole_blocks(time: int) -> int:
    """How many observations of a chunk `extend_blocks` can take at once."""
    return time - time % _chunk_block(time)


def _chunk_block(time: int) -> int:
    """The length of the blocks of a chunk, which it is divided into without rest if possible."""
    lengths = range(BLOCK - 8, BLOCK + 17)
    return max((block for block in lengths if time % block == 0), default=BLOCK)


def extend_blocks(
    prior: Prior,
    segment: Segment,
    hypotheses: Hypotheses,
    sequences: Sequences,
    next_starts: Int[Array, " after"],
) -> tuple[Hypotheses, Filtered]:
    """The recursion over a chunk of one stream, of a number of observations in whole blocks.

    `next_starts` are the starts of segments that begin in the chunk, or right after it. All
    hypotheses are returned, the new ones last. There are probabilities where there is an alphabet.
    """
    layout = Layout(many=False)
    block = _chunk_block(sequences.values.shape[1])
    blocks = cut_into_blocks(segment, sequences, with_own=segment.finite, block=block)
    count = len(blocks.values)
    time = count * block
    fresh = initial_statistics(segment, sequences.offset)
    size = len(hypotheses.starts)
    old = -(-size // block)  # rows, filled up with hypotheses of weight 0

    def in_rows(leaf: Array, new: Any, fill: Any) -> Array:
        padded = jnp.concatenate(
            [
                leaf,
                jnp.broadcast_to(
                    jnp.asarray(fill, leaf.dtype), (old * block - size, *leaf.shape[1:])
                ),
            ]
        )
        new = jnp.broadcast_to(jnp.asarray(new, leaf.dtype), (time, *leaf.shape[1:]))
        return jnp.concatenate([padded, new]).reshape(old + count, block, *leaf.shape[1:])

    times = jnp.arange(time, dtype=jnp.int32)
    starts = Starts(
        in_rows(hypotheses.starts, next_starts[:-1], 0), in_rows(-hypotheses.runs, times, 0)
    )
    first = jax.tree.map(lambda leaf: leaf[0], fresh)
    statistics = jax.tree.map(
        lambda leaf, one: in_rows(leaf, one, one)[None], hypotheses.statistics, first
    )
    log_weights = in_rows(hypotheses.log_weights, -jnp.inf, -jnp.inf)[None]
    closed = has_closed_form(segment)

    def body(carry: Any, now: tuple[Int[Array, ""], Blocks]) -> tuple[Any, Filtered]:
        statistics, weights = carry
        index, here = now
        row = old + index
        weights, filtered, _ = _filter_block(
            prior,
            segment,
            layout,
            starts,
            weights,
            statistics,
            here,
            index,
            row,
            closed=closed,
            with_probs=segment.finite,
        )
        return (next_statistics(segment, layout, statistics, here, row), weights), filtered

    # The segment that starts with the chunk is one of the hypotheses already.
    carry = statistics, Weights(log_weights, jnp.full(1, -jnp.inf))
    carry, filtered = lax.scan(body, carry, (jnp.arange(count, dtype=jnp.int32), blocks))
    statistics, (log_weights, log_start) = carry

    def flat(leaf: Array, last: Array) -> Array:
        rows = leaf.reshape(-1, *leaf.shape[2:])
        return jnp.concatenate([rows, jnp.asarray(last, rows.dtype)[None]])

    after = Hypotheses(
        flat(starts.absolute, next_starts[-1]),
        flat(time - starts.relative, jnp.zeros((), jnp.int32)),
        flat(log_weights[0], log_start[0]),
        jax.tree.map(lambda leaf, one: flat(leaf[0], one), statistics, first),
    )
    filtered = jax.tree.map(lambda leaf: leaf.reshape(time, *leaf.shape[3:]), filtered)
    return after, filtered


def _pair_probs(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks
) -> tuple[Float[Array, "..."], Float[Array, "block lanes flat alphabet"]]:
    """P(x_t = k | the segment started at s), for all pairs, and for starts in the block."""

    def probs_of(statistics: Statistics) -> Float[Array, " alphabet"]:
        predictive: Any = segment.predictive(statistics)
        return predictive.probs

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, " alphabet"]:
        del x
        return probs_of(segment.merge(statistics, before))

    pairs = layout.by_pair(of_pair)(statistics, block.before, block.values)
    return pairs, jax.vmap(jax.vmap(jax.vmap(probs_of)))(block.own)
