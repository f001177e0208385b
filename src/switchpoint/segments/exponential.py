"""Waiting times with an unknown rate."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter
from switchpoint.segments.base import Level, Segment, positive
from switchpoint.segments.distributions import Lomax, WaitingTime
from switchpoint.segments.poisson import GammaRun


class Exponential(Segment):
    """Waiting times, exponential with a rate ~ Gamma(shape, rate)."""

    shape: Parameter
    rate: Parameter

    def __init__(self, shape: ArrayLike = 1.0, rate: ArrayLike = 1.0) -> None:
        self.shape = positive("shape", shape)
        self.rate = positive("rate", rate)

    def statistic(self, x: Numbers) -> GammaRun:
        return GammaRun(namespace(x).ones_like(x), x)

    def initial(self) -> GammaRun:
        return GammaRun(self.shape, self.rate)

    def predictive(self, statistics: GammaRun) -> Lomax:
        return Lomax(*statistics)

    def observe(self, statistics: GammaRun, x: Numbers) -> tuple[Numbers, GammaRun]:
        shape, rate = statistics
        xp = namespace(shape, x)
        logs = xp.log(shape / rate) - (shape + 1) * xp.log1p(x / rate)
        return logs, GammaRun(shape + 1, rate + x)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return jax.random.gamma(key, self.shape, shape) / self.rate

    def emission(self, parameters: Float[Array, ""], statistics: GammaRun) -> WaitingTime:
        del statistics
        return WaitingTime(parameters)

    def level_posterior(self, statistics: GammaRun) -> Level:
        """E[1 / rate] and Var[1 / rate].

        For a shape below 2, twice rate / shape is a mean that exists; below 3, a multiple of its
        square replaces the variance.
        """
        shape = statistics.shape
        mean = statistics.rate / jnp.maximum(shape - 1, shape / 2)
        variance = mean**2 / jnp.maximum(shape - 2, shape / 3)
        return Level(mean.reshape(1, 1), variance.reshape(1, 1, 1))

    def invalid(self, values: Float[np.ndarray, "..."]) -> tuple[Bool[np.ndarray, "..."], str]:
        return values < 0, "waiting times of at least 0"
