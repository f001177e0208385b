"""Real values around a straight line, with unknown noise."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter, location, positive
from switchpoint.segments._special import log_student_t
from switchpoint.segments.base import Level, Segment, updated_mean, weighted_mean
from switchpoint.segments.distributions import Normal, StudentT
from switchpoint.segments.normal_gamma import noise_variance, noisy_run_log_density


class TrendRun(NamedTuple):
    """A line fitted to a run; times count from the beginning of the run."""

    weight: Numbers
    """The number of observations."""
    time: Numbers
    """The mean of their times."""
    level: Numbers
    """Their mean: the line at that time."""
    spread: Numbers
    """The sum of squared deviations of their times."""
    slope: Numbers
    shape: Numbers
    """Half the number of observations."""
    rate: Numbers
    """Half the sum of squared deviations from the line."""
    duration: Numbers
    """The length of the run, missing observations included."""


class Trend(Segment):
    """Real values around a straight line, with unknown noise.

    Generative model, with a, b and the precision tau drawn once per segment, and t = 0, 1, ... from
    its start:

        tau ~ Gamma(shape, rate),
        a | tau ~ N(level, level_scale^2 / tau),    b | tau ~ N(0, slope_scale^2 / tau),
        x_t | a, b, tau ~ N(a + b t, 1 / tau)

    Statistic: the least-squares line of a run (number, mean time, mean value, spread of the times,
    slope, sum of squared deviations) and its duration. Two lines merge in closed form, without
    subtraction of large sums. Predictive, with the fitted line f(t) of weight w, mean time m and
    spread S, and the posterior Gamma(alpha, beta) of tau:

        x_t ~ StudentT(2 alpha, f(t), (beta / alpha) (1 + 1 / w + (t - m)^2 / S))

    which is Bayesian linear regression (Gelman et al., "Bayesian Data Analysis", chapter 14) on two
    features, in O(1) per observation and hypothesis. A missing value lets time pass.

    - `level_scale` > 0, `slope_scale` > 0: the spread of levels and of slopes between segments, in
      units of the noise;
    - `shape` > 0, `rate` > 0: the prior of the noise, whose variance is about rate / shape;
    - `level`: the expected level at the start, any real number.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), sp.Trend()))
    >>> state, _ = bayes.extend(bayes.init(), np.arange(6.0))
    >>> round(float(bayes.predict(state).mean), 1)
    5.8
    """

    passing: ClassVar[tuple[str, ...]] = ("duration",)
    level_scale: Parameter = positive(1.0)
    slope_scale: Parameter = positive(1.0)
    shape: Parameter = positive(1.0)
    rate: Parameter = positive(1.0)
    level: Parameter = location(0.0)

    def statistic(self, x: Numbers) -> TrendRun:
        one = namespace(x).ones_like(x)
        zero = 0.0 * one
        return TrendRun(one, zero, x, zero, zero, 0.5 * one, zero, one)

    def missing(self) -> TrendRun:
        return TrendRun(*(0.0,) * 7, duration=1.0)

    def merge(self, before: TrendRun, after: TrendRun) -> TrendRun:
        # The slope of each run has weight `spread`, and the two means give a third estimate.
        # The deviations from the common line are those within the runs and between these three.
        weight, level, _ = weighted_mean((before.weight, after.weight), (before.level, after.level))
        xp = namespace(weight)
        part = after.weight * (1 / xp.where(weight > 0, weight, 1.0))
        share = part * before.weight
        run = before.duration + after.time - before.time
        rise = after.level - before.level
        time = before.time + part * run
        spread = before.spread + after.spread + share * run * run
        moment = before.spread * before.slope + after.spread * after.slope + share * run * rise
        slope = moment / xp.where(spread > 0, spread, 1.0)
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
        weight, spread = 1 / self.level_scale**2, 1 / self.slope_scale**2
        return TrendRun(weight, 0.0, self.level, spread, 0.0, self.shape, self.rate, 0.0)

    def predictive(self, statistics: TrendRun) -> StudentT:
        ahead = statistics.duration - statistics.time
        factor = 1 + 1 / statistics.weight + ahead * ahead / statistics.spread
        return StudentT(
            2 * statistics.shape,
            statistics.level + statistics.slope * ahead,
            inverse_spread=0.5 / (statistics.rate * factor),
        )

    def observe(self, statistics: TrendRun, x: Numbers) -> tuple[Numbers, TrendRun]:
        weight, time, level, spread, slope, shape, rate, duration = statistics
        ahead = duration - time
        gap = x - level - slope * ahead
        square = ahead * ahead
        precision = 1 / (1 + 1 / weight + square / spread)
        added = 0.5 * gap * gap * precision
        logs = log_student_t(shape, precision / rate, added / rate)
        total = weight + 1
        share = weight / total
        spread = spread + share * square
        return logs, TrendRun(
            total,
            time + ahead / total,
            updated_mean(weight, level, x, (x - level) / total),
            spread,
            slope + share * ahead * gap / spread,
            shape + 0.5,
            rate + added,
            duration + 1,
        )

    def run_log_density(self, before: TrendRun, run: TrendRun) -> tuple[Numbers, Numbers]:
        after = self.merge(before._replace(rate=0.0 * before.rate), run)
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

    def level_posterior(self, statistics: TrendRun) -> Level:
        time, spread = statistics.time, statistics.spread
        mean = jnp.stack([statistics.level - statistics.slope * time, statistics.slope])
        joint = -time / spread
        rows = [[1 / statistics.weight + time * time / spread, joint], [joint, 1 / spread]]
        variance = noise_variance(statistics.shape, statistics.rate)
        covariance = variance * jnp.asarray(rows)[..., None]
        features = jnp.stack([jnp.ones_like(statistics.duration), statistics.duration])
        return Level(mean[:, None], covariance, features)
