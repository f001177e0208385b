"""Real values with known noise and an unknown mean."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter
from switchpoint.segments._special import log
from switchpoint.segments.base import Level, Segment, positive, real, weighted_mean
from switchpoint.segments.distributions import Normal


class MeanRun(NamedTuple):
    """The observations of a run, and its prior's as many as they are worth."""

    weight: Numbers
    mean: Numbers


class Gaussian(Segment):
    """Values with noise of standard deviation `scale` around a mean ~ N(mean, mean_scale^2)."""

    location_field = "mean"

    mean: Parameter
    mean_scale: Parameter
    scale: Parameter

    def __init__(
        self, mean: ArrayLike = 0.0, mean_scale: ArrayLike = 1.0, scale: ArrayLike = 1.0
    ) -> None:
        self.mean = real("mean", mean)
        self.mean_scale = positive("mean_scale", mean_scale)
        self.scale = positive("scale", scale)

    def statistic(self, x: Numbers) -> MeanRun:
        return MeanRun(namespace(x).ones_like(x), x)

    def merge(self, before: MeanRun, after: MeanRun) -> MeanRun:
        weight, mean, _ = weighted_mean((before.weight, after.weight), (before.mean, after.mean))
        return MeanRun(weight, mean)

    def initial(self) -> MeanRun:
        return MeanRun((self.scale / self.mean_scale) ** 2, self.mean)

    def predictive(self, statistics: MeanRun) -> Normal:
        return Normal(statistics.mean, self.scale**2 * (1 + 1 / statistics.weight))

    def observe(self, statistics: MeanRun, x: Numbers) -> tuple[Numbers, MeanRun]:
        weight, mean = statistics
        gap = x - mean
        total = weight + 1
        step = gap / total
        variance = self.scale**2
        log_noise = math.log(2 * math.pi) + 2 * log(self.scale)
        square = gap * step * weight / variance
        return 0.5 * (log(weight / total) - log_noise - square), MeanRun(total, mean + step)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return self.mean + self.mean_scale * jax.random.normal(key, shape)

    def emission(self, parameters: Float[Array, ""], statistics: MeanRun) -> Normal:
        del statistics
        return Normal(parameters, jnp.asarray(self.scale, float) ** 2)

    def level_posterior(self, statistics: MeanRun) -> Level:
        variance = self.scale**2 / statistics.weight
        return Level(statistics.mean.reshape(1, 1), variance.reshape(1, 1, 1))

    def translate(self, statistics: MeanRun, by: Any) -> MeanRun:
        return statistics._replace(mean=statistics.mean - by)
