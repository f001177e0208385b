"""Counts with an unknown rate."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint._namespace import HALF, ONE, Numbers, gammaln, namespace
from switchpoint._parameters import Parameter, positive
from switchpoint.segments.base import Level, Segment, scalar_level
from switchpoint.segments.distributions import (
    GammaPoisson,
    PoissonCounts,
    gamma_poisson_log_density,
)

_LARGE_COUNT, _LARGE_SUM = 1e4, 1e5  # whose log-gammas have lost more than 10^-11 and 10^-10
_TWELFTH = np.array(1 / 12)
_SERIES_FROM = 1e4  # where one term of a series has all digits


class GammaRun(NamedTuple):
    """The parameters of a Gamma distribution, as additive statistics of a run."""

    shape: Numbers
    rate: Numbers


class GammaRate(Segment):
    """A family whose unknown rate is drawn from Gamma(shape, rate), once per segment."""

    shape: Parameter = positive(1.0)
    rate: Parameter = positive(1.0)

    def initial(self) -> GammaRun:
        return GammaRun(self.shape, self.rate)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return jax.random.gamma(key, self.shape, shape) / self.rate


class Poisson(GammaRate):
    """Counts 0, 1, 2, ... with an unknown rate.

    Generative model, with r drawn once per segment:

        r ~ Gamma(shape, rate),    x_t | r ~ Poisson(r)

    Statistic: the sum s of the counts and their number n, which add up. Predictive:

        x_{n+1} ~ GammaPoisson(shape + s, rate + n),    E[x_{n+1}] = (shape + s) / (rate + n)

    Evidence in O(1) per observation and hypothesis, as differences of deviances (Loader, 2000),
    which keep their digits for large counts. See Gelman et al., "Bayesian Data Analysis", 2.6.

    - `shape` > 0: the prior is worth a sum of `shape`;
    - `rate` > 0: in this many observations.

    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.Poisson(2.0, 1.0)))
    >>> float(bayes.predict(bayes.init()).mean)
    2.0
    """

    def statistic(self, x: Numbers) -> GammaRun:
        return GammaRun(x, namespace(x).ones_like(x))

    def predictive(self, statistics: GammaRun) -> GammaPoisson:
        return GammaPoisson(*statistics)

    def observe(self, statistics: GammaRun, x: Numbers) -> tuple[Numbers, GammaRun]:
        shape, rate = statistics
        return gamma_poisson_log_density(shape, rate, x), GammaRun(shape + x, rate + 1)

    def _host_cache(self, statistics: GammaRun) -> Numbers:
        return gammaln(statistics.shape)

    def _host_observe(self, table: list[Numbers], x: Numbers) -> tuple[Numbers, list[Numbers]]:
        shape, rate, log_gamma = table
        total, rate_after = shape + x, rate + ONE
        after = gammaln(total)
        if np.vdot(x, x) > _LARGE_COUNT**2:
            logs = gamma_poisson_log_density(shape, rate, x)
        else:
            of_rates = shape * np.log1p(ONE / rate) + x * np.log(rate_after)
            step = after - log_gamma
            if np.vdot(total, total) > _LARGE_SUM**2:
                step = np.where(shape < _SERIES_FROM, step, _stirling_step(shape, x, total))
            logs = step - of_rates - gammaln(x + ONE)
        return logs, [total, rate_after, after]

    def emission(self, parameters: Float[Array, ""], statistics: GammaRun) -> PoissonCounts:
        del statistics
        return PoissonCounts(parameters)

    def level_posterior(self, statistics: GammaRun) -> Level:
        mean = statistics.shape / statistics.rate
        return scalar_level(mean, mean / statistics.rate)


def _stirling_step(shape: Numbers, x: Numbers, total: Numbers) -> Numbers:
    """ln Gamma(shape + x) - ln Gamma(shape) for large shapes, by Stirling's series."""
    smooth = (total - HALF) * np.log1p(x / shape) - x + x * np.log(shape)
    return smooth + (ONE / total - ONE / shape) * _TWELFTH
