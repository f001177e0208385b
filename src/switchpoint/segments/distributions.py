"""Predictive distributions of an observation.

All are elementwise: parameters, and the points where a function is evaluated, broadcast.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jax.tree_util import GetAttrKey, register_pytree_with_keys
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from switchpoint._namespace import Numbers, as_float, betainc, namespace, ndtr
from switchpoint._random import uniform
from switchpoint.segments._special import log_student_t, stirling_error

Parameter: TypeAlias = Numbers
"""A parameter of many distributions: an array of NumPy or of JAX, or a number."""

_WIDEST = 60.0  # quantiles are sought within sinh(60) = 6e25 scales of the centre


class Support(NamedTuple):
    """The numbers from `least` to `most` that a distribution can give, or the whole ones.

    >>> import switchpoint as sp
    >>> support = sp.Poisson().support
    >>> str(support), bool(support.contains(3.0)), bool(support.contains(2.5))
    ('whole numbers from 0', True, False)
    """

    least: float = -math.inf
    most: float = math.inf
    whole: bool = False

    def contains(self, x: Any) -> Any:
        """Whether each number is one of them; NaN is not."""
        inside = (x >= self.least) & (x <= self.most)
        return inside & (x == np.floor(x)) if self.whole else inside

    def __str__(self) -> str:
        numbers = "whole numbers" if self.whole else "numbers"
        least = "" if math.isinf(self.least) else f" from {self.least:g}"
        return numbers + least + ("" if math.isinf(self.most) else f" to {self.most:g}")


@dataclass_transform(eq_default=False)
class Distribution(ABC):
    """The distribution of one observation.

    `log_density` and `sample` must be written. `cdf`, `mean` and `variance` make forecasts with
    intervals possible (`quantile` bisects `cdf`, within a bracket around `location`), and `support`
    the refusal of values that have no density. A subclass annotates its parameters, which are
    arrays, tuples or other distributions; it is a dataclass and a pytree of them. (It is no Equinox
    module: a stream makes one for every observation, and a module would take longer to make than
    most formulas to compute.)

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from switchpoint.segments import Distribution
    >>> class Laplace(Distribution):
    ...     loc: float
    ...     def log_density(self, x):
    ...         return -jnp.abs(x - self.loc) - jnp.log(2)
    ...     def sample(self, key):
    ...         return self.loc + jax.random.laplace(key)
    >>> round(float(Laplace(1.0).log_density(1.0)), 4)
    -0.6931
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(eq=False, init="__init__" not in cls.__dict__)(cls)
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

        def flatten(distribution: Any) -> tuple[list[Any], None]:
            leaves = [(GetAttrKey(name), getattr(distribution, name)) for name in names]
            return leaves, None

        def unflatten(_: None, leaves: Iterable[Any]) -> Any:
            distribution = object.__new__(cls)  # the leaves may be no arrays
            distribution.__dict__.update(zip(names, leaves, strict=True))
            return distribution

        register_pytree_with_keys(cls, flatten, unflatten)

    @abstractmethod
    def log_density(self, x: Any) -> Numbers:
        """ln p(x); for whole numbers ln P(x). -inf outside of the support."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """One draw."""

    def cdf(self, x: Any) -> Numbers:
        """P(X <= x)."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    @property
    def mean(self) -> Numbers:
        """E[X]; infinite or NaN where it does not exist."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def variance(self) -> Numbers:
        """Var[X]; infinite or NaN where it does not exist."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def location(self) -> tuple[Numbers, Numbers]:
        """A centre and a scale, both finite, around which quantiles are sought."""
        variance = self.variance
        return self.mean, namespace(variance).sqrt(variance)

    @property
    def support(self) -> Support:
        """The values that have a density; by default all real numbers."""
        return Support()

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
        quantile = jnp.where((q > 0) & (q < 1), point(high), jnp.nan)
        return jnp.maximum(jnp.floor(quantile), 0.0) if self.support.whole else quantile


class Normal(Distribution):
    """The normal distribution N(loc, squared_scale).

    p(x) = (2 pi squared_scale)^(-1/2) exp(-(x - loc)^2 / (2 squared_scale))

    >>> from switchpoint.segments import Normal
    >>> round(float(Normal(1.0, 4.0).cdf(1.0)), 3)
    0.5
    """

    loc: Parameter
    squared_scale: Parameter

    def log_density(self, x: Any) -> Numbers:
        square = (x - self.loc) ** 2 / self.squared_scale
        log = namespace(self.squared_scale).log
        return -0.5 * (square + log(2 * math.pi * self.squared_scale))

    def cdf(self, x: Any) -> Numbers:
        xp = namespace(self.loc, self.squared_scale, x)
        return ndtr((x - self.loc) / xp.sqrt(self.squared_scale))

    @property
    def mean(self) -> Numbers:
        return namespace(self.loc).asarray(self.loc)

    @property
    def variance(self) -> Numbers:
        return namespace(self.squared_scale).asarray(self.squared_scale)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(jnp.shape(self.loc), jnp.shape(self.squared_scale))
        return self.loc + jnp.sqrt(self.squared_scale) * jax.random.normal(key, shape)


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, shifted by `loc` and scaled.

    With s^2 = squared_scale, nu = df, z = (x - loc) / s:

        p(x) = Gamma((nu + 1) / 2) / (Gamma(nu / 2) sqrt(pi nu) s) (1 + z^2 / nu)^(-(nu + 1) / 2)

    The mean is `loc` for nu > 1, the variance s^2 nu / (nu - 2) for nu > 2. The ratio of Gamma
    functions is a series, which keeps 7 digits in single precision for any nu.

    >>> from switchpoint.segments import StudentT
    >>> round(float(StudentT(5.0, 0.0, 1.0).quantile(0.975)), 3)
    2.571
    """

    df: Parameter
    loc: Parameter
    inverse_spread: Parameter
    """1 / (df squared_scale): what a density needs, often known without a division."""

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
    def squared_scale(self) -> Numbers:
        return 1 / as_float(self.df * self.inverse_spread)

    def log_density(self, x: Any) -> Numbers:
        half, inverse = 0.5 * as_float(self.df), as_float(self.inverse_spread)
        return log_student_t(half, 2 * inverse, as_float(x - self.loc) ** 2 * inverse)

    def cdf(self, x: Any) -> Numbers:
        if namespace(self.df, self.loc, self.inverse_spread, x) is np:
            z = (x - self.loc) * np.sqrt(self.df * self.inverse_spread)
            return scipy.special.stdtr(self.df, z)
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
    def mean(self) -> Numbers:
        xp = namespace(self.df, self.loc)
        return xp.where(xp.asarray(self.df) > 1, self.loc, xp.nan)

    @property
    def variance(self) -> Numbers:
        xp = namespace(self.df, self.inverse_spread)
        df = xp.asarray(self.df)
        finite = self.squared_scale * df / xp.where(df > 2, df - 2, 1.0)
        return xp.where(df > 2, finite, xp.where(df > 1, xp.inf, xp.nan))

    @property
    def location(self) -> tuple[Numbers, Numbers]:
        scale = namespace(self.inverse_spread).sqrt(self.squared_scale)
        return namespace(self.loc).asarray(self.loc), scale

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(*map(jnp.shape, (self.df, self.loc, self.inverse_spread)))
        draw = jax.random.t(key, jnp.broadcast_to(jnp.asarray(self.df, float), shape), shape)
        return self.loc + jnp.sqrt(self.squared_scale) * draw


class GammaPoisson(Distribution):
    """Poisson counts whose rate is drawn from Gamma(shape, rate): a negative binomial.

    With a = shape > 0 and b = rate > 0, for x = 0, 1, 2, ...:

        P(x) = Gamma(a + x) / (Gamma(a) x!) (b / (b + 1))^a (1 / (b + 1))^x

    The mean is a / b, the variance a (b + 1) / b^2.

    >>> from switchpoint.segments import GammaPoisson
    >>> float(GammaPoisson(2.0, 0.5).mean)
    4.0
    """

    shape: Parameter
    rate: Parameter

    def log_density(self, x: Any) -> Numbers:
        return gamma_poisson_log_density(self.shape, self.rate, x)

    def cdf(self, x: Any) -> Numbers:
        xp = namespace(self.shape, self.rate, x)
        below, rate = xp.floor(xp.asarray(x, float)), as_float(self.rate)
        reached = betainc(as_float(self.shape), xp.maximum(below, 0) + 1, rate / (rate + 1))
        return xp.where(below >= 0, reached, 0.0)

    @property
    def mean(self) -> Numbers:
        return as_float(self.shape / self.rate)

    @property
    def variance(self) -> Numbers:
        return self.mean * (1 + 1 / as_float(self.rate))

    @property
    def support(self) -> Support:
        return Support(least=0, whole=True)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        key_rate, key_count = jax.random.split(key)
        shape = jnp.broadcast_shapes(jnp.shape(self.shape), jnp.shape(self.rate))
        rate = jax.random.gamma(key_rate, jnp.asarray(self.shape, float), shape) / self.rate
        return jax.random.poisson(key_count, rate, shape).astype(float)


def gamma_poisson_log_density(shape: Any, rate: Any, x: Any) -> Any:
    """ln P(x) = ln Gamma(shape + x) / (Gamma(shape) x!) + shape ln rate - (shape + x) ln(rate + 1).

    As the difference of two deviances (Loader, 2000): no large log-gammas are subtracted.
    """
    xp = namespace(shape, rate, x)
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
    log_prob = xp.where(x < 1, -shape * xp.log1p(1 / rate), log_prob)
    return xp.where((x >= 0) & (xp.floor(x) == x), log_prob, -xp.inf)


class PoissonCounts(Distribution):
    """The Poisson distribution: P(x) = rate^x e^(-rate) / x!, with mean and variance `rate`."""

    rate: Parameter

    def log_density(self, x: Any) -> Numbers:
        rate, x = jnp.asarray(self.rate, float), jnp.asarray(x, float)
        positive = jnp.maximum(x, 1.0)
        log_prob = (  # as a deviance (Loader, 2000)
            positive * jnp.log1p((rate - positive) / positive)
            + positive
            - rate
            - 0.5 * jnp.log(2 * math.pi * positive)
            - stirling_error(positive)
        )
        log_prob = jnp.where(x < 1, -rate, log_prob)
        return jnp.where((x >= 0) & (jnp.floor(x) == x), log_prob, -jnp.inf)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        return jax.random.poisson(key, jnp.asarray(self.rate, float)).astype(float)


class Lomax(Distribution):
    """Exponential waiting times whose rate is drawn from Gamma(shape, rate).

    With a = shape > 0 and b = rate > 0, for x >= 0 (Lomax, 1954):

        p(x) = (a / b) (1 + x / b)^(-(a + 1)),    P(X > x) = (1 + x / b)^(-a)

    The mean is b / (a - 1) for a > 1, the variance mean^2 a / (a - 2) for a > 2.

    >>> from switchpoint.segments import Lomax
    >>> float(Lomax(3.0, 4.0).mean)
    2.0
    """

    shape: Parameter
    rate: Parameter

    def log_density(self, x: Any) -> Numbers:
        xp = namespace(self.shape, self.rate, x)
        inside = xp.maximum(x, 0.0) / self.rate
        log_density = xp.log(self.shape / self.rate) - (self.shape + 1) * xp.log1p(inside)
        return xp.where(xp.asarray(x) >= 0, log_density, -xp.inf)

    def cdf(self, x: Any) -> Numbers:
        xp = namespace(self.shape, self.rate, x)
        return -xp.expm1(-self.shape * xp.log1p(xp.maximum(x, 0.0) / self.rate))

    @property
    def mean(self) -> Numbers:
        xp, shape = namespace(self.shape, self.rate), as_float(self.shape)
        return xp.where(shape > 1, self.rate / xp.where(shape > 1, shape - 1, 1.0), xp.inf)

    @property
    def variance(self) -> Numbers:
        xp, shape = namespace(self.shape, self.rate), as_float(self.shape)
        finite = self.mean**2 * shape / xp.where(shape > 2, shape - 2, 1.0)
        return xp.where(shape > 2, finite, xp.inf)

    @property
    def location(self) -> tuple[Numbers, Numbers]:
        scale = as_float(self.rate / self.shape)
        return scale, scale

    @property
    def support(self) -> Support:
        return Support(least=0)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(jnp.shape(self.shape), jnp.shape(self.rate))
        return self.rate * jnp.expm1(-jnp.log(uniform(key, shape)) / self.shape)


class WaitingTime(Distribution):
    """The exponential distribution: p(x) = rate e^(-rate x) for x >= 0, with mean 1 / rate."""

    rate: Parameter

    def log_density(self, x: Any) -> Numbers:
        return jnp.where(jnp.asarray(x) >= 0, jnp.log(self.rate) - self.rate * x, -jnp.inf)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        return -jnp.log(uniform(key, jnp.shape(self.rate))) / jnp.asarray(self.rate, float)


class Discrete(Distribution):
    """Symbols 0..alphabet-1 with these probabilities: P(x = k) = probs[..., k].

    >>> import jax.numpy as jnp
    >>> from switchpoint.segments import Discrete
    >>> round(float(Discrete(jnp.array([0.2, 0.3, 0.5])).mean), 3)
    1.3
    """

    probs: Float[Array, "*batch alphabet"]

    def log_density(self, x: Any) -> Numbers:
        xp = namespace(self.probs, x)
        if xp is np and np.ndim(x) == 0:
            return np.log(self.probs[..., int(x)])
        symbol = xp.asarray(x).astype(np.int32)
        shape = np.broadcast_shapes(symbol.shape, self.probs.shape[:-1])
        probs = xp.broadcast_to(self.probs, (*shape, self.probs.shape[-1]))
        at = xp.broadcast_to(symbol, shape)[..., None]
        return xp.log(xp.take_along_axis(probs, at, -1)[..., 0])

    def cdf(self, x: Any) -> Numbers:
        below = self._symbols() <= jnp.asarray(x)[..., None]
        return jnp.sum(jnp.where(below, self.probs, 0.0), axis=-1)

    @property
    def mean(self) -> Numbers:
        return jnp.sum(self.probs * self._symbols(), axis=-1)

    @property
    def variance(self) -> Numbers:
        return jnp.sum(self.probs * (self._symbols() - self.mean[..., None]) ** 2, axis=-1)

    @property
    def location(self) -> tuple[Numbers, Numbers]:
        return self.mean, jnp.ones_like(self.mean)

    @property
    def support(self) -> Support:
        return Support(0, self.probs.shape[-1] - 1, whole=True)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        below = jnp.cumsum(self.probs[..., :-1], axis=-1)
        coins = uniform(key, self.probs.shape[:-1])
        return jnp.sum(coins[..., None] >= below, axis=-1).astype(float)

    def _symbols(self) -> Float[Array, " alphabet"]:
        return jnp.arange(self.probs.shape[-1], dtype=float)


class Joint(Distribution):
    """The distribution of several columns, which are the last axis of an observation.

    `log_density` is that of all columns; `cdf`, `quantile`, `mean` and `variance` are those of each
    column, (..., columns).

    >>> from switchpoint.segments import Joint, Normal, Product
    >>> isinstance(Product((Normal(0.0, 1.0), Normal(5.0, 1.0))), Joint)
    True
    """

    @property
    @abstractmethod
    def marginals(self) -> tuple[Distribution, ...]:
        """The distribution of each column."""

    def cdf(self, x: Any) -> Float[Array, "... columns"]:
        x = jnp.asarray(x, float)
        return _stack(column.cdf(x[..., i]) for i, column in enumerate(self.marginals))

    @property
    def mean(self) -> Float[Array, "... columns"]:
        return _stack(column.mean for column in self.marginals)

    @property
    def variance(self) -> Float[Array, "... columns"]:
        return _stack(column.variance for column in self.marginals)

    @property
    def location(self) -> tuple[Numbers, Numbers]:
        centres, scales = zip(*(column.location for column in self.marginals), strict=True)
        return _stack(centres), _stack(scales)

    @jax.jit
    def quantile(self, q: Any) -> Float[Array, "... columns"]:
        return _stack(column.quantile(q) for column in self.marginals)


class Product(Joint):
    """Independent columns.

    ln p(x) = sum over columns i of ln p_i(x[..., i]). An entry that is NaN is missing, and adds 0.

    >>> from switchpoint.segments import Normal, Product
    >>> Product((Normal(0.0, 1.0), Normal(5.0, 1.0))).mean.tolist()
    [0.0, 5.0]
    """

    columns: tuple[Distribution, ...]

    def log_density(self, x: Any) -> Numbers:
        x = jnp.asarray(x, float)
        return jnp.asarray(
            sum(
                jnp.where(jnp.isnan(x[..., i]), 0.0, column.log_density(jnp.nan_to_num(x[..., i])))
                for i, column in enumerate(self.columns)
            )
        )

    @property
    def marginals(self) -> tuple[Distribution, ...]:
        return self.columns

    def sample(self, key: PRNGKeyArray) -> Float[Array, "... columns"]:
        keys = jax.random.split(key, len(self.columns))
        return _stack(column.sample(each) for column, each in zip(self.columns, keys, strict=True))


def _stack(parts: Any) -> Array:
    return jnp.stack(jnp.broadcast_arrays(*parts), axis=-1)


class MixtureSameFamily(Distribution):
    """A mixture of K distributions of one family, shifted by `offset`.

    p(x) = sum over k of w_k p_k(x - offset), with w_k = exp(log_weights[k]), which sum to 1.

    >>> import jax.numpy as jnp
    >>> from switchpoint.segments import MixtureSameFamily, Normal
    >>> two = Normal(jnp.array([-1.0, 3.0]), jnp.ones(2))
    >>> round(float(MixtureSameFamily(jnp.log(jnp.array([0.5, 0.5])), two, jnp.zeros(())).mean), 3)
    1.0
    """

    log_weights: Float[Array, " components"]
    """The logarithms of their weights, which sum to 1."""
    components: Distribution
    """The distributions, along the first axis of their parameters."""
    offset: Float[Array | np.ndarray, "*columns"]
    """Added to every observation. Large values keep their digits as differences from it."""

    def log_density(self, x: Any) -> Numbers:
        def at_point(point: Array) -> Array:
            logs = jax.vmap(lambda component: component.log_density(point))(self.components)
            return jax.nn.logsumexp(self.log_weights + logs)

        x = self._relative(x)
        logs = jax.vmap(at_point)(x.reshape(-1, *self.offset.shape))
        return logs.reshape(x.shape[: x.ndim - self.offset.ndim])

    def cdf(self, x: Any) -> Numbers:
        x = self._relative(x)
        points = x.reshape(-1, *self.offset.shape)
        reached = jax.vmap(lambda point: self._mean(lambda each: each.cdf(point)))(points)
        return reached.reshape(x.shape)

    @property
    def mean(self) -> Float[Array, "*columns"]:
        return self._mean(lambda component: component.mean) + self.offset

    @property
    def variance(self) -> Float[Array, "*columns"]:
        mean = self._mean(lambda component: component.mean)
        return self._mean(lambda component: component.variance + (component.mean - mean) ** 2)

    @property
    def location(self) -> tuple[Float[Array, "*columns"], Float[Array, "*columns"]]:
        likely = jnp.argmax(self.log_weights)
        centre, scale = jax.tree.map(lambda leaf: leaf[likely], self.components).location
        return centre + self.offset, scale

    @property
    def support(self) -> Support:
        return self.components.support

    @jax.jit
    def quantile(self, q: Any) -> Float[Array, "..."]:
        q = jnp.asarray(q, float)
        if isinstance(self.components, Joint):
            return _stack(
                MixtureSameFamily(self.log_weights, column, self.offset[i, ...]).quantile(q)
                for i, column in enumerate(self.components.marginals)
            )
        return super().quantile(q)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*columns"]:
        key_component, key_value = jax.random.split(key)
        which = jax.random.categorical(key_component, self.log_weights)
        component = jax.tree.map(lambda leaf: leaf[which], self.components)
        return self.offset + component.sample(key_value)

    def _relative(self, x: Any) -> Numbers:
        """x minus the offset, subtracted in double precision unless traced."""
        if not any(isinstance(each, jax.core.Tracer) for each in (x, self.offset)):
            x = np.asarray(x, np.float64) - np.asarray(self.offset, np.float64)
            return jnp.asarray(x, float)
        return jnp.asarray(x - self.offset, float)

    def _mean(self, function: Any) -> Numbers:
        """The mean of a function of the components; at those of weight 0 it may be infinite."""
        values = jax.vmap(function)(self.components)
        weights = jnp.exp(self.log_weights)
        weights = weights.reshape(-1, *(1,) * (values.ndim - 1))
        return jnp.sum(jnp.where(weights > 0, weights * values, 0.0), axis=0)
