"""Real values around a straight line, with unknown noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint.segments.base import Parameter, Segment, positive, real, weighted_mean
from switchpoint.segments.distributions import Normal, StudentT
from switchpoint.segments.normal_gamma import noise_variance, noisy_run_log_density


class TrendRun(NamedTuple):
    """A line fitted to a run; times count from the beginning of the run."""

    weight: Float[Array, "..."]
    """The number of observations."""
    time: Float[Array, "..."]
    """The mean of their times."""
    level: Float[Array, "..."]
    """Their mean: the line at that time."""
    spread: Float[Array, "..."]
    """The sum of squared deviations of their times."""
    slope: Float[Array, "..."]
    shape: Float[Array, "..."]
    """Half the number of observations."""
    rate: Float[Array, "..."]
    """Half the sum of squared deviations from the line."""
    duration: Float[Array, "..."]
    """The length of the run, missing observations included."""


class Trend(Segment):
    """Normal values around a line: y = a + b t + noise, with t = 0, 1, ... in the segment.

    precision ~ Gamma(shape, rate) of the noise; a ~ N(level, level_scale^2 / precision) and
    b ~ N(0, slope_scale^2 / precision), so these scales are in units of the noise.
    """

    level_scale: Parameter
    slope_scale: Parameter
    shape: Parameter
    rate: Parameter
    level: Parameter
    real_fields = ("level",)

    def __init__(
        self,
        level_scale: ArrayLike = 1.0,
        slope_scale: ArrayLike = 1.0,
        shape: ArrayLike = 1.0,
        rate: ArrayLike = 1.0,
        level: ArrayLike = 0.0,
    ) -> None:
        self.level_scale = positive("level_scale", level_scale)
        self.slope_scale = positive("slope_scale", slope_scale)
        self.shape = positive("shape", shape)
        self.rate = positive("rate", rate)
        self.level = real("level", level)

    def statistic(self, x: Float[Array, ""]) -> TrendRun:
        one, zero = jnp.ones_like(x), jnp.zeros_like(x)
        return TrendRun(one, zero, x, zero, zero, 0.5 * one, zero, one)

    def empty(self) -> TrendRun:
        return TrendRun(*(jnp.zeros(()),) * 8)

    def missing(self) -> TrendRun:
        return self.empty()._replace(duration=jnp.ones(()))

    def merge(self, before: TrendRun, after: TrendRun) -> TrendRun:
        # Each run knows its slope with weight `spread`, and the two means give a third estimate.
        # The deviations from the common line are theirs and those between these three.
        weights = before.weight, after.weight
        later = before.duration + after.time
        weight, level, _ = weighted_mean(weights, (before.level, after.level))
        _, time, between = weighted_mean(weights, (before.time, later))
        share = after.weight / jnp.where(weight > 0, weight, 1.0) * before.weight
        run, rise = later - before.time, after.level - before.level
        spread = before.spread + after.spread + between
        moment = before.spread * before.slope + after.spread * after.slope + share * run * rise
        slope = moment / jnp.where(spread > 0, spread, 1.0)
        deviation = (
            before.spread * (slope - before.slope) ** 2
            + after.spread * (slope - after.slope) ** 2
            + share * (rise - slope * run) ** 2
        )
        return TrendRun(
            weight,
            time,
            level,
            spread,
            slope,
            before.shape + after.shape,
            before.rate + after.rate + 0.5 * deviation,
            before.duration + after.duration,
        )

    def initial(self) -> TrendRun:
        nothing, shape, rate, level = (
            jnp.asarray(each, float) for each in (0.0, self.shape, self.rate, self.level)
        )
        weight, spread = (
            1 / jnp.asarray(scale, float) ** 2 for scale in (self.level_scale, self.slope_scale)
        )
        return TrendRun(weight, nothing, level, spread, nothing, shape, rate, nothing)

    def predictive(self, statistics: TrendRun) -> StudentT:
        ahead = statistics.duration - statistics.time
        factor = 1 + 1 / statistics.weight + ahead * ahead / statistics.spread
        return StudentT(
            2 * statistics.shape,
            statistics.level + statistics.slope * ahead,
            inverse_spread=0.5 / (statistics.rate * factor),
        )

    def run_log_density(
        self, before: TrendRun, run: TrendRun
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        after = self.merge(before._replace(rate=jnp.zeros_like(before.rate)), run)
        growth = (after.weight * (1 / before.weight)) * (after.spread * (1 / before.spread))
        return noisy_run_log_density(before, run, after.rate, growth)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """The level at the start, the slope, and the variance of the noise of each segment."""
        key_precision, key_level, key_slope = jax.random.split(key, 3)
        variance = self.rate / jax.random.gamma(key_precision, self.shape, shape)
        level = self.level_scale * jnp.sqrt(variance) * jax.random.normal(key_level, shape)
        slope = self.slope_scale * jnp.sqrt(variance) * jax.random.normal(key_slope, shape)
        return self.level + level, slope, variance

    def emission(self, parameters: tuple[Array, Array, Array], statistics: TrendRun) -> Normal:
        level, slope, variance = parameters
        return Normal(level + slope * statistics.duration, variance)

    def level_mean(self, statistics: TrendRun) -> Float[Array, "2 1"]:
        at_start = statistics.level - statistics.slope * statistics.time
        return jnp.stack([at_start, statistics.slope])[:, None]

    def level_covariance(self, statistics: TrendRun) -> Float[Array, "2 2 1"]:
        time, spread = statistics.time, statistics.spread
        joint = -time / spread
        rows = [[1 / statistics.weight + time * time / spread, joint], [joint, 1 / spread]]
        return noise_variance(statistics) * jnp.asarray(rows)[..., None]

    def level_features(self, statistics: TrendRun) -> Float[Array, " 2"]:
        return jnp.stack([jnp.ones_like(statistics.duration), statistics.duration])

    @property
    def located(self) -> Bool[np.ndarray, ""]:
        return np.array(True)

    def translate(self, statistics: TrendRun, by: Float[Array, ""]) -> TrendRun:
        return statistics._replace(level=statistics.level - by)
