"""Real values with an unknown mean and unknown noise."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter
from switchpoint.segments._special import gamma_ratio, log, log1p, log_student_t
from switchpoint.segments.base import Level, Segment, positive, real, weighted_mean
from switchpoint.segments.distributions import Normal, StudentT


class NormalGammaRun(NamedTuple):
    """The parameters of a Normal-Gamma distribution, as statistics of a run."""

    weight: Numbers
    mean: Numbers
    shape: Numbers
    """Half the number of observations."""
    rate: Numbers
    """Half the sum of squared deviations from the mean."""


class NormalGamma(Segment):
    """Normal values with unknown mean and precision.

    precision ~ Gamma(shape, rate), and mean | precision ~ N(mean, 1 / (strength precision)).
    """

    location_field = "mean"

    mean: Parameter
    strength: Parameter
    shape: Parameter
    rate: Parameter

    def __init__(
        self,
        mean: ArrayLike = 0.0,
        strength: ArrayLike = 1.0,
        shape: ArrayLike = 1.0,
        rate: ArrayLike = 1.0,
    ) -> None:
        self.mean = real("mean", mean)
        self.strength = positive("strength", strength)
        self.shape = positive("shape", shape)
        self.rate = positive("rate", rate)

    def statistic(self, x: Numbers) -> NormalGammaRun:
        one = namespace(x).ones_like(x)
        return NormalGammaRun(one, x, 0.5 * one, 0.0 * one)

    def merge(self, before: NormalGammaRun, after: NormalGammaRun) -> NormalGammaRun:
        weight, mean, between = weighted_mean(
            (before.weight, after.weight), (before.mean, after.mean)
        )
        rate = before.rate + after.rate + 0.5 * between
        return NormalGammaRun(weight, mean, before.shape + after.shape, rate)

    def initial(self) -> NormalGammaRun:
        return NormalGammaRun(self.strength, self.mean, self.shape, self.rate)

    def predictive(self, statistics: NormalGammaRun) -> StudentT:
        weight, mean, shape, rate = statistics
        return StudentT(2 * shape, mean, inverse_spread=0.5 * weight / (rate * (weight + 1)))

    def observe(self, statistics: NormalGammaRun, x: Numbers) -> tuple[Numbers, NormalGammaRun]:
        weight, mean, shape, rate = statistics
        gap = x - mean
        total = weight + 1
        step = gap / total
        added = 0.5 * weight * gap * step
        logs = log_student_t(shape, weight / (total * rate), added / rate, start=self.shape)
        return logs, NormalGammaRun(total, mean + step, shape + 0.5, rate + added)

    def run_log_density(
        self, before: NormalGammaRun, run: NormalGammaRun
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        added = self.merge(before._replace(rate=jnp.zeros_like(before.rate)), run).rate
        return noisy_run_log_density(before, run, added, 1 + run.weight * (1 / before.weight))

    def sample(
        self, key: PRNGKeyArray, shape: tuple[int, ...]
    ) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        """The mean and the variance of each segment."""
        key_precision, key_mean = jax.random.split(key)
        variance = self.rate / jax.random.gamma(key_precision, self.shape, shape)
        noise = jax.random.normal(key_mean, shape)
        return self.mean + jnp.sqrt(variance / self.strength) * noise, variance

    def emission(
        self, parameters: tuple[Float[Array, ""], Float[Array, ""]], statistics: NormalGammaRun
    ) -> Normal:
        del statistics
        return Normal(*parameters)

    def level_posterior(self, statistics: NormalGammaRun) -> Level:
        variance = noise_variance(statistics) / statistics.weight
        return Level(statistics.mean.reshape(1, 1), variance.reshape(1, 1, 1))

    def translate(self, statistics: NormalGammaRun, by: Any) -> NormalGammaRun:
        return statistics._replace(mean=statistics.mean - by)


def noise_variance(statistics: Any) -> Float[Array, ""]:
    """E[1 / precision], for fewer than 3 degrees of freedom 3 rate / shape.

    The expectation is infinite with 2 degrees of freedom; a band must not be.
    """
    shape = statistics.shape
    return statistics.rate / jnp.maximum(shape - 1, shape / 3)


def noisy_run_log_density(
    before: Any, run: Any, added: Float[Array, ""], growth: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """ln p(a run of normal values of unknown noise | what came before), in the two terms.

    `added` is the increase of the rate, not computed as a difference, and `growth` the factor by
    which the determinant of the precision of the other parameters grows.
    """
    shape, half = before.shape, run.shape
    factor, rest = gamma_ratio(shape, half)
    of_counts = rest - half * math.log(2 * math.pi) - log(factor * jnp.sqrt(growth))
    inverse = 1 / before.rate
    of_values = half * jnp.log(shape * inverse) - (shape + half) * log1p(added * inverse)
    return of_counts, of_values
