"""Real values with an unknown mean and unknown noise."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint._namespace import HALF, ONE, Numbers, namespace
from switchpoint._parameters import Parameter, location, positive
from switchpoint.segments._special import (
    gamma_half_step,
    gamma_ratio,
    log,
    log1p,
    log_student_t,
)
from switchpoint.segments.base import Level, Segment, scalar_level, updated_mean, weighted_mean
from switchpoint.segments.distributions import Normal, StudentT

_LOG_BASE = np.array(-0.5 * math.log(2 * math.pi))


class NormalGammaRun(NamedTuple):
    """The parameters of a Normal-Gamma distribution, as statistics of a run."""

    weight: Numbers
    mean: Numbers
    shape: Numbers
    """Half the number of observations."""
    rate: Numbers
    """Half the sum of squared deviations from the mean."""


class NormalGamma(Segment):
    """Real values with an unknown mean and unknown noise.

    Generative model, with mu and the precision tau drawn once per segment:

        tau ~ Gamma(shape, rate),    mu | tau ~ N(mean, 1 / (strength tau)),
        x_t | mu, tau ~ N(mu, 1 / tau)

    Statistic: the number of observations, their mean, and half the sum of squared deviations from
    it, merged by the pairwise formula of Chan, Golub and LeVeque (1983). With the prior, after n
    observations, they are the parameters of the posterior w = strength + n, m, a = shape + n / 2
    and b. Predictive:

        x_{n+1} ~ StudentT(df = 2 a, loc = m, squared_scale = b (w + 1) / (a w))

    Evidence in O(1) per observation and hypothesis. The evidence of a run has a closed form, with
    one ratio of Gamma functions. See Murphy (2007), "Conjugate Bayesian analysis of the Gaussian
    distribution", section 3.

    - `mean`: the expected level, any real number;
    - `strength` > 0: how many observations the prior of the mean is worth; small for levels that
      differ by many standard deviations of the noise between segments;
    - `shape` > 0, `rate` > 0: the prior of the noise, whose variance is about rate / shape.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.PTW(3), sp.NormalGamma()))
    >>> print(np.exp(bayes.log_density([0.0, 0.1, 4.0])).round(3))
    [0.25  0.351 0.008]
    """

    mean: Parameter = location(0.0)
    strength: Parameter = positive(1.0)
    shape: Parameter = positive(1.0)
    rate: Parameter = positive(1.0)

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
        logs = log_student_t(shape, weight / (total * rate), added / rate)
        mean = updated_mean(weight, mean, x, step)
        return logs, NormalGammaRun(total, mean, shape + 0.5, rate + added)

    def _host_cache(self, statistics: NormalGammaRun) -> Numbers:
        return np.exp(2 * gamma_half_step(statistics.shape))

    def _host_observe(self, table: list[Numbers], x: Numbers) -> tuple[Numbers, list[Numbers]]:
        # With r(a) = Gamma(a + 1/2) / Gamma(a), r(a) r(a + 1/2) = a: rounding does not grow.
        weight, mean, shape, rate, squared_ratio = table
        total, gap = weight + ONE, x - mean
        step, shape_after = gap / total, shape + HALF
        # Not by x less the new mean, in which a small weight would be lost.
        added = HALF * (weight * (gap * step))
        scale = np.log(squared_ratio * weight / (total * rate))
        logs = HALF * scale - shape_after * np.log1p(added / rate) + _LOG_BASE
        return logs, [total, mean + step, shape_after, rate + added, shape * shape / squared_ratio]

    def run_log_density(
        self, before: NormalGammaRun, run: NormalGammaRun
    ) -> tuple[Numbers, Numbers]:
        added = self.merge(before._replace(rate=0.0 * before.rate), run).rate
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
        weight, mean, shape, rate = statistics
        return scalar_level(mean, noise_variance(shape, rate) / weight)


def noise_variance(shape: Numbers, rate: Numbers) -> Float[Array, "..."]:
    """E[1 / precision], for fewer than 3 degrees of freedom 3 rate / shape.

    The expectation is infinite with 2 degrees of freedom; a band must not be.
    """
    return rate / jnp.maximum(shape - 1, shape / 3)


def noisy_run_log_density(
    before: Any, run: Any, added: Numbers, growth: Numbers
) -> tuple[Numbers, Numbers]:
    """ln p(a run of normal values of unknown noise | what came before), in the two terms.

    `added` is the increase of the rate, not computed as a difference, and `growth` the factor by
    which the determinant of the precision of the other parameters grows.
    """
    shape, half = before.shape, run.shape
    xp = namespace(shape, half, added, growth)
    factor, rest = gamma_ratio(shape, half)
    of_counts = rest - half * math.log(2 * math.pi) - log(factor * xp.sqrt(growth))
    inverse = 1 / before.rate
    of_values = half * xp.log(shape * inverse) - (shape + half) * log1p(added * inverse)
    return of_counts, of_values
