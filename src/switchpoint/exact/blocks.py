"""The forward recursion over the start of the current segment, for any family and any prior.

As in `recursion.py`, but hypotheses are about statistics that merge. Time is cut into blocks. The
log densities of a block under all starts before it are one vector operation: the statistics from
each start to the block, merged with those inside the block before each time. Only the weights are
computed one time after another. Weights are logarithms, so an observation that is impossible under
every hypothesis but one in float32 leaves the right one.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics

BLOCK = 32  # times
_BLOCK_OF_MANY = 16  # of many sequences, which fill a vector with fewer starts
_MANY = 64  # sequences

PIECE_WORK = 2**22
"""The number of (time, start) pairs from which pieces save more time than their compilation takes,
over several calls."""


class Sequences(NamedTuple):
    """A flat batch of sequences."""

    values: Float[Array, "flat time *event"]
    """The observations minus the offset; NaN where they are missing."""
    offset: Float[Array, "flat *event"]


class Filtered(NamedTuple):
    """The results of the recursion, before and after each observation."""

    log_density: Float[Array, "flat time"]
    """ln p(x_t | x_<t)."""
    log_start: Float[Array, "flat time"]
    """ln P(a segment starts at t | x_<t)."""
    run_length_mean: Float[Array, "flat time"] | None
    """E[observations in the current segment, x_t included | x_<=t], if asked for."""
    probs: Float[Array, "flat time alphabet"] | None
    """P(x_t = k | x_<t), for symbols if asked for."""


class Blocks(NamedTuple):
    """What the hypotheses need to know of each block of times."""

    values: Float[Array, "blocks block flat *event"]
    before: Statistics
    """Of the block before each of its times: (blocks, block, flat)."""
    totals: Statistics
    """Of the whole block: (blocks, flat)."""
    own_logs: Float[Array, "blocks block starts flat"]
    """ln p(x_t) under segments that start in it."""
    own: Statistics
    """Of segments that start in it, before each of its times, if asked for; as `own_logs`."""
    last: Statistics
    """Of segments that start in it, at its end: (blocks, starts, flat)."""


def initial_statistics(segment: Segment, offset: Float[Array, "flat *event"]) -> Statistics:
    """The statistics of a segment before its first observation, for each sequence."""
    return jax.vmap(lambda by: segment.translate(segment.initial(), by))(offset)


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
    # One more time after the last, whose statistics are those of the whole block.
    steps = jnp.moveaxis(values, 1, 0)
    observe = jax.vmap(jax.vmap(segment.observe))  # over blocks and sequences
    observe_own = jax.vmap(jax.vmap(jax.vmap(segment.observe)), in_axes=(1, None), out_axes=1)
    density_own = jax.vmap(jax.vmap(jax.vmap(segment.log_density)), in_axes=(1, None), out_axes=1)

    def like(statistics: Statistics, shape: tuple[int, ...]) -> Statistics:
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape[1:])), statistics
        )

    nothing = jax.tree.map(lambda leaf: leaf[None], segment.empty())
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
        return (observe(runs, x), seen), (runs, density_own(own, x), own if with_own else None)

    (totals, last), (before, own_logs, own) = lax.scan(
        step, (runs, fresh), (jnp.arange(block), steps)
    )
    blocks_first = functools.partial(jax.tree.map, lambda leaf: jnp.moveaxis(leaf, 0, 1))
    return Blocks(
        values, blocks_first(before), totals, jnp.moveaxis(own_logs, 0, 1), blocks_first(own), last
    )


def _where_start(condition: Array, new: Array, old: Array) -> Array:
    """Along the second axis."""
    return jnp.where(condition.reshape(1, -1, *(1,) * (new.ndim - 2)), new, old)


class Layout(NamedTuple):
    """How the hypotheses of a batch are laid out, so that the fastest axis is long.

    A start is a row, the number of its block, and a lane, its place there: hypotheses are
    (rows, lanes, flat) of many sequences, (flat, rows, lanes) of few.
    """

    many: bool

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of the rows and of the lanes."""
        return (0, 1) if self.many else (1, 2)

    def spread(self, per_sequence: Shaped[Array, "flat ..."]) -> Shaped[Array, "..."]:
        """Values of the sequences, to broadcast against hypotheses."""
        return jnp.expand_dims(per_sequence, self.axes)

    def spread_starts(self, per_start: Shaped[Array, "rows lanes"]) -> Shaped[Array, "..."]:
        """Values of the starts, to broadcast against hypotheses."""
        return jnp.expand_dims(per_start, 2 if self.many else 0)

    def spread_block(self, array: Array, leading: int = 0) -> Array:
        """Values of the starts of one block, (lanes, flat), to broadcast against hypotheses."""
        if self.many:
            return jnp.expand_dims(array, leading)
        return jnp.expand_dims(jnp.swapaxes(array, leading, leading + 1), leading + 1)

    def put_block(
        self, array: Array, part: Array, index: Int[Array, ""], leading: int = 0
    ) -> Array:
        """The array with the starts of one block replaced.

        A selection, and not an update in place, since that would not be vectorised.
        """
        part = self.spread_block(part, leading)
        row = self.axes[0] + leading
        at = jnp.arange(array.shape[row]) == index
        shape = [1] * array.ndim
        shape[row] = -1
        return jnp.where(at.reshape(shape), part, array)

    def maximum(self, values: Array) -> Float[Array, " flat"]:
        """The maximum over the starts."""
        rows, lanes = self.axes
        return values.max(rows).max(lanes - 1)

    def sums(self, values: Array, factors: tuple[Any, ...]) -> tuple[Float[Array, " flat"], ...]:
        """The sums over the starts, times each of several factors of the starts."""
        rows, lanes = (values.shape[axis] for axis in self.axes)
        table = [jnp.broadcast_to(each, (rows, lanes)).ravel().astype(float) for each in factors]
        spec = "sf,ks->kf" if self.many else "fs,ks->kf"
        flat = values.reshape((rows * lanes, -1) if self.many else (-1, rows * lanes))
        return tuple(jnp.einsum(spec, flat, jnp.stack(table), precision=lax.Precision.HIGHEST))

    def by_hypothesis(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(statistics, *of the sequence)` of all hypotheses."""

        def vectorized(statistics: Statistics, *others: Any) -> Any:
            per_start = functools.partial(jax.vmap, in_axes=(0, *(None,) * len(others)))
            if self.many:
                return per_start(per_start(jax.vmap(function)))(statistics, *others)
            return jax.vmap(per_start(per_start(function)))(statistics, *others)

        return vectorized

    def by_pair(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(statistics, before, x)` of all (time, hypothesis) pairs."""
        return jax.vmap(self.by_hypothesis(function), in_axes=(None, 0, 0))

    def fresh_hypotheses(self, fresh: Statistics, rows: int, lanes: int) -> Statistics:
        """Statistics that stand for starts that are still to come."""

        def repeat(leaf: Array) -> Array:
            shape = list(self.spread(leaf).shape)
            shape[self.axes[0]], shape[self.axes[1]] = rows, lanes
            return jnp.broadcast_to(self.spread(leaf), shape)

        return jax.tree.map(repeat, fresh)

    def pad_rows(self, array: Array, rows: int, leading: int = 0) -> Array:
        """Zeros for the rows that are still to come."""
        axis = self.axes[0] + leading
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, rows - array.shape[axis])
        return jnp.pad(array, padding)

    def append(self, hypotheses: Any, more: Any) -> Any:
        """Hypotheses followed by others."""
        return jax.tree.map(
            lambda one, other: jnp.concatenate([one, other], self.axes[0]), hypotheses, more
        )


def pair_log_density(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, index: Int[Array, ""]
) -> Float[Array, "block *hypotheses"]:
    """ln p(x_t | the segment started at s), for the times t of one block and all starts s."""

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, ""]:
        return segment.log_density(segment.merge(statistics, before), x)

    logs = layout.by_pair(of_pair)(statistics, block.before, block.values)
    return layout.put_block(logs, block.own_logs, index, leading=1)


def next_statistics(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, index: Int[Array, ""]
) -> Statistics:
    """The statistics from every start to the end of the block."""
    merged = layout.by_hypothesis(segment.merge)(statistics, block.totals)
    return jax.tree.map(lambda leaf, own: layout.put_block(leaf, own, index), merged, block.last)


def pieces(count: int, block: int, work: int, min_work: int = PIECE_WORK) -> list[tuple[int, int]]:
    """Ranges of blocks, each compiled for the starts up to its end, if there is enough work."""
    parts = max(1, min(8, count * block // 64)) if work >= min_work else 1
    return list(itertools.pairwise(count * part // parts for part in range(parts + 1)))


class Held(NamedTuple):
    """What every start has gathered up to the beginning b of each block: (blocks, *hypotheses)."""

    statistics: Statistics
    gains: Float[Array, "..."]
    """ln P(x_s..x_(b-1)) / P(x_s..x_(b-1) | x_<s)."""


class _Carry(NamedTuple):
    held: Held
    log_weights: Float[Array, "..."]
    log_start: Float[Array, " flat"]


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
    min_work: int = PIECE_WORK,
) -> tuple[Filtered, Held | None]:
    """The recursion over the blocks of sequences; what a posterior needs if asked for."""
    flat, time = sequences.values.shape[:2]
    count, block = blocks.values.shape[:2]
    fresh = initial_statistics(segment, sequences.offset)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def body(
        carry: _Carry, now: tuple[Int[Array, ""], Blocks]
    ) -> tuple[_Carry, tuple[Filtered, Held | None]]:
        index, here = now
        statistics, gains = carry.held
        logs = pair_log_density(segment, layout, statistics, here, index)
        probs = None
        if with_probs:
            probs = _pair_probs(segment, layout, statistics, here, index)
        rows = carry.log_weights.shape[layout.axes[0]]
        starts = jnp.arange(rows * block, dtype=jnp.int32).reshape(rows, block)
        seen = Starts(starts, starts, starts)
        step = functools.partial(_step, prior, layout, seen, for_posterior)
        weights = carry.log_weights, carry.log_start
        times = index * block + jnp.arange(block, dtype=jnp.int32)
        weights, filtered = lax.scan(step, weights, (times, logs, probs))
        after = next_statistics(segment, layout, statistics, here, index)
        if not for_posterior:
            return _Carry(Held(after, gains), *weights), (filtered, None)
        more = gains + gains_of(layout, logs, filtered.log_density, index).sum(0)
        return _Carry(Held(after, more), *weights), (filtered, carry.held)

    # The gains are zeros, which cost nothing, unless they are asked for.
    new = Held(fresh, jnp.zeros(flat)), jnp.full(flat, -jnp.inf)
    held, log_weights = layout.fresh_hypotheses(new, 0, block)
    carry = _Carry(held, log_weights, jnp.zeros(flat))
    parts, kept = [], []
    for first, last in pieces(count, block, flat * time**2, min_work):
        more = layout.fresh_hypotheses(new, last - first, block)
        held, log_weights = layout.append((carry.held, carry.log_weights), more)
        carry = _Carry(held, log_weights, carry.log_start)
        indices = jnp.arange(first, last, dtype=jnp.int32)
        here = jax.tree.map(lambda leaf, a=first, b=last: leaf[a:b], blocks)
        carry, (part, held) = lax.scan(body, carry, (indices, here))
        parts.append(part)
        kept.append(jax.tree.map(lambda leaf: layout.pad_rows(leaf, count, leading=1), held))

    def joined(*leaves: Array) -> Array:
        whole = jnp.concatenate(leaves)
        return jnp.moveaxis(whole.reshape(-1, *whole.shape[2:])[:time], 0, 1)

    held = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *kept)
    return jax.tree.map(joined, *parts), held


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


def extend_blocks(
    prior: Prior,
    segment: Segment,
    hypotheses: Hypotheses,
    sequences: Sequences,
    next_starts: Int[Array, " after"],
) -> tuple[Hypotheses, Filtered]:
    """The recursion over a chunk of one stream, in whole blocks of observations.

    `next_starts` are the starts of segments that begin in the chunk, or right after it. All
    hypotheses are returned, the new ones last. There are probabilities where there is an alphabet.
    """
    layout = Layout(many=False)
    blocks = cut_into_blocks(segment, sequences, with_own=segment.finite)
    count, block = blocks.values.shape[:2]
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
        in_rows(hypotheses.starts, next_starts[:-1], 0),
        in_rows(-hypotheses.runs, times, 0),
        in_rows(jnp.full(size, -1, jnp.int32), times, -1),
    )
    first = jax.tree.map(lambda leaf: leaf[0], fresh)
    statistics = jax.tree.map(
        lambda leaf, one: in_rows(leaf, one, one)[None], hypotheses.statistics, first
    )
    log_weights = in_rows(hypotheses.log_weights, -jnp.inf, -jnp.inf)[None]

    def body(carry: Any, now: tuple[Int[Array, ""], Blocks]) -> tuple[Any, Filtered]:
        statistics, weights = carry
        index, here = now
        row = old + index
        logs = pair_log_density(segment, layout, statistics, here, row)
        probs = None
        if segment.finite:
            probs = _pair_probs(segment, layout, statistics, here, row)
        step = functools.partial(_step, prior, layout, starts, False)
        times = index * block + jnp.arange(block, dtype=jnp.int32)
        weights, filtered = lax.scan(step, weights, (times, logs, probs))
        return (next_statistics(segment, layout, statistics, here, row), weights), filtered

    # The segment that starts with the chunk is one of the hypotheses already.
    carry = statistics, (log_weights, jnp.full(1, -jnp.inf))
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


class Starts(NamedTuple):
    """The starts of the hypotheses, seen from three places: (rows, lanes)."""

    absolute: Int[Array, "rows lanes"]
    """As the prior takes them."""
    relative: Int[Array, "rows lanes"]
    """From the time 0 of these blocks; negative before it."""
    entering: Int[Array, "rows lanes"]
    """When the hypothesis gets its weight; -1 if it has one."""


def _step(
    prior: Prior,
    layout: Layout,
    starts: Starts,
    with_runs: bool,
    carry: tuple[Array, Array],
    now: tuple[Array, Array, Array | None],
) -> tuple[tuple[Array, Array], Filtered]:
    log_weights, log_start = carry
    time, logs, probs = now
    now_starts = layout.spread_starts(starts.entering == time)
    log_weights = jnp.where(now_starts, layout.spread(log_start), log_weights)
    run = jnp.maximum(time - starts.relative, 0) + 1
    joint = log_weights + logs
    highest = layout.maximum(joint)
    parts = jnp.exp(joint - layout.spread(highest))
    factors = (1.0, prior.hazard_after(starts.absolute, run), *([run] if with_runs else []))
    total, hazard, *length = layout.sums(parts, factors)
    evidence = highest + jnp.log(total)
    survival = layout.spread_starts(prior.log_survival_after(starts.absolute, run))
    after = joint - layout.spread(evidence) + survival, safe_log(hazard / total)
    mixed = None
    if probs is not None:
        mixed = jnp.sum(jnp.exp(log_weights)[..., None] * probs, layout.axes)
        mixed = mixed / mixed.sum(-1, keepdims=True)
    runs = length[0] / total if with_runs else None
    return after, Filtered(evidence, log_start, runs, mixed)


def _pair_probs(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, index: Int[Array, ""]
) -> Float[Array, "..."]:
    """P(x_t = k | the segment started at s), as `pair_log_density`."""

    def probs_of(statistics: Statistics) -> Float[Array, " alphabet"]:
        predictive: Any = segment.predictive(statistics)
        return predictive.probs

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, " alphabet"]:
        del x
        return probs_of(segment.merge(statistics, before))

    probs = layout.by_pair(of_pair)(statistics, block.before, block.values)
    own = jax.vmap(jax.vmap(jax.vmap(probs_of)))(block.own)
    return layout.put_block(probs, own, index, leading=1)


def safe_log(probability: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln p, with derivative 0 where p is 0."""
    there = probability > 0
    return jnp.where(there, jnp.log(jnp.where(there, probability, 1.0)), -jnp.inf)
