"""The posterior over switching points for any family and any prior.

The passes over segment ends are those of `changepoint_posterior.py`. Here ends come in blocks of
times. What every start s has gathered up to a block is kept: its statistics, and the sum of the
small terms ln p(x_t | s) - ln p(x_t | x_<t). The block itself is computed when a pass reaches it.
Memory is O(n^2 / 32), time O(n^2). For a single sequence, only those starts are kept whose segment
may still be the current one: usually those since the last few switches.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint._batching import in_chunks
from switchpoint.exact.base import Posterior, make_posterior
from switchpoint.exact.block_weights import Filtered
from switchpoint.exact.blocks import (
    Blocks,
    Held,
    Sequences,
    cut_into_blocks,
    filter_blocks,
    gains_of,
    initial_statistics,
    pair_log_density,
)
from switchpoint.exact.changepoint_posterior import (
    Carry,
    LastStart,
    MostProbable,
    StartPartitions,
    Step,
    log_length,
)
from switchpoint.exact.layout import Layout
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics, log_density, observe, prior_statistics

_NEGLIGIBLE = -80.0  # the logarithm of a probability
_MIN_ROWS = 64  # that are worth being narrowed
_LAYOUT = Layout(many=False)


def family_posterior(
    prior: Prior, segment: Segment, sequences: Sequences, batch: tuple[int, ...]
) -> Posterior:
    """The posterior over switching points of a flat batch of that shape."""
    leaves = jax.tree.leaves((prior, segment, sequences))
    if len(sequences.values) > 1 or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        fields = _fields_in_chunks(prior, segment, sequences)
        return make_posterior(fields, batch, FamilyPartitions(prior, segment, sequences))
    filtered, last_start = _filter(prior, segment, sequences)
    last_start = last_start.narrowed()
    fields = _fields(filtered, last_start, sequences)
    return make_posterior(fields, batch, FamilyPartitions(prior, segment, sequences, last_start))


@jax.jit
def _fields_in_chunks(prior: Prior, segment: Segment, sequences: Sequences) -> dict[str, Array]:
    time = sequences.values.shape[1]
    return in_chunks(
        lambda chunk: _fields(*_filter(prior, segment, chunk), chunk), sequences, max(32, time // 2)
    )


@jax.jit
def _fields(
    filtered: Filtered, last_start: "_FamilyLastStart", sequences: Sequences
) -> dict[str, Array]:
    segment = last_start.segment
    fresh = jax.vmap(jax.vmap(functools.partial(log_density, segment), in_axes=(None, 0)))(
        initial_statistics(segment, sequences.offset), sequences.values
    )
    started = jnp.exp(filtered.log_start + fresh - filtered.log_density)
    smoothed, levels, best = _smoothed(last_start, sequences)
    runs: Any = filtered.run_length_mean
    return {
        "log_marginal": filtered.log_density.sum(-1),
        "switch_filtered": started.at[:, 0].set(0),
        "switch_smoothed": smoothed,
        "run_length_mean": runs,
        "map_switches": best.switches()[:, : last_start.time],
        "map_log_prob": best.log_prob[:, 0],
        **levels,
    }


class FamilyPartitions(StartPartitions):
    """The posterior distribution of partitions of observations of any family."""

    prior: Prior
    segment: Segment
    sequences: Sequences
    known: "_FamilyLastStart | None" = None
    """What `last_start` would compute."""

    def last_start(self) -> "_FamilyLastStart":
        if self.known is not None:
            return self.known
        return _filter(self.prior, self.segment, self.sequences)[1]


class _FamilyLastStart(LastStart):
    """The distribution of the start of a segment, block by block."""

    time: int = eqx.field(static=True)
    log_start: Float[Array, "flat width"]
    prior: Prior
    segment: Segment
    blocks: Blocks
    log_density: Float[Array, "blocks block flat"]
    held: Held
    """Of the last rows of starts before the end of each block, or of all."""

    @property
    def rows(self) -> int:
        """The number of rows of starts whose segments may reach a block."""
        return self.held.gains.shape[2]

    def narrowed(self) -> "_FamilyLastStart":
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

    def _near_starts(self, end: Int[Array, ""]) -> tuple[Int[Array, ""], int]:
        """The first of them, and their number."""
        block = self.blocks.values.shape[1]
        return _first_row((end - 1) // block, self.rows) * block, self.rows * block

    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Carry, Any]:
        return self.over_blocks(
            lambda carry, end, log_segment, _: step(carry, end, log_segment),
            carry,
            reverse=reverse,
            filtering=filtering,
        )

    def over_blocks(
        self, step: Any, carry: Any, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Any, Any]:
        """`over_ends` with steps that also get what is known `_Before` the last observation."""
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
                return step(carry, end, scores, _Before(statistics, row, *times))

            times = here.before, here.own, here.values
            return lax.scan(inner, carry, (ends, scores, times), reverse=reverse)

        indices = jnp.arange(count, dtype=jnp.int32)
        now = (indices, self.blocks, self.log_density, self.held)
        carry, outputs = lax.scan(body, carry, now, reverse=reverse)
        return carry, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)


class _Before(NamedTuple):
    """What is known of all starts before an observation, which is the last of a segment."""

    statistics: Statistics
    """From each start to the beginning of the block: (flat, rows, lanes)."""
    row: Int[Array, ""]
    """Of the starts that lie in the block."""
    within: Statistics
    """Of the block before the observation: (flat,)."""
    own: Statistics
    """Of the starts that lie in the block, before the observation: (lanes, flat)."""
    x: Float[Array, "flat *event"]

    def map(self, segment: Segment, function: Any) -> Any:
        """`function(statistics, x)` of all starts: (*result, flat, starts)."""

        def of_earlier(statistics: Statistics, within: Statistics, x: Array) -> Any:
            return function(segment.merge(statistics, within), x)

        earlier = _LAYOUT.by_hypothesis(of_earlier)(self.statistics, self.within, self.x)
        own = jax.vmap(jax.vmap(function), in_axes=(0, None))(self.own, self.x)

        def joined(earlier: Array, own: Array) -> Array:
            both = _LAYOUT.put_block(earlier, own, self.row)
            # Starts last, along which loops are long.
            return jnp.moveaxis(both.reshape(len(both), -1, *both.shape[3:]), (0, 1), (-2, -1))

        return jax.tree.map(joined, earlier, own)


def _first_row(index: Int[Array, ""], rows: int) -> Int[Array, ""]:
    """The first of so many rows of starts up to that of a block, or the first of all."""
    return jnp.maximum(index + 1 - rows, 0)


@jax.jit
def _filter(
    prior: Prior, segment: Segment, sequences: Sequences
) -> tuple[Filtered, _FamilyLastStart]:
    blocks = cut_into_blocks(segment, sequences, with_own=True)
    filtered, held = filter_blocks(prior, segment, sequences, blocks, _LAYOUT, for_posterior=True)
    count, block = blocks.values.shape[:2]
    flat, time = filtered.log_density.shape
    padding = ((0, 0), (0, count * block - time))
    log_density = jnp.pad(filtered.log_density, padding).reshape(flat, count, block)
    log_density = jnp.moveaxis(log_density, 0, -1)
    log_start = jnp.pad(filtered.log_start, padding, constant_values=-jnp.inf)
    assert held is not None
    return filtered, _FamilyLastStart(time, log_start, prior, segment, blocks, log_density, held)


@jax.jit
def _rows_in_use(last_start: _FamilyLastStart) -> Int[Array, ""]:
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
    return lax.scan(needed, jnp.ones((), jnp.int32), (indices, last_start.held.gains))[0]


@functools.partial(jax.jit, static_argnames="rows")
def _last_rows(last_start: _FamilyLastStart, rows: int) -> _FamilyLastStart:
    def last(index: Int[Array, ""], leaf: Array) -> Array:
        return lax.dynamic_slice_in_dim(leaf, _first_row(index, rows), rows, axis=1)

    held = last_start.held
    indices = jnp.arange(len(held.gains), dtype=jnp.int32)
    narrow = jax.tree.map(lambda leaf: jax.vmap(last)(indices, leaf), held)
    return eqx.tree_at(lambda each: each.held, last_start, narrow)


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


def _smoothed(
    last_start: _FamilyLastStart, sequences: Sequences
) -> tuple[Float[Array, "flat time"], dict[str, Array], MostProbable]:
    """P(a segment starts at t | x), the level at t given x, and the most probable partition.

    Backwards in time, `levels` holds for each start s the mixture of the levels of all segments
    from s that end after t.
    """
    segment = last_start.segment
    flat, width = last_start.log_start.shape
    time = last_start.time
    starts = jnp.arange(width)[None]

    def features_and_level(statistics: Statistics, x: Array) -> Any:
        """The features of the level before, and the level after, an observation."""
        after = segment.level_posterior(observe(segment, statistics, x))
        return segment.level_posterior(statistics).features, (after.mean, after.covariance)

    def step(
        carry: tuple[Array, Levels, MostProbable],
        end: Int[Array, ""],
        log_segment: Array,
        before: _Before,
    ) -> tuple[tuple[Array, Levels, MostProbable], Any]:
        boundary, levels, best = carry  # the first is P(a segment starts at t | x)
        features, (mean, covariance) = before.map(segment, features_and_level)
        near = functools.partial(last_start.near, end)
        segments = boundary[:, end][:, None] * last_start.probs(log_segment)
        own = add_level(jax.tree.map(near, levels), near(segments), mean, covariance)
        weights = jnp.where(near(starts) < end, own.weight, 0.0)
        weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)
        at = _sum_products(features, own.mean)
        here = jnp.sum(weights * at, -1)
        variance = None
        if own.covariance is not None:
            spread = _sum_products(features, [_sum_products(features, r) for r in own.covariance])
            spread = spread + (at - here[..., None]) ** 2
            variance = jnp.sum(weights * spread, -1)
        levels = jax.tree.map(functools.partial(last_start.put_near, end), levels, own)
        boundary = boundary.at[:, :width].add(segments)
        return (boundary, levels, best.after(end, log_segment)), (here, variance)

    shapes = jax.eval_shape(segment.level_posterior, prior_statistics(segment))[:2]
    nothing = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape, flat, width)), shapes)
    boundary = jnp.zeros((flat, width + 1)).at[:, time].set(1)
    mixtures = Levels(jnp.zeros((flat, width)), *nothing)
    carry = boundary, mixtures, MostProbable.before(last_start)
    (boundary, _, best), levels = last_start.over_blocks(step, carry, reverse=True)
    mean, variance = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:time], -1, 0), levels)
    smoothed = boundary[:, :time].at[:, 0].set(0)
    return smoothed, level_fields(segment, mean, variance, sequences.offset), best


def _sum_products(features: Float[Array, "features flat starts"], each: Any) -> Array:
    """The sum over few features, which XLA would make a slow reduction of."""
    return functools.reduce(jnp.add, (one * two for one, two in zip(features, each, strict=True)))
