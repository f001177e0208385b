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

_BLOCK = 32  # times
_MANY = 64  # sequences


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
    run_length_mean: Float[Array, "flat time"]
    """E[observations in the current segment, x_t included | x_<=t]."""
    probs: Float[Array, "flat time alphabet"] | None
    """P(x_t = k | x_<t), for symbols if asked for."""


class Blocks(NamedTuple):
    """What the hypotheses need to know of each block of times."""

    values: Float[Array, "blocks block flat *event"]
    before: Statistics
    """Of the block before each of its times: (blocks, block, flat)."""
    totals: Statistics
    """Of the whole block: (blocks, flat)."""
    own: Statistics
    """Of segments that start in the block, before each of its times: (blocks, time, start, flat)."""
    last: Statistics
    """Of segments that start in the block, at its end: (blocks, start, flat)."""


def initial_statistics(segment: Segment, offset: Float[Array, "flat *event"]) -> Statistics:
    """The statistics of a segment before its first observation, for each sequence."""
    return jax.vmap(lambda by: segment.translate(segment.initial(), by))(offset)


def cut_into_blocks(segment: Segment, sequences: Sequences) -> Blocks:
    """The blocks of sequences; the last is filled up with missing observations."""
    flat, time, *event = sequences.values.shape
    block = min(_BLOCK, time)
    count = -(-time // block)
    padding = [(0, 0), (0, count * block - time), *((0, 0),) * len(event)]
    values = jnp.pad(sequences.values, padding, constant_values=jnp.nan)
    values = jnp.moveaxis(values.reshape(flat, count, block, *event), 0, 2)
    # One more time after the last, whose statistics are those of the whole block.
    steps = jnp.moveaxis(values, 1, 0)
    observe = jax.vmap(jax.vmap(segment.observe))  # over blocks and sequences
    observe_own = jax.vmap(jax.vmap(jax.vmap(segment.observe)), in_axes=(1, None), out_axes=1)

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
        return (observe(runs, x), seen), (runs, own)

    (totals, last), (before, own) = lax.scan(step, (runs, fresh), (jnp.arange(block), steps))
    blocks_first = functools.partial(jax.tree.map, lambda leaf: jnp.moveaxis(leaf, 0, 1))
    return Blocks(values, blocks_first(before), totals, blocks_first(own), last)


def _where_start(condition: Array, new: Array, old: Array) -> Array:
    """Along the second axis."""
    return jnp.where(condition.reshape(1, -1, *(1,) * (new.ndim - 2)), new, old)


class Layout(NamedTuple):
    """How the hypotheses of a batch are laid out: the axis that runs fastest is the longer one."""

    starts_last: bool

    @property
    def axis(self) -> int:
        """The axis of the starts, beside that of the sequences."""
        return 1 if self.starts_last else 0

    def spread(self, per_sequence: Shaped[Array, " flat"]) -> Shaped[Array, "..."]:
        """Values of the sequences, to broadcast against hypotheses."""
        return jnp.expand_dims(per_sequence, self.axis)

    def spread_starts(self, per_start: Shaped[Array, " starts"]) -> Shaped[Array, "..."]:
        """Values of the starts, to broadcast against hypotheses."""
        return jnp.expand_dims(per_start, 1 - self.axis)

    def put(self, array: Array, part: Array, begin: Int[Array, ""], leading: int = 0) -> Array:
        """The array with a part laid out as (starts, flat) written from a start on."""
        if self.starts_last:
            part = jnp.swapaxes(part, leading, leading + 1)
        return lax.dynamic_update_slice_in_dim(array, part, begin, leading + self.axis)

    def by_pair(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(statistics, before, x)` of all (time, hypothesis) pairs."""
        if self.starts_last:
            function = jax.vmap(function, in_axes=(0, None, None))
            function = jax.vmap(function)
            return jax.vmap(function, in_axes=(None, 0, 0))
        function = jax.vmap(function)
        function = jax.vmap(function, in_axes=(0, None, None))
        return jax.vmap(function, in_axes=(None, 0, 0))

    def by_hypothesis(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(statistics, of the sequence)` of all hypotheses."""
        if self.starts_last:
            return jax.vmap(jax.vmap(function, in_axes=(0, None)))
        return jax.vmap(jax.vmap(function), in_axes=(0, None))

    def empty_hypotheses(self, fresh: Statistics, rows: int) -> Statistics:
        """Statistics that stand for starts that are still to come."""

        def repeat(leaf: Array) -> Array:
            spread = self.spread(leaf)
            shape = list(spread.shape)
            shape[self.axis] = rows
            return jnp.broadcast_to(spread, shape)

        return jax.tree.map(repeat, fresh)

    def append(self, statistics: Statistics, more: Statistics) -> Statistics:
        """Hypotheses followed by others."""
        return jax.tree.map(
            lambda one, other: jnp.concatenate([one, other], self.axis), statistics, more
        )


def pair_log_density(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, begin: Int[Array, ""]
) -> Float[Array, "block *hypotheses"]:
    """ln p(x_t | the segment started at s), for the times t of one block and all starts s."""

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, ""]:
        return segment.log_density(segment.merge(statistics, before), x)

    logs = layout.by_pair(of_pair)(statistics, block.before, block.values)
    own = jax.vmap(jax.vmap(jax.vmap(segment.log_density)), in_axes=(1, None), out_axes=1)(
        block.own, block.values
    )
    return layout.put(logs, own, begin, leading=1)


def next_statistics(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, begin: Int[Array, ""]
) -> Statistics:
    """The statistics from every start to the end of the block."""
    merged = layout.by_hypothesis(segment.merge)(statistics, block.totals)
    return jax.tree.map(lambda leaf, own: layout.put(leaf, own, begin), merged, block.last)


def pieces(count: int, block: int, work: int) -> list[tuple[int, int]]:
    """Ranges of blocks, each compiled for the starts up to its end."""
    parts = max(1, min(8, count * block // 64)) if work >= 2**22 else 1
    return list(itertools.pairwise(count * part // parts for part in range(parts + 1)))


class _Carry(NamedTuple):
    statistics: Statistics
    log_weights: Float[Array, "..."]
    log_start: Float[Array, " flat"]


def filter_blocks(
    prior: Prior, segment: Segment, sequences: Sequences, with_probs: bool = False
) -> Filtered:
    """The recursion over whole sequences."""
    flat, time = sequences.values.shape[:2]
    layout = Layout(starts_last=flat < _MANY)
    blocks = cut_into_blocks(segment, sequences)
    count, block = blocks.values.shape[:2]
    fresh = initial_statistics(segment, sequences.offset)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def body(carry: _Carry, now: tuple[Int[Array, ""], Blocks]) -> tuple[_Carry, Filtered]:
        index, here = now
        begin = index * block
        logs = pair_log_density(segment, layout, carry.statistics, here, begin)
        probs = None
        if with_probs:
            probs = _pair_probs(segment, layout, carry.statistics, here, begin)
        step = functools.partial(_step, prior, layout)
        times = begin + jnp.arange(block, dtype=jnp.int32)
        weights = carry.log_weights, carry.log_start
        weights, filtered = lax.scan(step, weights, (times, logs, probs))
        statistics = next_statistics(segment, layout, carry.statistics, here, begin)
        return _Carry(statistics, *weights), filtered

    none = jnp.zeros((flat, 0) if layout.starts_last else (0, flat))
    carry = _Carry(layout.empty_hypotheses(fresh, 0), none, jnp.zeros(flat))
    parts = []
    for first, last in pieces(count, block, flat * time**2):
        more = last * block - carry.log_weights.shape[layout.axis]
        padding = [(0, 0), (0, 0)]
        padding[layout.axis] = (0, more)
        carry = carry._replace(
            statistics=layout.append(carry.statistics, layout.empty_hypotheses(fresh, more)),
            log_weights=jnp.pad(carry.log_weights, padding, constant_values=-jnp.inf),
        )
        indices = jnp.arange(first, last, dtype=jnp.int32)
        here = jax.tree.map(lambda leaf, a=first, b=last: leaf[a:b], blocks)
        carry, part = lax.scan(body, carry, (indices, here))
        parts.append(part)

    def joined(*leaves: Array) -> Array:
        whole = jnp.concatenate(leaves)
        return jnp.moveaxis(whole.reshape(-1, *whole.shape[2:])[:time], 0, 1)

    return jax.tree.map(joined, *parts)


def _step(
    prior: Prior, layout: Layout, carry: tuple[Array, Array], now: tuple[Array, Array, Array | None]
) -> tuple[tuple[Array, Array], Filtered]:
    log_weights, log_start = carry
    time, logs, probs = now
    log_weights = layout.put(log_weights, log_start[None], time)
    starts = layout.spread_starts(jnp.arange(log_weights.shape[layout.axis], dtype=jnp.int32))
    run = jnp.maximum(time - starts, 0) + 1
    joint = log_weights + logs
    highest = joint.max(layout.axis)
    parts = jnp.exp(joint - layout.spread(highest))
    total = parts.sum(layout.axis)
    share = parts * layout.spread(1 / total)  # P(the segment of x_t started at s | x_<=t)
    evidence = highest + jnp.log(total)
    after = (
        joint - layout.spread(evidence) + safe_log(prior.survival_after(starts, run)),
        safe_log(jnp.sum(share * prior.hazard_after(starts, run), layout.axis)),
    )
    mixed = None
    if probs is not None:
        mixed = jnp.sum(jnp.exp(log_weights)[..., None] * probs, layout.axis)
        mixed = mixed / mixed.sum(-1, keepdims=True)
    return after, Filtered(evidence, log_start, jnp.sum(share * run, layout.axis), mixed)


def _pair_probs(
    segment: Segment, layout: Layout, statistics: Statistics, block: Blocks, begin: Int[Array, ""]
) -> Float[Array, "block *hypotheses alphabet"]:
    """P(x_t = k | the segment started at s), as `pair_log_density`."""

    def probs_of(statistics: Statistics) -> Float[Array, " alphabet"]:
        predictive: Any = segment.predictive(statistics)
        return predictive.probs

    def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Float[Array, " alphabet"]:
        del x
        return probs_of(segment.merge(statistics, before))

    probs = layout.by_pair(of_pair)(statistics, block.before, block.values)
    own = jax.vmap(jax.vmap(jax.vmap(probs_of)))(block.own)
    return layout.put(probs, own, begin, leading=1)


def safe_log(probability: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln p, with derivative 0 where p is 0."""
    there = probability > 0
    return jnp.where(there, jnp.log(jnp.where(there, probability, 1.0)), -jnp.inf)
