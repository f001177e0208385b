"""Predictive distributions of an observation.

All are elementwise: parameters, and the points where a function is evaluated, broadcast.
"""

import math
from abc import abstractmethod
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from switchpoint._namespace import Numbers, as_float, namespace
from switchpoint._random import uniform
from switchpoint.segments._special import log_rising, log_student_t, stirling_error

Parameter: TypeAlias = Numbers
"""A parameter of many distributions: an array of NumPy or of JAX, or a number."""

_WIDEST = 60.0  # quantiles are sought within sinh(60) = 6e25 scales of the centre


class Distribution(eqx.Module):
    """The distribution of one observation."""

    whole: eqx.AbstractClassVar[bool]
    """Whether it is a distribution of whole numbers, whose density is their probability."""

    @abstractmethod
    def log_density(self, x: Any) -> Numbers:
        """ln p(x); for whole numbers ln P(x)."""

    @abstractmethod
    def cdf(self, x: Any) -> Float[Array, "..."]:
        """P(X <= x)."""

    @property
    @abstractmethod
    def mean(self) -> Float[Array, "..."]:
        """E[X]; infinite or NaN where it does not exist."""

    @property
    @abstractmethod
    def variance(self) -> Float[Array, "..."]:
        """Var[X]; infinite or NaN where it does not exist."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """One draw."""

    @property
    @abstractmethod
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """A centre and a scale, both finite, around which quantiles are sought."""

    @jax.jit
    def quantile(self, q: Any) -> Float[Array, "..."]:
        """The smallest x with P(X <= x) >= q, by bisection; NaN unless 0 < q < 1."""
        q = jnp.asarray(q, float)
        centre, scale = self.location
        shape = jnp.broadcast_shapes(q.shape, jnp.shape(self.cdf(centre)))

        def point(steps: Float[Array, "..."]) -> Float[Array, "..."]:
            return centre + scale * jnp.sinh(steps)

        def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = 0.5 * (low + high)
            reached = self.cdf(point(middle)) >= q
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        bracket = jnp.full(shape, -_WIDEST), jnp.full(shape, _WIDEST)
        _, high = lax.fori_loop(0, 64 if q.dtype == jnp.float64 else 36, halve, bracket)
        found = jnp.where((q > 0) & (q < 1), point(high), jnp.nan)
        return jnp.maximum(jnp.floor(found), 0.0) if self.whole else found


class Normal(Distribution):
    """The normal distribution."""

    loc: Parameter
    squared_scale: Parameter

    whole = False

    def log_density(self, x: Any) -> Numbers:
        square = (x - self.loc) ** 2 / self.squared_scale
        log = namespace(self.squared_scale).log
        return -0.5 * (square + log(2 * math.pi * self.squared_scale))

    def cdf(self, x: Any) -> Float[Array, "..."]:
        return jax.scipy.special.ndtr((x - self.loc) / jnp.sqrt(self.squared_scale))

    @property
    def mean(self) -> Float[Array, "..."]:
        return jnp.asarray(self.loc)

    @property
    def variance(self) -> Float[Array, "..."]:
        return jnp.asarray(self.squared_scale)

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return jnp.asarray(self.loc), jnp.sqrt(self.squared_scale)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(jnp.shape(self.loc), jnp.shape(self.squared_scale))
        return self.loc + jnp.sqrt(self.squared_scale) * jax.random.normal(key, shape)


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom."""

    df: Parameter
    loc: Parameter
    inverse_spread: Parameter
    """1 / (df squared_scale): what a density needs, often known without a division."""

    whole = False

    def __init__(
        self,
        df: Parameter,
        loc: Parameter,
        squared_scale: Parameter | None = None,
        *,
        inverse_spread: Parameter | None = None,
    ) -> None:
        self.df, self.loc = df, loc
        if inverse_spread is None:
            inverse_spread = 1 / (df * squared_scale)
        self.inverse_spread = inverse_spread

    @property
    def squared_scale(self) -> Float[Array, "..."]:
        return 1 / jnp.asarray(self.df * self.inverse_spread, float)

    def log_density(self, x: Any) -> Numbers:
        half, inverse = 0.5 * as_float(self.df), as_float(self.inverse_spread)
        return log_student_t(half, 2 * inverse, as_float(x - self.loc) ** 2 * inverse)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        square = (x - self.loc) ** 2 / self.squared_scale
        # The incomplete beta function of the smaller argument keeps the digits of both tails.
        half, total = 0.5 * jnp.asarray(self.df), self.df + square
        tails = jnp.where(
            square < self.df,
            1 - jax.scipy.special.betainc(0.5, half, jnp.minimum(square / total, 0.5)),
            jax.scipy.special.betainc(half, 0.5, jnp.minimum(self.df / total, 0.5)),
        )
        return jnp.where(x < self.loc, 0.5 * tails, 1 - 0.5 * tails)

    @property
    def mean(self) -> Float[Array, "..."]:
        return jnp.where(self.df > 1, self.loc, jnp.nan)

    @property
    def variance(self) -> Float[Array, "..."]:
        df = jnp.asarray(self.df)
        known = self.squared_scale * df / jnp.where(df > 2, df - 2, 1.0)
        return jnp.where(df > 2, known, jnp.where(df > 1, jnp.inf, jnp.nan))

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return jnp.asarray(self.loc), jnp.sqrt(self.squared_scale)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(*map(jnp.shape, (self.df, self.loc, self.inverse_spread)))
        draw = jax.random.t(key, jnp.broadcast_to(jnp.asarray(self.df, float), shape), shape)
        return self.loc + jnp.sqrt(self.squared_scale) * draw


class NegativeBinomial(Distribution):
    """Poisson counts whose rate is drawn from Gamma(shape, rate)."""

    shape: Parameter
    rate: Parameter

    whole = True

    def log_density(self, x: Any) -> Numbers:
        return negative_binomial_log_density(self.shape, self.rate, x)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        below = jnp.floor(jnp.asarray(x, float))
        rate = jnp.asarray(self.rate, float)
        reached = jax.scipy.special.betainc(
            jnp.asarray(self.shape, float), jnp.maximum(below, 0) + 1, rate / (rate + 1)
        )
        return jnp.where(below >= 0, reached, 0.0)

    @property
    def mean(self) -> Float[Array, "..."]:
        return jnp.asarray(self.shape / self.rate, float)

    @property
    def variance(self) -> Float[Array, "..."]:
        return self.mean * (1 + 1 / jnp.asarray(self.rate, float))

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.mean, jnp.sqrt(self.variance)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        key_rate, key_count = jax.random.split(key)
        shape = jnp.broadcast_shapes(jnp.shape(self.shape), jnp.shape(self.rate))
        rate = jax.random.gamma(key_rate, jnp.asarray(self.shape, float), shape) / self.rate
        return jax.random.poisson(key_count, rate, shape).astype(float)


def negative_binomial_log_density(shape: Any, rate: Any, x: Any) -> Any:
    """ln P(x) = ln Gamma(shape + x) / (Gamma(shape) x!) + shape ln rate - (shape + x) ln(rate + 1).

    On the device as the difference of two deviances (Loader, 2000): no large log-gammas are
    subtracted. On the host, in double precision, the ratio of Gammas is a product if x is small.
    """
    xp = namespace(shape, rate, x)
    if xp is np and np.ndim(x) == 0 and x >= 0 and x % 1 == 0:
        rising = log_rising(shape, float(x)) - math.lgamma(x + 1)
        return rising - shape * np.log1p(1 / rate) - x * np.log1p(rate)
    shape, rate, x = (as_float(xp.asarray(each)) for each in (shape, rate, x))
    positive = xp.maximum(x, 1.0)
    surplus = (positive * rate - shape) / (rate + 1)
    both = shape + positive
    log_prob = (
        shape * xp.log1p(surplus / shape)
        + positive * xp.log1p(-surplus / positive)
        - 0.5 * xp.log(2 * math.pi * positive * both / shape)
        + stirling_error(both)
        - stirling_error(shape)
        - stirling_error(positive)
    )
    known = xp.where(x < 1, -shape * xp.log1p(1 / rate), log_prob)
    return xp.where((x >= 0) & (xp.floor(x) == x), known, -xp.inf)


class PoissonCounts(Distribution):
    """The Poisson distribution."""

    rate: Parameter

    whole = True

    def log_density(self, x: Any) -> Numbers:
        rate = jnp.asarray(self.rate, float)
        positive = jnp.maximum(x, 1.0)
        log_prob = (
            positive * jnp.log1p((rate - positive) / positive)
            + positive
            - rate
            - 0.5 * jnp.log(2 * math.pi * positive)
            - stirling_error(positive)
        )
        known = jnp.where(jnp.asarray(x) < 1, -rate, log_prob)
        return jnp.where((jnp.asarray(x) >= 0) & (jnp.floor(x) == x), known, -jnp.inf)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        below = jnp.floor(jnp.asarray(x, float))
        reached = jax.scipy.special.gammaincc(
            jnp.maximum(below, 0) + 1, jnp.asarray(self.rate, float)
        )
        return jnp.where(below >= 0, reached, 0.0)

    @property
    def mean(self) -> Float[Array, "..."]:
        return jnp.asarray(self.rate, float)

    @property
    def variance(self) -> Float[Array, "..."]:
        return self.mean

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.mean, jnp.sqrt(self.mean) + 1

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        return jax.random.poisson(key, self.mean).astype(float)


class Lomax(Distribution):
    """Exponential waiting times whose rate is drawn from Gamma(shape, rate)."""

    shape: Parameter
    rate: Parameter

    whole = False

    def log_density(self, x: Any) -> Numbers:
        xp = namespace(self.shape, self.rate, x)
        inside = xp.maximum(x, 0.0) / self.rate
        log_density = xp.log(self.shape / self.rate) - (self.shape + 1) * xp.log1p(inside)
        return xp.where(xp.asarray(x) >= 0, log_density, -xp.inf)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        return -jnp.expm1(-self.shape * jnp.log1p(jnp.maximum(x, 0.0) / self.rate))

    @property
    def mean(self) -> Float[Array, "..."]:
        shape = jnp.asarray(self.shape, float)
        return jnp.where(shape > 1, self.rate / jnp.where(shape > 1, shape - 1, 1.0), jnp.inf)

    @property
    def variance(self) -> Float[Array, "..."]:
        shape = jnp.asarray(self.shape, float)
        known = self.mean**2 * shape / jnp.where(shape > 2, shape - 2, 1.0)
        return jnp.where(shape > 2, known, jnp.inf)

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        scale = jnp.asarray(self.rate / self.shape, float)
        return scale, scale

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(jnp.shape(self.shape), jnp.shape(self.rate))
        return self.rate * jnp.expm1(-jnp.log(uniform(key, shape)) / self.shape)


class WaitingTime(Distribution):
    """The exponential distribution."""

    rate: Parameter

    whole = False

    def log_density(self, x: Any) -> Numbers:
        return jnp.where(jnp.asarray(x) >= 0, jnp.log(self.rate) - self.rate * x, -jnp.inf)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        return -jnp.expm1(-self.rate * jnp.maximum(x, 0.0))

    @property
    def mean(self) -> Float[Array, "..."]:
        return 1 / jnp.asarray(self.rate, float)

    @property
    def variance(self) -> Float[Array, "..."]:
        return self.mean**2

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.mean, self.mean

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        return -jnp.log(uniform(key, jnp.shape(self.rate))) * self.mean


class Discrete(Distribution):
    """Symbols 0..alphabet-1 with these probabilities."""

    probs: Float[Array, "*batch alphabet"]

    whole = True

    def log_density(self, x: Any) -> Numbers:
        symbol = jnp.asarray(x).astype(jnp.int32)
        shape = jnp.broadcast_shapes(symbol.shape, self.probs.shape[:-1])
        probs = jnp.broadcast_to(self.probs, (*shape, self.probs.shape[-1]))
        at = jnp.broadcast_to(symbol, shape)[..., None]
        return jnp.log(jnp.take_along_axis(probs, at, axis=-1)[..., 0])

    def cdf(self, x: Any) -> Float[Array, "..."]:
        below = self._symbols() <= jnp.asarray(x)[..., None]
        return jnp.sum(jnp.where(below, self.probs, 0.0), axis=-1)

    @property
    def mean(self) -> Float[Array, "..."]:
        return jnp.sum(self.probs * self._symbols(), axis=-1)

    @property
    def variance(self) -> Float[Array, "..."]:
        return jnp.sum(self.probs * (self._symbols() - self.mean[..., None]) ** 2, axis=-1)

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.mean, jnp.ones_like(self.mean)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        below = jnp.cumsum(self.probs[..., :-1], axis=-1)
        coins = uniform(key, self.probs.shape[:-1])
        return jnp.sum(coins[..., None] >= below, axis=-1).astype(float)

    def _symbols(self) -> Float[Array, " alphabet"]:
        return jnp.arange(self.probs.shape[-1], dtype=float)


class Product(Distribution):
    """Independent columns, which are the last axis of an observation.

    An entry that is NaN is missing, and does not count. `cdf` and `quantile` are of each column.
    """

    columns: tuple[Distribution, ...]

    whole = False

    def log_density(self, x: Any) -> Numbers:
        x = jnp.asarray(x, float)
        return jnp.asarray(
            sum(
                jnp.where(jnp.isnan(x[..., i]), 0.0, column.log_density(jnp.nan_to_num(x[..., i])))
                for i, column in enumerate(self.columns)
            )
        )

    def cdf(self, x: Any) -> Float[Array, "... columns"]:
        x = jnp.asarray(x, float)
        return _stack(column.cdf(x[..., i]) for i, column in enumerate(self.columns))

    @property
    def mean(self) -> Float[Array, "... columns"]:
        return _stack(column.mean for column in self.columns)

    @property
    def variance(self) -> Float[Array, "... columns"]:
        return _stack(column.variance for column in self.columns)

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        centres, scales = zip(*(column.location for column in self.columns), strict=True)
        return _stack(centres), _stack(scales)

    @jax.jit
    def quantile(self, q: Any) -> Float[Array, "... columns"]:
        return _stack(column.quantile(q) for column in self.columns)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "... columns"]:
        keys = jax.random.split(key, len(self.columns))
        return _stack(column.sample(each) for column, each in zip(self.columns, keys, strict=True))


def _stack(parts: Any) -> Array:
    return jnp.stack(jnp.broadcast_arrays(*parts), axis=-1)


class Mixture(Distribution):
    """A mixture of distributions of one family, shifted by `offset`."""

    log_weights: Float[Array, " components"]
    """The logarithms of their weights, which sum to 1."""
    components: Distribution
    """The distributions, along the first axis of their parameters."""
    offset: Float[Array | np.ndarray, "*columns"]
    """Added to every observation. Large values keep their digits as differences from it."""

    whole = False  # `quantile` asks the components

    def log_density(self, x: Any) -> Numbers:
        x = self._relative(x)
        points = x.reshape(-1, *self.offset.shape)
        logs = jax.vmap(
            lambda point: jax.nn.logsumexp(self.log_weights + self.components.log_density(point))
        )(points)
        return logs.reshape(x.shape[: x.ndim - self.offset.ndim])

    def cdf(self, x: Any) -> Float[Array, "..."]:
        x = self._relative(x)
        points = x.reshape(-1, *self.offset.shape)
        return jax.vmap(lambda point: self._mean(self.components.cdf(point)))(points).reshape(
            x.shape
        )

    @property
    def mean(self) -> Float[Array, "*columns"]:
        return self._mean(self.components.mean) + self.offset

    @property
    def variance(self) -> Float[Array, "*columns"]:
        means = self.components.mean
        return self._mean(self.components.variance + (means - self._mean(means)) ** 2)

    @property
    def location(self) -> tuple[Float[Array, "*columns"], Float[Array, "*columns"]]:
        centres, scales = self.components.location
        likely = jnp.argmax(self.log_weights)
        return centres[likely] + self.offset, scales[likely]

    @jax.jit
    def quantile(self, q: Any) -> Float[Array, "..."]:
        q = jnp.asarray(q, float)
        if isinstance(self.components, Product):
            return _stack(
                Mixture(self.log_weights, column, self.offset[i, ...]).quantile(q)
                for i, column in enumerate(self.components.columns)
            )
        found = super().quantile(q)
        return jnp.maximum(jnp.floor(found), 0.0) if self.components.whole else found

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*columns"]:
        key_component, key_value = jax.random.split(key)
        which = jax.random.categorical(key_component, self.log_weights)
        component = jax.tree.map(lambda leaf: leaf[which], self.components)
        return self.offset + component.sample(key_value)

    def _relative(self, x: Any) -> Float[Array, "..."]:
        """x minus the offset, subtracted in double precision unless traced."""
        if not any(isinstance(each, jax.core.Tracer) for each in (x, self.offset)):
            x = np.asarray(x, np.float64) - np.asarray(self.offset, np.float64)
            return jnp.asarray(x, float)
        return jnp.asarray(x - self.offset, float)

    def _mean(self, of_components: Float[Array, "components ..."]) -> Float[Array, "..."]:
        """The mean over the components; those of weight 0 may be infinite."""
        weights = jnp.exp(self.log_weights)
        weights = weights.reshape(-1, *(1,) * (of_components.ndim - 1))
        return jnp.sum(jnp.where(weights > 0, weights * of_components, 0.0), axis=0)
