"""Counts with an unknown rate."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter
from switchpoint.segments.base import Level, Segment, positive
from switchpoint.segments.distributions import (
    NegativeBinomial,
    PoissonCounts,
    negative_binomial_log_density,
)


class GammaRun(NamedTuple):
    """The parameters of a Gamma distribution, as additive statistics of a run."""

    shape: Numbers
    rate: Numbers


class Poisson(Segment):
    """Counts 0, 1, 2, ... with a rate ~ Gamma(shape, rate)."""

    shape: Parameter
    rate: Parameter

    def __init__(self, shape: ArrayLike = 1.0, rate: ArrayLike = 1.0) -> None:
        self.shape = positive("shape", shape)
        self.rate = positive("rate", rate)

    def statistic(self, x: Numbers) -> GammaRun:
        return GammaRun(x, namespace(x).ones_like(x))

    def initial(self) -> GammaRun:
        return GammaRun(self.shape, self.rate)

    def predictive(self, statistics: GammaRun) -> NegativeBinomial:
        return NegativeBinomial(*statistics)

    def observe(self, statistics: GammaRun, x: Numbers) -> tuple[Numbers, GammaRun]:
        shape, rate = statistics
        return negative_binomial_log_density(shape, rate, x), GammaRun(shape + x, rate + 1)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return jax.random.gamma(key, self.shape, shape) / self.rate

    def emission(self, parameters: Float[Array, ""], statistics: GammaRun) -> PoissonCounts:
        del statistics
        return PoissonCounts(parameters)

    def level_posterior(self, statistics: GammaRun) -> Level:
        mean = statistics.shape / statistics.rate
        return Level(mean.reshape(1, 1), (mean / statistics.rate).reshape(1, 1, 1))

    def invalid(self, values: Float[np.ndarray, "..."]) -> tuple[Bool[np.ndarray, "..."], str]:
        return (values < 0) | (values != np.floor(values)), "whole numbers from 0"
