"""The forward recursion over the start of the current segment, for any family and any prior.

As in `counts.py`, but hypotheses are about statistics that merge. Time is cut into blocks. The
log densities of a block under all starts before it are one vector operation: the statistics from
each start to the block, merged with those inside the block before each time; or, for families with
a closed form, those of all observations up to each time. `block_weights.py` has the weights.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint._batching import in_chunks, map_chunks
from switchpoint.exact.block_weights import (
    Endings,
    InBlockStarts,
    Weights,
    earlier_at_once,
    earlier_by_steps,
    filter_block,
)
from switchpoint.exact.counts import LANES, extend_counts, few_symbols, filter_counts
from switchpoint.exact.hypotheses import (
    Filtered,
    FilteredChunk,
    Hypotheses,
    Sequences,
    Starts,
    by_hypothesis,
    by_pair,
    highest,
    pieces,
    put_block,
)
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import (
    Statistics,
    log_density,
    observe,
    prior_statistics,
)
from switchpoint.segments.dirichlet import as_dirichlet

BLOCK = 32  # times
_BLOCK_OF_MANY = 16  # of many sequences, which fill a vector with fewer starts
_MANY = 8  # sequences, which fill a vector

# Pieces save more time than their compilation takes, over several calls, from this number of
# (time, start) pairs on, which take a tenth of a second.
_PIECE_WORK = 2**25

_NUMBERS_PER_SYMBOL = 8  # that a chunk of sequences stores
_NEGLIGIBLE = -80.0  # the logarithm of a probability


class Blocks(NamedTuple):
    """Blocks of times, as the recursion over hypotheses needs them."""

    values: Float[Array, "blocks block flat *event"]
    before: Statistics
    """Of the block before each of its times: (blocks, block, flat)."""
    through: Statistics
    """Of the block up to each of its times, that one included."""
    in_block_logs: Float[Array, "blocks block starts flat"]
    """ln p(x_t) under segments that start in it."""
    in_block: Statistics
    """Of segments that start in it, before each of its times, if requested; as `in_block_logs`."""
    last: Statistics
    """Of segments that start in it, at its end: (blocks, starts, flat)."""


def cut_into_blocks(
    segment: Segment, sequences: Sequences, with_in_block: bool = False, block: int = BLOCK
) -> Blocks:
    """The blocks of sequences; the last is filled up with missing observations."""
    flat, time, *event = sequences.values.shape
    block = min(block, time)
    count = -(-time // block)
    padding = [(0, 0), (0, count * block - time), *((0, 0),) * len(event)]
    values = jnp.pad(sequences.values.astype(float), padding, constant_values=jnp.nan)
    values = jnp.moveaxis(values.reshape(flat, count, block, *event), 0, 2)
    steps = jnp.moveaxis(values, 1, 0)
    observe_one, density = (functools.partial(each, segment) for each in (observe, log_density))
    observe_each = jax.vmap(jax.vmap(observe_one))  # over blocks and sequences
    observe_in_block = jax.vmap(jax.vmap(jax.vmap(observe_one)), in_axes=(1, None), out_axes=1)
    density_in_block = jax.vmap(jax.vmap(jax.vmap(density)), in_axes=(1, None), out_axes=1)

    def like(statistics: Statistics, shape: tuple[int, ...]) -> Statistics:
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape[1:])), statistics
        )

    nothing = jax.tree.map(lambda leaf: leaf[None], segment.empty())
    runs = like(nothing, (count, flat))
    fresh = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, block, *leaf.shape)),
        sequences.initial_statistics(segment),
    )

    def step(carry: tuple[Statistics, Statistics], now: tuple[Array, Array]) -> tuple[Any, Any]:
        runs, in_block = carry
        index, x = now
        seen = jax.tree.map(
            lambda new, old: _where_start(jnp.arange(block) <= index, new, old),
            observe_in_block(in_block, x),
            in_block,
        )
        through = observe_each(runs, x)
        return (through, seen), (
            runs,
            through,
            density_in_block(in_block, x),
            in_block if with_in_block else None,
        )

    (_, last), each = lax.scan(step, (runs, fresh), (jnp.arange(block), steps))
    before, through, logs, in_block = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), each)
    return Blocks(values, before, through, logs, in_block, last)


def _where_start(condition: Array, new: Array, old: Array) -> Array:
    """Along the second axis."""
    return jnp.where(condition.reshape(1, -1, *(1,) * (new.ndim - 2)), new, old)


def next_statistics(
    segment: Segment,
    statistics: Statistics,
    block: Blocks,
    index: Int[Array, ""],
) -> Statistics:
    """The statistics from every start to the end of the block."""
    total = jax.tree.map(lambda leaf: leaf[-1], block.through)
    merged = by_hypothesis(segment.merge)(statistics, total)
    return jax.tree.map(lambda leaf, last: put_block(leaf, last, index), merged, block.last)


def filter_sequences(
    prior: Prior,
    segment: Segment,
    sequences: Sequences,
    with_probs: bool = False,
    piece_work: int | None = None,
    *,
    for_posterior: bool = False,
) -> Filtered:
    """The recursion over whole sequences of any family; `for_posterior` requests all fields.

    From `piece_work` (time, start) pairs in all, it is compiled in pieces. Few sequences are
    filtered one after another, since each has enough starts to fill vectors.
    """
    many = len(sequences.values) >= _MANY
    if piece_work is None:  # many sequences come in chunks of the same shape
        piece_work = _PIECE_WORK // 8 if many else _PIECE_WORK

    def filtered(sequences: Sequences) -> Filtered:
        blocks = cut_into_blocks(segment, sequences, with_probs, _BLOCK_OF_MANY if many else BLOCK)
        return filter_blocks(
            prior,
            segment,
            sequences,
            blocks,
            with_probs=with_probs,
            for_posterior=for_posterior,
            piece_work=piece_work,
        ).filtered

    return filtered(sequences) if many else map_chunks(filtered, sequences, 1)


@functools.partial(jax.jit, static_argnames=("with_probs", "for_posterior"))
def filter_batch(
    prior: Prior,
    segment: Segment,
    sequences: Sequences,
    *,
    with_probs: bool = False,
    for_posterior: bool = False,
) -> Filtered:
    """The recursion over any number of sequences, in chunks; by counts where they suffice."""
    if sequences.counted_by(segment):
        dirichlet = as_dirichlet(segment)

        def by_counts(rows: Int[Array, "flat time"]) -> Filtered:
            filtered = filter_counts(prior, dirichlet, rows)
            return filtered if with_probs else filtered._replace(probs=None)

        return in_chunks(by_counts, sequences.values, dirichlet.alphabet // 2)
    filter_chunk = functools.partial(
        filter_sequences, prior, segment, with_probs=with_probs, for_posterior=for_posterior
    )
    return in_chunks(filter_chunk, sequences, _NUMBERS_PER_SYMBOL)


def whole_blocks(segment: Segment, time: int) -> int:
    """How many observations of a chunk `extend_hypotheses` can take at once."""
    return time if few_symbols(segment) else time - time % _chunk_block(time)


def _chunk_block(time: int) -> int:
    """The length of the blocks of a chunk, which it is divided into without rest if possible."""
    lengths = range(BLOCK - 8, BLOCK + 17)
    return max((block for block in lengths if time % block == 0), default=BLOCK)


def extend_hypotheses(
    prior: Prior,
    segment: Segment,
    hypotheses: Hypotheses,
    sequences: Sequences,
    next_starts: Int[Array, " after"],
) -> tuple[Hypotheses, Filtered]:
    """The recursion over a chunk of one stream, whose length is one of `whole_blocks`.

    `next_starts` are the starts of segments that begin in the chunk, or right after it. All
    hypotheses are returned, the new ones last. There are probabilities where there is an alphabet.
    """
    values = sequences.values
    time = values.shape[1]
    counted = few_symbols(segment)
    lanes = LANES if counted else _chunk_block(time)
    fresh = jax.tree.map(lambda leaf: leaf[0], sequences.initial_statistics(segment))
    history = hypotheses.in_rows(lanes, fresh)
    starts = Starts.of_chunk(time, lanes, history, next_starts)
    if counted:
        symbols = jnp.where(jnp.isnan(values), -1, values).astype(jnp.int32)
        filtered, after = extend_counts(prior, as_dirichlet(segment), symbols, (history, starts))
    else:
        blocks = cut_into_blocks(segment, sequences, segment.finite, lanes)
        result = filter_blocks(
            prior, segment, sequences, blocks, (history, starts), with_probs=segment.finite
        )
        filtered, log_start = result.filtered, result.weights.log_start[0]
        log_weights, statistics = jax.tree.map(
            lambda leaf: leaf[:, :, 0], (result.weights.log_weights, result.statistics)
        )
        after = FilteredChunk(log_weights, statistics, log_start)
    return starts.hypotheses(after, next_starts[-1], fresh, time), filtered


class FilteredBlocks(NamedTuple):
    """The recursion over blocks."""

    filtered: Filtered
    statistics: Statistics
    """Since each start, after the last block: (rows, lanes, flat)."""
    weights: Weights
    """After the last block."""


def filter_blocks(
    prior: Prior,
    segment: Segment,
    sequences: Sequences,
    blocks: Blocks,
    begin: tuple[Hypotheses, Starts] | None = None,
    *,
    with_probs: bool = False,
    for_posterior: bool = False,
    piece_work: float = math.inf,
) -> FilteredBlocks:
    """The recursion over the blocks of sequences.

    It begins with a first segment, or with the hypotheses of one stream in rows as long as a block,
    among which is the one that starts at time 0.
    """
    flat, time = sequences.values.shape[:2]
    count, block = blocks.values.shape[:2]
    new = sequences.initial_statistics(segment), jnp.full(flat, -jnp.inf)

    def to_come(rows: int) -> Any:
        """The statistics and the weights of starts that are still to come."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, block, *leaf.shape)), new)

    if begin is None:
        starts = Starts.of_chunk(time, block)
        statistics, log_weights = to_come(0)
        weights = Weights(log_weights, jnp.zeros(flat))
    else:
        history, starts = begin
        log_weights, statistics = jax.tree.map(
            lambda leaf: leaf[:, :, None], (history.log_weights, history.statistics)
        )
        weights = Weights(log_weights, new[1])
    parts = max(1, min(4, count * block // 64)) if flat * time**2 >= piece_work else 1
    ranges = pieces(count, parts)
    closed = has_closed_form(segment)
    table = None
    if closed and sequences.complete and begin is None:
        longest = max(last - first for first, last in ranges)
        table = count_table(segment, count, block, longest)

    def log_density_after(statistics: Statistics, before: Statistics, x: Array) -> Array:
        return log_density(segment, segment.merge(statistics, before), x)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def body(
        carry: tuple[Statistics, Weights], now: tuple[Int[Array, ""], Blocks]
    ) -> tuple[tuple[Statistics, Weights], tuple[Filtered, Array | None]]:
        index, here = now
        statistics, weights = carry
        row = starts.earlier + index
        rows = len(weights.log_weights)
        absolute, relative = starts.absolute[:rows], starts.relative[:rows]
        times = index * block + jnp.arange(block, dtype=jnp.int32)
        runs = jnp.maximum(times[:, None, None] - relative, 0) + 1
        endings = Endings.of(prior, absolute, runs, for_posterior)
        probs = in_block_probs = reach = None
        if for_posterior:
            age = ((index + 1) * block - relative)[..., None]
            reach = highest(jnp.where(weights.log_weights > _NEGLIGIBLE, age, block))
        if with_probs:
            probs, in_block_probs = _pair_probs(segment, statistics, here)
        if closed:
            counted, of_values = by_pair(segment.run_log_density)(statistics, here.through)
            if table is not None:
                counted = lax.dynamic_slice_in_dim(table, count - index, rows, axis=1)[..., None]
            earlier = earlier_at_once(weights.log_weights, endings, counted + of_values, probs)
        else:
            logs = by_pair(log_density_after)(statistics, here.before, here.values)
            earlier = earlier_by_steps(weights.log_weights, endings, logs, probs)
        in_block_starts = lax.dynamic_index_in_dim(absolute, row, keepdims=False)
        in_block = InBlockStarts(in_block_starts, here.in_block_logs, in_block_probs)
        weights, filtered = filter_block(prior, weights.log_start, earlier, in_block, row)
        return (next_statistics(segment, statistics, here, row), weights), (filtered, reach)

    filtered_parts = []
    for first, last in ranges:
        statistics, log_weights = jax.tree.map(
            lambda *parts: jnp.concatenate(parts),
            (statistics, weights.log_weights),
            to_come(last - first),
        )
        indices = jnp.arange(first, last, dtype=jnp.int32)
        here = jax.tree.map(lambda leaf, a=first, b=last: leaf[a:b], blocks)
        (statistics, weights), part = lax.scan(
            body, (statistics, Weights(log_weights, weights.log_start)), (indices, here)
        )
        filtered_parts.append(part)

    def joined(*leaves: Array) -> Array:
        whole = jnp.concatenate(leaves)
        return jnp.moveaxis(whole.reshape(-1, *whole.shape[2:])[:time], 0, 1)

    filtered, reaches = zip(*filtered_parts, strict=True)
    filtered = jax.tree.map(joined, *filtered)
    if for_posterior:
        filtered = filtered._replace(reach=jnp.concatenate(reaches).T)
    return FilteredBlocks(filtered, statistics, weights)


def has_closed_form(segment: Segment) -> bool:
    """Whether the log density of a run of observations is a function of its statistics."""
    before, run = prior_statistics(segment), segment.empty()
    return jax.eval_shape(segment.run_log_density, before, run) is not None


def count_table(
    segment: Segment, count: int, block: int, more: int
) -> Float[Array, "block rows lanes"]:
    """The first term of `run_log_density` where no observation is missing.

    For the starts of row `count - d`, and the block that is `d` after theirs. There are `more`
    rows of zeros, for starts that are still to come.
    """
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
    table, _ = by_pair(segment.run_log_density)(statistics, here.through)
    return jnp.pad(table[..., 0], ((0, 0), (0, more), (0, 0)))


def _pair_probs(
    segment: Segment, statistics: Statistics, block: Blocks
) -> tuple[Float[Array, "..."], Float[Array, "block lanes flat alphabet"]]:
    """P(x_t = k | the segment started at s), for all pairs, and for starts in the block."""

    def probs_of(statistics: Statistics) -> Float[Array, " alphabet"]:
        predictive: Any = segment.predictive(statistics)
        return predictive.probs

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, " alphabet"]:
        del x
        return probs_of(segment.merge(statistics, before))

    pairs = by_pair(of_pair)(statistics, block.before, block.values)
    return pairs, jax.vmap(jax.vmap(jax.vmap(probs_of)))(block.in_block)
