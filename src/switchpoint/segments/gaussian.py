"""Real values with known noise and an unknown mean."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint.segments.base import Parameter, Segment, positive, real, weighted_mean
from switchpoint.segments.distributions import Normal


class MeanRun(NamedTuple):
    """The observations of a run, and its prior's as many as they are worth."""

    weight: Float[Array, "..."]
    mean: Float[Array, "..."]


class Gaussian(Segment):
    """Values with noise of standard deviation `scale` around a mean ~ N(mean, mean_scale^2)."""

    real_fields = ("mean",)

    mean: Parameter
    mean_scale: Parameter
    scale: Parameter

    def __init__(
        self, mean: ArrayLike = 0.0, mean_scale: ArrayLike = 1.0, scale: ArrayLike = 1.0
    ) -> None:
        self.mean = real("mean", mean)
        self.mean_scale = positive("mean_scale", mean_scale)
        self.scale = positive("scale", scale)

    def statistic(self, x: Float[Array, ""]) -> MeanRun:
        return MeanRun(jnp.ones_like(x), x)

    def merge(self, before: MeanRun, after: MeanRun) -> MeanRun:
        weight, mean, _ = weighted_mean((before.weight, after.weight), (before.mean, after.mean))
        return MeanRun(weight, mean)

    def initial(self) -> MeanRun:
        weight = (jnp.asarray(self.scale, float) / self.mean_scale) ** 2
        return MeanRun(weight, jnp.asarray(self.mean, float))

    def predictive(self, statistics: MeanRun) -> Normal:
        variance = jnp.asarray(self.scale, float) ** 2
        return Normal(statistics.mean, variance * (1 + 1 / statistics.weight))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return self.mean + self.mean_scale * jax.random.normal(key, shape)

    def emission(self, parameters: Float[Array, ""], statistics: MeanRun) -> Normal:
        del statistics
        return Normal(parameters, jnp.asarray(self.scale, float) ** 2)

    def level_covariance(self, statistics: MeanRun) -> Float[Array, "1 1 1"]:
        variance = jnp.asarray(self.scale, float) ** 2 / statistics.weight
        return variance.reshape(1, 1, 1)

    @property
    def located(self) -> Bool[np.ndarray, ""]:
        return np.array(True)

    def translate(self, statistics: MeanRun, by: Float[Array, ""]) -> MeanRun:
        return statistics._replace(mean=statistics.mean - by)
