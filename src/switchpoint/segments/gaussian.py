"""Real values with known noise and an unknown mean."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter, location, positive
from switchpoint.segments._special import log
from switchpoint.segments.base import Level, Segment, scalar_level, updated_mean, weighted_mean
from switchpoint.segments.distributions import Normal


class MeanRun(NamedTuple):
    """The observations of a run, and its prior's as many as they are worth."""

    weight: Numbers
    mean: Numbers
    squares: Numbers
    """The sum of squared deviations from the mean."""


class Gaussian(Segment):
    """Real values with known noise around an unknown mean.

    Generative model, with mu drawn once per segment:

        mu ~ N(mean, mean_scale^2),    x_t | mu ~ N(mu, scale^2)

    Statistic: the number n of observations, their mean, and the sum of squared deviations from it,
    for the evidence of a run, which has a closed form. The prior is worth
    k = (scale / mean_scale)^2 observations of value `mean`. Predictive, with w = k + n and m the
    mean of prior and observations together, weighted k to n:

        x_{n+1} ~ N(m, scale^2 (1 + 1 / w))

    Evidence in O(1) per observation and hypothesis. See Murphy (2007), "Conjugate Bayesian analysis
    of the Gaussian distribution", section 2.

    - `mean`: the expected level, any real number;
    - `mean_scale` > 0: the standard deviation of levels between segments;
    - `scale` > 0: the standard deviation of the noise.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.Gaussian(0.0, 2.0, 1.0)))
    >>> print(np.exp(bayes.log_density([0.0, 0.5, 5.0])).round(3))
    [0.178 0.267 0.002]
    """

    mean: Parameter = location(0.0)
    mean_scale: Parameter = positive(1.0)
    scale: Parameter = positive(1.0)

    def statistic(self, x: Numbers) -> MeanRun:
        one = namespace(x).ones_like(x)
        return MeanRun(one, x, 0.0 * one)

    def merge(self, before: MeanRun, after: MeanRun) -> MeanRun:
        weight, mean, between = weighted_mean(
            (before.weight, after.weight), (before.mean, after.mean)
        )
        return MeanRun(weight, mean, before.squares + after.squares + between)

    def initial(self) -> MeanRun:
        return MeanRun((self.scale / self.mean_scale) ** 2, self.mean, 0.0)

    def predictive(self, statistics: MeanRun) -> Normal:
        return Normal(statistics.mean, self.scale**2 * (1 + 1 / statistics.weight))

    def observe(self, statistics: MeanRun, x: Numbers) -> tuple[Numbers, MeanRun]:
        weight, mean, squares = statistics
        gap = x - mean
        total = weight + 1
        step = gap / total
        variance = self.scale**2
        log_noise = math.log(2 * math.pi) + 2 * log(self.scale)
        added = gap * step * weight
        logs = 0.5 * (log(weight / total) - log_noise - added / variance)
        return logs, MeanRun(total, updated_mean(weight, mean, x, step), squares + added)

    def run_log_density(self, before: MeanRun, run: MeanRun) -> tuple[Numbers, Numbers]:
        added = self.merge(before._replace(squares=0.0 * before.squares), run).squares
        log_noise = math.log(2 * math.pi) + 2 * log(self.scale)
        growth = 1 + run.weight * (1 / before.weight)
        return -0.5 * (run.weight * log_noise + log(growth)), -0.5 * added / self.scale**2

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return self.mean + self.mean_scale * jax.random.normal(key, shape)

    def emission(self, parameters: Float[Array, ""], statistics: MeanRun) -> Normal:
        del statistics
        return Normal(parameters, jnp.asarray(self.scale, float) ** 2)

    def level_posterior(self, statistics: MeanRun) -> Level:
        return scalar_level(statistics.mean, self.scale**2 / statistics.weight)
