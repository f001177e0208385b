"""The posterior over switching points for any family and any prior.

The passes over segment ends are those of `changepoint_posterior.py`. Here ends come in blocks of
times. What every start s has gathered up to a block is kept: its statistics, and the sum of the
small terms ln p(x_t | s) - ln p(x_t | x_<t). The block itself is computed when a pass reaches it.
Memory is O(n^2 / 32), time O(n^2).
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
    PIECE_WORK,
    Blocks,
    Held,
    Sequences,
    cut_into_blocks,
    filter_blocks,
    gains_of,
    initial_statistics,
    pair_log_density,
    pieces,
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
from switchpoint.segments.base import Statistics

_PIECE_WORK = 8 * PIECE_WORK  # a posterior takes long to compile, and is often computed once
_LAYOUT = Layout(many=False)


def family_posterior(
    prior: Prior, segment: Segment, sequences: Sequences, batch: tuple[int, ...]
) -> Posterior:
    """The posterior over switching points of a flat batch of that shape."""
    fields = _fields(prior, segment, sequences)
    return make_posterior(fields, batch, FamilyPartitions(prior, segment, sequences))


@jax.jit
def _fields(prior: Prior, segment: Segment, sequences: Sequences) -> dict[str, Array]:
    def fields(sequences: Sequences) -> dict[str, Array]:
        filtered, last_start = _FamilyLastStart.of(prior, segment, sequences)
        fresh = jax.vmap(jax.vmap(segment.log_density, in_axes=(None, 0)))(
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

    time = sequences.values.shape[1]
    return in_chunks(fields, sequences, max(32, time // 2))


class FamilyPartitions(StartPartitions):
    """The posterior distribution of partitions of observations of any family."""

    prior: Prior
    segment: Segment
    sequences: Sequences

    def last_start(self) -> LastStart:
        return _FamilyLastStart.of(self.prior, self.segment, self.sequences)[1]


class _FamilyLastStart(LastStart):
    """The distribution of the start of a segment, block by block."""

    time: int = eqx.field(static=True)
    log_start: Float[Array, "flat width"]
    prior: Prior
    segment: Segment
    blocks: Blocks
    log_density: Float[Array, "blocks block flat"]
    held: Held

    @classmethod
    def of(
        cls, prior: Prior, segment: Segment, sequences: Sequences
    ) -> tuple[Filtered, "_FamilyLastStart"]:
        blocks = cut_into_blocks(segment, sequences, with_own=True)
        filtered, held = filter_blocks(
            prior,
            segment,
            sequences,
            blocks,
            _LAYOUT,
            for_posterior=True,
            min_work=_PIECE_WORK,
        )
        count, block = blocks.values.shape[:2]
        flat, time = filtered.log_density.shape
        padding = ((0, 0), (0, count * block - time))
        log_density = jnp.pad(filtered.log_density, padding).reshape(flat, count, block)
        log_density = jnp.moveaxis(log_density, 0, -1)
        log_start = jnp.pad(filtered.log_start, padding, constant_values=-jnp.inf)
        assert held is not None
        return filtered, cls(time, log_start, prior, segment, blocks, log_density, held)

    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False
    ) -> tuple[Carry, Any]:
        return self.over_blocks(
            lambda carry, end, log_segment, _: step(carry, end, log_segment), carry, reverse=reverse
        )

    def over_blocks(
        self, step: Any, carry: Any, extra: Any = None, *, reverse: bool = False
    ) -> tuple[Any, Any]:
        """`over_ends` with steps that also get `extra(statistics, block, index)` of their time."""
        count, block = self.blocks.values.shape[:2]
        starts = jnp.arange(self.log_start.shape[1], dtype=jnp.int32)

        def body(carry: Any, now: Any) -> tuple[Any, Any]:
            index, here, evidence, (statistics, gains) = now
            ends = index * block + 1 + jnp.arange(block, dtype=jnp.int32)
            logs = pair_log_density(self.segment, _LAYOUT, statistics, here, index)
            small = gains_of(_LAYOUT, logs, evidence, index)
            scores = gains + jnp.cumsum(small, axis=0)
            scores = scores.reshape(*scores.shape[:2], -1)
            own = starts[: scores.shape[-1]]
            length = ends[:, None] - own
            lasts = log_length(self.prior, own, jnp.maximum(length, 1), ends[:, None] != self.time)
            scores = jnp.where((length > 0)[:, None], scores + lasts[:, None], -jnp.inf)
            scores = jnp.pad(
                scores, ((0, 0), (0, 0), (0, len(starts) - len(own))), constant_values=-jnp.inf
            )
            more = None if extra is None else extra(statistics, here, index)
            return lax.scan(
                lambda carry, now: step(carry, *now), carry, (ends, scores, more), reverse=reverse
            )

        ranges = pieces(count, block, len(self.log_start) * self.time**2, _PIECE_WORK)
        outputs = []
        for first, last in reversed(ranges) if reverse else ranges:
            indices = jnp.arange(first, last, dtype=jnp.int32)
            held = jax.tree.map(lambda leaf, b=last: leaf[:, :, :b], self.held)
            parts = (self.blocks, self.log_density, held)
            here = jax.tree.map(lambda leaf, a=first, b=last: leaf[a:b], parts)
            carry, output = lax.scan(body, carry, (indices, *here), reverse=reverse)
            outputs.append(output)

        def joined(*leaves: Array) -> Array:
            whole = jnp.concatenate(leaves[::-1] if reverse else leaves)
            return whole.reshape(-1, *whole.shape[2:])

        return carry, jax.tree.map(joined, *outputs)


class Levels(NamedTuple):
    """Mixtures of levels: their weights, means and covariances."""

    weight: Float[Array, "..."]
    mean: Float[Array, "... features outputs"]
    covariance: Float[Array, "... features features outputs"] | None


def level_of(segment: Segment, statistics: Statistics) -> tuple[Array, Array | None]:
    """The mean and the covariance of the level; probabilities have no covariance."""
    covariance = None if segment.finite else segment.level_covariance(statistics)
    return segment.level_mean(statistics), covariance


def add_level(levels: Levels, weight: Array, mean: Array, covariance: Array | None) -> Levels:
    """Mixtures with one more component each, merged without a difference of squares."""
    total = levels.weight + weight
    share = (weight / jnp.where(total > 0, total, 1.0))[..., None, None]
    gap = mean - levels.mean
    merged = None
    if covariance is not None and levels.covariance is not None:
        between = gap[..., :, None, :] * gap[..., None, :, :]
        more = share[..., None]
        merged = levels.covariance + more * (covariance - levels.covariance + (1 - more) * between)
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
    if not segment.event:
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
    of_levels = functools.partial(level_of, segment)

    def extra(statistics: Statistics, block: Blocks, index: Int[Array, ""]) -> Any:
        """The features before, and the levels after, each time of the block, for each start."""

        def of_pair(statistics: Statistics, before: Statistics, x: Array) -> Any:
            first = segment.merge(statistics, before)
            return segment.level_features(first), of_levels(segment.observe(first, x))

        def of_own(own: Statistics, x: Array) -> Any:
            return segment.level_features(own), of_levels(segment.observe(own, x))

        pairs = _LAYOUT.by_pair(of_pair)(statistics, block.before, block.values)
        own = jax.vmap(jax.vmap(jax.vmap(of_own)), in_axes=(1, None), out_axes=1)(
            block.own, block.values
        )
        whole = jax.tree.map(lambda p, o: _LAYOUT.put_block(p, o, index, leading=1), pairs, own)
        rows = last_start.held.gains.shape[2]

        def flattened(leaf: Array) -> Array:
            padded = _LAYOUT.pad_rows(leaf, rows, leading=1)
            return padded.reshape(*leaf.shape[:2], width, *leaf.shape[4:])

        return jax.tree.map(flattened, whole)

    def step(
        carry: tuple[Array, Levels, MostProbable],
        end: Int[Array, ""],
        log_segment: Array,
        more: Any,
    ) -> tuple[tuple[Array, Levels, MostProbable], Any]:
        boundary, levels, best = carry  # the first is P(a segment starts at t | x)
        features, (mean, covariance) = more
        segments = boundary[:, end][:, None] * last_start.probs(log_segment)
        levels = add_level(levels, segments, mean, covariance)
        begun = jnp.arange(width) < end
        weights = jnp.where(begun, levels.weight, 0.0)
        weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)
        at = jnp.einsum("fsd,fsdo->fso", features, levels.mean)
        here = jnp.einsum("fs,fso->fo", weights, at, precision=lax.Precision.HIGHEST)
        variance = None
        if levels.covariance is not None:
            spread = jnp.einsum("fsd,fse,fsdeo->fso", features, features, levels.covariance)
            spread = spread + (at - here[:, None]) ** 2
            variance = jnp.einsum("fs,fso->fo", weights, spread)
        boundary = boundary.at[:, :width].add(segments)
        return (boundary, levels, best.after(end, log_segment)), (here, variance)

    shapes = jax.eval_shape(of_levels, segment.initial())
    nothing = jax.tree.map(lambda leaf: jnp.zeros((flat, width, *leaf.shape)), shapes)
    boundary = jnp.zeros((flat, width + 1)).at[:, time].set(1)
    mixtures = Levels(jnp.zeros((flat, width)), *nothing)
    carry = boundary, mixtures, MostProbable.before(last_start)
    (boundary, _, best), levels = last_start.over_blocks(step, carry, extra, reverse=True)
    mean, variance = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:time], 0, 1), levels)
    smoothed = boundary[:, :time].at[:, 0].set(0)
    return smoothed, level_fields(segment, mean, variance, sequences.offset), best
