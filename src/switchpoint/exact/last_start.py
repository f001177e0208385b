"""The distribution of the start of a segment, given its end: the posterior follows from it.

Let a segment end just before e (or reach the end of the sequence, e = n, and continue unseen). It
started at s with probability

    q_e(s)  proportional to  P(a segment starts at s | x_<s) P(L = e - s | s) P(x_s..x_(e-1))
                             / P(x_s..x_(e-1) | x_<s)

The logarithm of the fraction is a sum of small terms. Independent symbols without gaps give it from
their counts, in O(n) memory. For any other data, ends come in blocks of times. For every start s
the statistics up to a block are kept, and the sum of the small terms ln p(x_t | s) - ln p(x_t |
x_<t); the block itself is computed when a pass reaches it. Memory is O(n^2 / 32), time O(n^2). For
a single sequence, only those starts are kept whose segment may still be the current one: usually
those since the last few switches.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from switchpoint._prefix_sums import sum_after, sum_before
from switchpoint.exact.blocks import (
    BlockCarry,
    Blocks,
    cut_into_blocks,
    filter_blocks,
    gains_of,
    pair_log_density,
)
from switchpoint.exact.counts import filter_counts
from switchpoint.exact.hypotheses import Filtered, HypothesisLayout, Sequences
from switchpoint.priors import Prior
from switchpoint.segments import Dirichlet, Segment
from switchpoint.segments.base import Statistics, observe, prior_statistics
from switchpoint.segments.dirichlet import as_dirichlet

_NEGLIGIBLE = -80.0  # the logarithm of a probability
_MIN_ROWS = 64  # that are worth being narrowed
_LAYOUT = HypothesisLayout(batch_last=False)

Carry = TypeVar("Carry")


class SegmentsEnding(NamedTuple):
    """The segments from every start s that end at e, or with x_(e-1) if x ended there."""

    end: Int[Array, ""]
    log_segment: Float[Array, "flat width"]
    """ln P(L = e - s | s) P(x_s..x_(e-1)) / P(x_s..x_(e-1) | x_<s)."""
    before: "BeforeLast | None"
    """Their statistics, unless counted."""


Step = Callable[[Carry, SegmentsEnding], tuple[Carry, Any]]


class LastStart(eqx.Module):
    """The distribution q_e of the start of a segment that ends just before e.

    Starts are 0..width-1 and ends 1..width; width may exceed the time, beyond which all is ignored.
    """

    time: eqx.AbstractVar[int]
    log_start: eqx.AbstractVar[Float[Array, "flat width"]]
    """ln P(a segment starts at s | x_<s)."""

    @abstractmethod
    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Carry, Any]:
        """`lax.scan` over the ends. For filtering, L = e - s becomes L >= e - s."""

    @abstractmethod
    def near(self, end: Int[Array, ""], by_start: Array) -> Array:
        """The part for those starts, along the last axis, whose q_end may not be negligible."""

    @abstractmethod
    def no_levels(self) -> Any:
        """The carry of `add_levels` before the last end."""

    @abstractmethod
    def add_levels(
        self, carry: Any, now: SegmentsEnding, segments: Float[Array, "flat width"]
    ) -> tuple[Any, Any]:
        """The carry with segments that end here, given P(each of them | x), and an output."""

    @abstractmethod
    def level_fields(
        self, carry: Any, outputs: Any, offset: Float[Array, "flat *event"]
    ) -> dict[str, Array]:
        """The fields of a `Posterior` for the level, from the carry and the outputs of all ends."""

    def probs(self, log_segment: Float[Array, "flat width"]) -> Float[Array, "flat width"]:
        """q_end(s); all zeros if no segment can end there."""
        scores = self.log_start + log_segment
        highest = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - jnp.where(jnp.isfinite(highest), highest, 0.0))
        return weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)


@jax.jit
def filter_starts(
    prior: Prior, segment: Segment, sequences: Sequences
) -> tuple[Filtered, LastStart]:
    """The forward recursion, and the distribution of last starts that follows from it."""
    if sequences.counted_by(segment):
        filtered = filter_counts(prior, as_dirichlet(segment), sequences.values)
        return filtered, SymbolLastStart.after(prior, as_dirichlet(segment), sequences, filtered)
    return _filter_blocks(prior, segment, sequences)


class SymbolLastStart(LastStart):
    """The distribution of the start of a segment of independent symbols, by their counts."""

    time: int = eqx.field(static=True)
    log_start: Float[Array, "flat width"]
    prior: Prior
    segment: Dirichlet
    rows: Int[Array, "flat time"]
    evidence: Float[Array, "flat time"]

    @classmethod
    def after(
        cls, prior: Prior, segment: Dirichlet, sequences: Sequences, filtered: Filtered
    ) -> "SymbolLastStart":
        rows = sequences.values
        return cls(rows.shape[1], filtered.log_start, prior, segment, rows, filtered.log_density)

    @property
    def counts(self) -> Float[Array, "alphabet flat ends"]:
        """The counts of each symbol before e = 0..time."""
        hot = jax.nn.one_hot(self.rows, self.segment.alphabet, axis=0)
        return sum_before(jnp.pad(hot, ((0, 0), (0, 0), (0, 1))))

    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Carry, Any]:
        ends = jnp.arange(1, self.time + 1, dtype=jnp.int32)
        counts = self.counts

        def at_end(carry: Carry, end: Int[Array, ""]) -> tuple[Carry, Any]:
            return step(carry, SegmentsEnding(end, self._log_segment(counts, end, filtering), None))

        return lax.scan(at_end, carry, ends, reverse=reverse)

    def near(self, end: Int[Array, ""], by_start: Array) -> Array:
        del end
        return by_start[..., : self.time]

    def no_levels(self) -> Float[Array, "alphabet flat ends"]:
        flat, time = self.rows.shape
        return jnp.zeros((self.segment.alphabet, flat, time + 1))

    def add_levels(
        self, carry: Array, now: SegmentsEnding, segments: Float[Array, "flat width"]
    ) -> tuple[Array, None]:
        """The carry is the change at t of E[the distribution of x_t | x]."""
        counts = self.counts
        since = counts[:, :, now.end][:, :, None] - counts[:, :, :-1]
        since = jnp.maximum(since, 0)  # starts after the end have zero weight
        means = jnp.moveaxis(self.segment.probs(jnp.moveaxis(since, 0, -1)), -1, 0) * segments
        return carry.at[:, :, : self.time].add(means).at[:, :, now.end].add(-means.sum(-1)), None

    def level_fields(
        self, carry: Array, outputs: Any, offset: Float[Array, " flat"]
    ) -> dict[str, Array]:
        del outputs, offset
        means = jnp.moveaxis((sum_before(carry) + carry)[:, :, : self.time], 0, -1)
        return {"probs_smoothed": means / means.sum(-1, keepdims=True)}

    def _log_segment(
        self, counts: Float[Array, "alphabet flat ends"], end: Int[Array, ""], filtering: bool
    ) -> Float[Array, "flat time"]:
        time = self.time
        times = jnp.arange(time, dtype=jnp.int32)
        # The symbols of a segment are exchangeable: predict them backwards, from its end.
        until_end = counts[:, :, end][:, :, None]
        since = self._of_symbol(until_end) - self._of_symbol(counts[:, :, 1:])
        pseudo = jnp.asarray(self.segment.pseudo_counts)
        behind = jnp.maximum(end - 1 - times, 0) + pseudo.sum()
        inside = times < end
        chances = jnp.where(inside, (since + pseudo[self.rows]) / behind, 1.0)
        gains = jnp.where(inside, jnp.log(chances) - self.evidence, 0.0)
        length = jnp.maximum(end - times, 1)
        lasts = log_length(self.prior, times, length, (end < time) & (not filtering))
        return jnp.where(inside, lasts + sum_after(gains) + gains, -jnp.inf)

    def _of_symbol(self, counts: Float[Array, "alphabet flat #time"]) -> Float[Array, "flat time"]:
        """The count of the symbol at each time."""
        counts = jnp.broadcast_to(counts, (len(counts), *self.rows.shape))
        return jnp.take_along_axis(counts, self.rows[None], axis=0)[0]


def log_length(
    prior: Prior, starts: Int[Array, "..."], length: Int[Array, "..."], ends: Bool[Array, "..."]
) -> Float[Array, "..."]:
    """ln P(L = length | start) of segments that end, ln P(L >= length | start) of the last."""
    return jnp.where(ends, prior.log_pmf(starts, length), prior.log_survival(starts, length - 1))


class FamilyLastStart(LastStart):
    """The distribution of the start of a segment of any family, block by block."""

    time: int = eqx.field(static=True)
    log_start: Float[Array, "flat width"]
    prior: Prior
    segment: Segment
    blocks: Blocks
    log_density: Float[Array, "blocks block flat"]
    carries: BlockCarry
    """Of the last rows of starts before the end of each block, or of all."""

    @property
    def rows(self) -> int:
        """The number of rows of starts whose segments may reach a block."""
        return self.carries.gains.shape[2]

    def narrowed(self) -> "FamilyLastStart":
        """Without starts that are negligible, the same number for each block."""
        if self.rows < _MIN_ROWS:
            return self
        rows = -(-int(_rows_in_use(self)) // 16) * 16  # few numbers, as each is compiled
        return _last_rows(self, rows) if rows < self.rows else self

    def near(self, end: Int[Array, ""], by_start: Array) -> Array:
        first, count = self._near_starts(end)
        return lax.dynamic_slice_in_dim(by_start, first, count, axis=-1)

    def put_near(self, end: Int[Array, ""], by_start: Array, near: Array) -> Array:
        """An array of all starts with another `near` part."""
        return lax.dynamic_update_slice_in_dim(by_start, near, self._near_starts(end)[0], axis=-1)

    def no_levels(self) -> "Levels":
        flat, width = self.log_start.shape
        shapes = jax.eval_shape(self.segment.level_posterior, prior_statistics(self.segment))[:2]
        nothing = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape, flat, width)), shapes)
        return Levels(jnp.zeros((flat, width)), *nothing)

    def add_levels(
        self, carry: "Levels", now: SegmentsEnding, segments: Float[Array, "flat width"]
    ) -> tuple["Levels", Any]:
        """The carry is, for each s, the mixture of the levels of all segments that end after t.

        The output is the mean and the variance of the level at t, given x.
        """
        assert now.before is not None
        features, (mean, covariance) = now.before.map(self.segment, self._features_and_level)
        near = functools.partial(self.near, now.end)
        levels = add_level(jax.tree.map(near, carry), near(segments), mean, covariance)
        starts = near(jnp.arange(segments.shape[1])[None])
        weights = jnp.where(starts < now.end, levels.weight, 0.0)
        weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)
        at = _sum_products(features, levels.mean)
        here = jnp.sum(weights * at, -1)
        variance = None
        if levels.covariance is not None:
            columns = [_sum_products(features, column) for column in levels.covariance]
            spread = _sum_products(features, columns) + (at - here[..., None]) ** 2
            variance = jnp.sum(weights * spread, -1)
        put = functools.partial(self.put_near, now.end)
        return jax.tree.map(put, carry, levels), (here, variance)

    def level_fields(
        self, carry: "Levels", outputs: Any, offset: Float[Array, "flat *event"]
    ) -> dict[str, Array]:
        del carry
        mean, variance = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[: self.time], -1, 0), outputs)
        return level_fields(self.segment, mean, variance, offset)

    def _features_and_level(self, statistics: Statistics, x: Array) -> Any:
        """The features of the level before, and the level after, an observation."""
        after = self.segment.level_posterior(observe(self.segment, statistics, x))
        features = self.segment.level_posterior(statistics).features
        return features, (after.mean, after.covariance)

    def _near_starts(self, end: Int[Array, ""]) -> tuple[Int[Array, ""], int]:
        """The first of them, and their number."""
        block = self.blocks.values.shape[1]
        return _first_row((end - 1) // block, self.rows) * block, self.rows * block

    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Carry, Any]:
        count, block = self.blocks.values.shape[:2]
        flat, width = self.log_start.shape

        def body(carry: Any, now: Any) -> tuple[Any, Any]:
            index, here, evidence, (statistics, gains) = now
            ends = index * block + 1 + jnp.arange(block, dtype=jnp.int32)
            first = _first_row(index, self.rows)
            row = index - first
            logs = pair_log_density(self.segment, _LAYOUT, statistics, here, row)
            scores = gains + jnp.cumsum(gains_of(_LAYOUT, logs, evidence, row), axis=0)
            starts = first * block + jnp.arange(self.rows * block, dtype=jnp.int32)
            length = ends[:, None] - starts
            inner_ends = (ends[:, None] != self.time) & (not filtering)
            lasts = log_length(self.prior, starts, jnp.maximum(length, 1), inner_ends)
            scores = scores.reshape(block, flat, -1) + lasts[:, None]
            scores = jnp.where((length > 0)[:, None], scores, -jnp.inf)
            scores = lax.dynamic_update_slice_in_dim(
                jnp.full((block, flat, width), -jnp.inf), scores, starts[0], axis=2
            )

            def inner(carry: Any, now: Any) -> tuple[Any, Any]:
                end, scores, times = now
                before = BeforeLast(statistics, row, *times)
                return step(carry, SegmentsEnding(end, scores, before))

            times = here.before, here.in_block, here.values
            return lax.scan(inner, carry, (ends, scores, times), reverse=reverse)

        indices = jnp.arange(count, dtype=jnp.int32)
        now = (indices, self.blocks, self.log_density, self.carries)
        carry, outputs = lax.scan(body, carry, now, reverse=reverse)
        return carry, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)


class BeforeLast(NamedTuple):
    """The observations since all starts, before one that is the last of a segment."""

    statistics: Statistics
    """From each start to the beginning of the block: (flat, rows, lanes)."""
    row: Int[Array, ""]
    """Of the starts that lie in the block."""
    within: Statistics
    """Of the block before the observation: (flat,)."""
    in_block: Statistics
    """Of the starts that lie in the block, before the observation: (lanes, flat)."""
    x: Float[Array, "flat *event"]

    def map(self, segment: Segment, function: Any) -> Any:
        """`function(statistics, x)` of all starts: (*result, flat, starts)."""

        def of_earlier(statistics: Statistics, within: Statistics, x: Array) -> Any:
            return function(segment.merge(statistics, within), x)

        earlier = _LAYOUT.by_hypothesis(of_earlier)(self.statistics, self.within, self.x)
        in_block = jax.vmap(jax.vmap(function), in_axes=(0, None))(self.in_block, self.x)

        def joined(earlier: Array, in_block: Array) -> Array:
            both = _LAYOUT.put_block(earlier, in_block, self.row)
            # Starts last, along which loops are long.
            return jnp.moveaxis(both.reshape(len(both), -1, *both.shape[3:]), (0, 1), (-2, -1))

        return jax.tree.map(joined, earlier, in_block)


def _first_row(index: Int[Array, ""], rows: int) -> Int[Array, ""]:
    """The first of that many rows of starts up to that of a block, or the first of all."""
    return jnp.maximum(index + 1 - rows, 0)


def _filter_blocks(
    prior: Prior, segment: Segment, sequences: Sequences
) -> tuple[Filtered, FamilyLastStart]:
    blocks = cut_into_blocks(segment, sequences, with_in_block=True)
    result = filter_blocks(prior, segment, sequences, blocks, _LAYOUT, for_posterior=True)
    filtered, carries = result.filtered, result.carries
    count, block = blocks.values.shape[:2]
    flat, time = filtered.log_density.shape
    padding = ((0, 0), (0, count * block - time))
    log_density = jnp.pad(filtered.log_density, padding).reshape(flat, count, block)
    log_density = jnp.moveaxis(log_density, 0, -1)
    log_start = jnp.pad(filtered.log_start, padding, constant_values=-jnp.inf)
    assert carries is not None
    return filtered, FamilyLastStart(time, log_start, prior, segment, blocks, log_density, carries)


@jax.jit
def _rows_in_use(last_start: FamilyLastStart) -> Int[Array, ""]:
    """How many rows there are from the first start that is not negligible to a block, at most."""
    count, block = last_start.blocks.values.shape[:2]
    starts = jnp.arange(count * block, dtype=jnp.int32)

    def needed(most: Int[Array, ""], now: tuple[Array, Array]) -> tuple[Array, None]:
        index, gains = now
        run = jnp.maximum(index * block - starts, 0)
        weights = last_start.log_start + gains.reshape(len(gains), -1)
        weights = weights + last_start.prior.log_survival(starts, run)
        heavy = ((weights > _NEGLIGIBLE) & (starts < index * block)).any(0)
        first = jnp.where(heavy.any(), heavy.argmax() // block, index)
        return jnp.maximum(most, index + 1 - first.astype(jnp.int32)), None

    indices = jnp.arange(count, dtype=jnp.int32)
    return lax.scan(needed, jnp.ones((), jnp.int32), (indices, last_start.carries.gains))[0]


@functools.partial(jax.jit, static_argnames="rows")
def _last_rows(last_start: FamilyLastStart, rows: int) -> FamilyLastStart:
    def last(index: Int[Array, ""], leaf: Array) -> Array:
        return lax.dynamic_slice_in_dim(leaf, _first_row(index, rows), rows, axis=1)

    carries = last_start.carries
    indices = jnp.arange(len(carries.gains), dtype=jnp.int32)
    narrow = jax.tree.map(lambda leaf: jax.vmap(last)(indices, leaf), carries)
    return eqx.tree_at(lambda each: each.carries, last_start, narrow)


class Levels(NamedTuple):
    """Mixtures of levels: their weights, means and covariances."""

    weight: Float[Array, "..."]
    mean: Float[Array, "features outputs ..."]
    covariance: Float[Array, "features features outputs ..."] | None


def add_level(levels: Levels, weight: Array, mean: Array, covariance: Array | None) -> Levels:
    """Mixtures with one more component each, merged without a difference of squares."""
    total = levels.weight + weight
    share = weight / jnp.where(total > 0, total, 1.0)
    gap = mean - levels.mean
    merged = None
    if covariance is not None and levels.covariance is not None:
        between = (1 - share) * gap[:, None] * gap
        merged = levels.covariance + share * (covariance - levels.covariance + between)
    return Levels(total, levels.mean + share * gap, merged)


def level_fields(
    segment: Segment,
    mean: Float[Array, "flat time outputs"],
    variance: Float[Array, "flat time outputs"] | None,
    offset: Float[Array, "flat *event"],
) -> dict[str, Array]:
    """The fields of a `Posterior` for the level."""
    if variance is None:
        return {"probs_smoothed": mean / mean.sum(-1, keepdims=True)}
    mean = mean + offset.reshape(len(offset), 1, -1)
    std = jnp.sqrt(jnp.maximum(variance, 0.0))
    if not segment.event_shape:
        mean, std = mean[..., 0], std[..., 0]
    return {"level_mean": mean, "level_std": std}


def _sum_products(features: Float[Array, "features flat starts"], each: Any) -> Array:
    """The sum over few features, which XLA would make a slow reduction of."""
    return functools.reduce(jnp.add, (one * two for one, two in zip(features, each, strict=True)))
