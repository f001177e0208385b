"""Waiting times with an unknown rate."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from switchpoint._namespace import Numbers, namespace
from switchpoint.segments._special import gamma_ratio, log, log1p
from switchpoint.segments.base import Level, scalar_level
from switchpoint.segments.distributions import Lomax, WaitingTime
from switchpoint.segments.poisson import GammaRate, GammaRun


class Exponential(GammaRate):
    """Waiting times of at least 0 with an unknown rate.

    Generative model, with r drawn once per segment:

        r ~ Gamma(shape, rate),    x_t | r ~ Exponential(r)

    Statistic: the number n of waiting times and their sum s, which add up. Predictive:

        x_{n+1} ~ Lomax(shape + n, rate + s),    p(x) = (a / b) (1 + x / b)^(-(a + 1))

    with a = shape + n and b = rate + s. The evidence of a run has a closed form, with one ratio of
    Gamma functions. The level is 1 / r, with E[1 / r] = b / (a - 1). See Murphy (2022),
    "Probabilistic Machine Learning", 4.6.

    - `shape` > 0: the prior is worth this many waiting times;
    - `rate` > 0: which sum to this.

    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.Exponential(3.0, 4.0)))
    >>> float(bayes.predict(bayes.init()).mean)
    2.0
    """

    def statistic(self, x: Numbers) -> GammaRun:
        return GammaRun(namespace(x).ones_like(x), x)

    def predictive(self, statistics: GammaRun) -> Lomax:
        return Lomax(*statistics)

    def observe(self, statistics: GammaRun, x: Numbers) -> tuple[Numbers, GammaRun]:
        shape, rate = statistics
        xp = namespace(shape, x)
        logs = xp.log(shape / rate) - (shape + 1) * xp.log1p(x / rate)
        return logs, GammaRun(shape + 1, rate + x)

    def run_log_density(self, before: GammaRun, run: GammaRun) -> tuple[Numbers, Numbers]:
        shape, inverse = before.shape, 1 / before.rate
        factor, rest = gamma_ratio(shape, run.shape)
        of_values = run.shape * log(shape * inverse)
        return rest - log(factor), of_values - (shape + run.shape) * log1p(run.rate * inverse)

    def emission(self, parameters: Float[Array, ""], statistics: GammaRun) -> WaitingTime:
        del statistics
        return WaitingTime(parameters)

    def level_posterior(self, statistics: GammaRun) -> Level:
        """E[1 / r] and Var[1 / r].

        For a shape below 2, twice rate / shape is a mean that exists; below 3, a multiple of its
        square replaces the variance.
        """
        shape = statistics.shape
        mean = statistics.rate / jnp.maximum(shape - 1, shape / 2)
        return scalar_level(mean, mean**2 / jnp.maximum(shape - 2, shape / 3))
