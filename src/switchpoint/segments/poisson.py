"""Counts with an unknown rate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint.segments.base import Parameter, Segment, positive
from switchpoint.segments.distributions import NegativeBinomial, PoissonCounts


class GammaRun(NamedTuple):
    """The parameters of a Gamma distribution, as additive statistics of a run."""

    shape: Float[Array, "..."]
    rate: Float[Array, "..."]


class Poisson(Segment):
    """Counts 0, 1, 2, ... with a rate ~ Gamma(shape, rate)."""

    shape: Parameter
    rate: Parameter

    def __init__(self, shape: ArrayLike = 1.0, rate: ArrayLike = 1.0) -> None:
        self.shape = positive("shape", shape)
        self.rate = positive("rate", rate)

    def statistic(self, x: Float[Array, ""]) -> GammaRun:
        return GammaRun(x, jnp.ones_like(x))

    def initial(self) -> GammaRun:
        return GammaRun(jnp.asarray(self.shape, float), jnp.asarray(self.rate, float))

    def predictive(self, statistics: GammaRun) -> NegativeBinomial:
        return NegativeBinomial(*statistics)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return jax.random.gamma(key, self.shape, shape) / self.rate

    def emission(self, parameters: Float[Array, ""], statistics: GammaRun) -> PoissonCounts:
        del statistics
        return PoissonCounts(parameters)

    def level_covariance(self, statistics: GammaRun) -> Float[Array, "1 1 1"]:
        return (statistics.shape / statistics.rate**2).reshape(1, 1, 1)

    def invalid(self, values: Float[np.ndarray, "..."]) -> tuple[Bool[np.ndarray, "..."], str]:
        return (values < 0) | (values != np.floor(values)), "whole numbers from 0"
