"""Mixtures of the levels of segments, as the posterior of the level at a time."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from switchpoint._prefix_sums import sum_after
from switchpoint.segments import Segment
from switchpoint.segments.base import Level, Statistics


class Levels(NamedTuple):
    """Mixtures of levels at several times: their weights, means and variances."""

    weight: Float[Array, " time"]
    mean: Float[Array, "outputs time"]
    variance: Float[Array, "outputs time"] | None
    """None for the probabilities of symbols."""


def add_levels(levels: Levels, more: Levels) -> Levels:
    """Mixtures of both, merged without a difference of squares."""
    total = levels.weight + more.weight
    share = more.weight / jnp.where(total > 0, total, 1.0)
    gap = more.mean - levels.mean
    variance = None
    if levels.variance is not None and more.variance is not None:
        between = (1 - share) * gap * gap
        variance = levels.variance + share * (more.variance - levels.variance + between)
    return Levels(total, levels.mean + share * gap, variance)


def levels_of(segment: Segment, statistics: Statistics) -> list[Level]:
    """The levels of a segment, one for each column with features of its own."""
    level = segment.level_posterior(statistics)
    return [level] if isinstance(level, Level) else list(level)


def levels_from(
    segment: Segment, statistics: Statistics, weights: Float[Array, " width"]
) -> Levels:
    """The levels at the times s..s+width-1 in the segments that start at s.

    Of these, the one with r observations has `weights[r - 1]`; `statistics` are those after
    r = 0..width observations. At time s + i those with r > i are mixed: a sum over later ends.
    """
    total = sum_after(weights) + weights
    share = 1 / jnp.where(total > 0, total, 1.0)
    likely = weights.argmax()

    def mixed(values: Float[Array, "width ..."]) -> Float[Array, "... width"]:
        """The means of what segments have over those that end later."""
        weighted = jnp.where(weights > 0, jnp.moveaxis(values, 0, -1) * weights, 0.0)
        return (sum_after(weighted) + weighted) * share

    def of_column(level: Level) -> Levels:
        # Features of the time before an observation, coefficients of the end after it.
        features, means = level.features[:-1].T, level.mean[1:]
        centre = means[likely]
        gaps = means - centre
        mean = mixed(gaps)
        at_time = jnp.einsum("fw,fow->ow", features, centre[..., None] + mean)
        if level.covariance is None:
            return Levels(total, at_time, None)
        spread = mixed(level.covariance[1:] + gaps[:, :, None] * gaps[:, None])
        spread = spread - mean[:, None] * mean
        variance = jnp.einsum("fw,gw,fgow->ow", features, features, spread)
        return Levels(total, at_time, jnp.maximum(variance, 0.0))

    each = jax.vmap(functools.partial(levels_of, segment))(statistics)
    return side_by_side([of_column(level) for level in each])


def side_by_side(columns: list[Levels]) -> Levels:
    """The levels of several columns, which have the same weights."""
    if any(column.variance is None for column in columns):
        return columns[0]
    mean, variance = (
        jnp.concatenate([getattr(column, name) for column in columns])
        for name in ("mean", "variance")
    )
    return Levels(columns[0].weight, mean, variance)


def level_fields(
    segment: Segment,
    mean: Float[Array, "flat outputs time"],
    variance: Float[Array, "flat outputs time"] | None,
    offset: Float[Array, "flat *event"],
) -> dict[str, Array]:
    """The fields of a `Posterior` for the level."""
    mean = jnp.moveaxis(mean, 1, -1)
    if variance is None:
        return {"probs_smoothed": mean / mean.sum(-1, keepdims=True)}
    mean = mean + offset.reshape(len(offset), 1, -1)
    std = jnp.sqrt(jnp.maximum(jnp.moveaxis(variance, 1, -1), 0.0))
    if not segment.event_shape:
        mean, std = mean[..., 0], std[..., 0]
    return {"level_mean": mean, "level_std": std}
