"""Waiting times with an unknown rate."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint.segments.base import Parameter, Segment, positive
from switchpoint.segments.distributions import Lomax, WaitingTime
from switchpoint.segments.poisson import GammaRun


class Exponential(Segment):
    """Waiting times, exponential with a rate ~ Gamma(shape, rate)."""

    shape: Parameter
    rate: Parameter

    def __init__(self, shape: ArrayLike = 1.0, rate: ArrayLike = 1.0) -> None:
        self.shape = positive("shape", shape)
        self.rate = positive("rate", rate)

    def statistic(self, x: Float[Array, ""]) -> GammaRun:
        return GammaRun(jnp.ones_like(x), x)

    def initial(self) -> GammaRun:
        return GammaRun(jnp.asarray(self.shape, float), jnp.asarray(self.rate, float))

    def predictive(self, statistics: GammaRun) -> Lomax:
        return Lomax(*statistics)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return jax.random.gamma(key, self.shape, shape) / self.rate

    def emission(self, parameters: Float[Array, ""], statistics: GammaRun) -> WaitingTime:
        del statistics
        return WaitingTime(parameters)

    def level_mean(self, statistics: GammaRun) -> Float[Array, "1 1"]:
        """E[1 / rate], for a shape below 2 twice rate / shape: a mean that exists."""
        shape = statistics.shape
        return (statistics.rate / jnp.maximum(shape - 1, shape / 2)).reshape(1, 1)

    def level_covariance(self, statistics: GammaRun) -> Float[Array, "1 1 1"]:
        """Var[1 / rate]; where it does not exist (shape below 3), a multiple of the mean^2."""
        shape = statistics.shape
        mean = self.level_mean(statistics)[0, 0]
        return (mean**2 / jnp.maximum(shape - 2, shape / 3)).reshape(1, 1, 1)

    def invalid(self, values: Float[np.ndarray, "..."]) -> tuple[Bool[np.ndarray, "..."], str]:
        return values < 0, "waiting times of at least 0"
