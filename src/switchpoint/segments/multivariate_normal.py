"""Correlated columns of real values, with unknown means, variances and correlations."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers, gammaln, namespace
from switchpoint._parameters import Parameter, location, positive
from switchpoint.segments._special import gamma_ratio, log, log1p
from switchpoint.segments._triangular import between, insert
from switchpoint.segments.base import Level, Segment
from switchpoint.segments.distributions import Distribution, Joint, StudentT
from switchpoint.segments.normal_gamma import noise_variance

_DEPENDENT = 1e-5  # of the largest standard deviation: those of a column that follows from others


class NormalWishartRun(NamedTuple):
    """The parameters of a Normal-Wishart distribution, as statistics of a run."""

    weight: Numbers
    mean: Numbers
    """(..., columns)."""
    root: tuple[Numbers, ...]
    """Rows (..., columns) of a triangular R, with R'R half the sum of products of deviations."""
    shape: Numbers
    """Half the number of observations."""


class MultivariateNormal(Segment):
    """Correlated columns of real values, with unknown means, variances and correlations.

    Generative model, with d columns, and the mean vector mu and the covariance matrix Sigma drawn
    once per segment:

        Sigma ~ inverse-Wishart(2 shape + d - 1, 2 diag(rate)),
        mu | Sigma ~ N(mean, Sigma / strength),    x_t | mu, Sigma ~ N(mu, Sigma)

    so that each column alone is a `NormalGamma(mean, strength, shape, rate)`, and some of the
    columns are a `MultivariateNormal` of fewer. Statistic: the number of observations, their mean,
    and the triangular root R of half their centred scatter matrix, merged by Givens rotations.
    With the prior, after n observations, they are the parameters of the posterior: the weight
    w = strength + n, m, R, and a = shape + n / 2. Predictive, a multivariate Student-t:

        x_{n+1} ~ StudentT(df = 2 a, loc = m, squared scale R'R (w + 1) / (a w))

    in O(d^2) per observation and hypothesis, and O(d^3) per merge. The evidence of a run is closed.
    See Murphy (2007), "Conjugate Bayesian analysis of the Gaussian distribution", section 9.

    Values are (..., time, d). A row is observed or missing as a whole: with one that is partly
    missing, the posterior would be of another family, and it is refused. A column that follows
    from others has no noise beside them. Such a noise, learned to be tiny, speaks for long segments
    and hides changes: leave it out, with `principal_axes`.

    - `dimension`: d, the number of columns;
    - `mean`: the expected level, of all columns or of each;
    - `strength` > 0: how many observations the prior of the means is worth;
    - `shape` > 0, `rate` > 0: the prior of the noise of each column, whose variance is about
      rate / shape; a rate for all columns, or one for each.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> rng = np.random.default_rng(0)
    >>> x = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=200)
    >>> x[100:, 1] *= -1  # only the correlation changes
    >>> source = sp.Source(sp.Geometric(0.01), sp.MultivariateNormal(2))
    >>> stream = sp.Stream(sp.bayes_optimal(source))
    >>> _ = stream.extend(x)
    >>> stream.run_length.mode  # of 200 observations
    100
    """

    dimension: int = eqx.field(static=True)
    mean: Numbers = location()
    strength: Parameter = positive()
    shape: Parameter = positive()
    rate: Numbers = positive()

    def __init__(
        self,
        dimension: int,
        mean: Numbers | Sequence[float] = 0.0,
        strength: Parameter = 1.0,
        shape: Parameter = 1.0,
        rate: Numbers | Sequence[float] = 1.0,
    ) -> None:
        self.dimension = _checks.positive_int("dimension", dimension)
        for name, given in (("mean", mean), ("rate", rate)):
            if np.shape(given) not in ((), (dimension,)):
                raise ValueError(
                    f"{name} must be a number, or one for each of {dimension} columns, got shape "
                    f"{np.shape(given)}"
                )
        self.mean = np.array(mean) if isinstance(mean, Sequence) else mean
        self.rate = np.array(rate) if isinstance(rate, Sequence) else rate
        self.strength, self.shape = strength, shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @property
    def complete_rows(self) -> bool:
        return True

    def statistic(self, x: Numbers) -> NormalWishartRun:
        one = namespace(x).ones_like(x[..., 0])
        return NormalWishartRun(one, x, (0.0 * x,) * self.dimension, 0.5 * one)

    def merge(self, before: NormalWishartRun, after: NormalWishartRun) -> NormalWishartRun:
        return self._merged(before, after)[0]

    def initial(self) -> NormalWishartRun:
        xp = namespace(self.mean, self.rate)
        columns = np.arange(self.dimension)
        scales = xp.sqrt(self.rate) * np.ones(self.dimension)
        root = tuple(scales[i] * (columns == i) for i in columns)
        mean = self.mean * np.ones(self.dimension)
        return NormalWishartRun(self.strength, mean, root, self.shape)

    def predictive(self, statistics: NormalWishartRun) -> "MultivariateStudentT":
        weight, mean, rows, shape = statistics
        xp = namespace(weight, mean)
        root = xp.stack(xp.broadcast_arrays(*rows), -2)
        scale = xp.sqrt((weight + 1) / (weight * shape))
        return MultivariateStudentT(2 * shape, mean, xp.asarray(scale)[..., None, None] * root)

    def observe(self, statistics: NormalWishartRun, x: Numbers) -> tuple[Numbers, NormalWishartRun]:
        weight, mean, rows, shape = statistics
        xp = namespace(weight, x)
        gap, total = x - mean, weight + 1
        share = xp.asarray(weight / total)
        ratios: list[Any] = []
        root = list(rows)
        insert(xp, root, xp.sqrt(0.5 * share)[..., None] * gap, ratios=ratios)
        half = 0.5 * self.dimension
        logs = half * xp.log(share / (2 * math.pi)) + _log_gamma_ratio(xp, shape, half)
        logs = logs - _log_determinant(xp, rows) - (shape + half) * log1p(_growth(ratios))
        mean = mean + gap / xp.asarray(total)[..., None]
        return logs, NormalWishartRun(total, mean, tuple(root), shape + 0.5)

    def run_log_density(
        self, before: NormalWishartRun, run: NormalWishartRun
    ) -> tuple[Numbers, Numbers]:
        _, growth = self._merged(before, run)
        shape, half, count = before.shape, run.shape, self.dimension
        of_counts = -0.5 * count * log(1 + run.weight * (1 / before.weight))
        xp = namespace(shape, half, growth)
        of_values = -2 * half * _log_determinant(xp, before.root)
        for i in range(count):
            factor, rest = gamma_ratio(shape + 0.5 * i, half)
            of_counts = of_counts + rest - half * math.log(2 * math.pi) - log(factor)
            of_values = of_values + half * xp.log(shape + 0.5 * i)
        return of_counts, of_values - (shape + half + 0.5 * (count - 1)) * log1p(growth)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The mean and the triangular W of each segment, with Sigma^-1 = W W' (Bartlett, 1933)."""
        key_diagonal, key_below, key_mean = jax.random.split(key, 3)
        count = self.dimension
        half = self.shape + 0.5 * (count - 1 - np.arange(count))
        diagonal = jnp.sqrt(2 * jax.random.gamma(key_diagonal, half, (*shape, count)))
        below = jnp.tril(jax.random.normal(key_below, (*shape, count, count)), -1)
        scale = jnp.broadcast_to(jnp.sqrt(2 * jnp.asarray(self.rate)), (count,))
        whitening = (below + diagonal[..., None] * jnp.eye(count)) / scale[:, None]
        noise = jax.random.normal(key_mean, (*shape, count)) / jnp.sqrt(self.strength)
        return self.mean + _solved(whitening, noise), whitening

    def emission(
        self, parameters: tuple[Array, Array], statistics: NormalWishartRun
    ) -> "CorrelatedNormal":
        del statistics
        return CorrelatedNormal(*parameters)

    def level_posterior(self, statistics: NormalWishartRun) -> Level:
        squares = jnp.sum(jnp.stack(statistics.root) ** 2, axis=0)  # the rates of the columns
        variance = noise_variance(statistics.shape, squares) / statistics.weight
        return Level(statistics.mean[None], variance[None, None])

    def _merged(
        self, before: NormalWishartRun, after: NormalWishartRun
    ) -> tuple[NormalWishartRun, Any]:
        """Both runs together, and by which part the determinant of R'R is larger than before."""
        xp = namespace(before.weight, after.weight)
        row, (weight, mean) = between(xp, (before.weight, before.mean), (after.weight, after.mean))
        ratios: list[Any] = []
        root = list(before.root)
        insert(xp, root, math.sqrt(0.5) * row, ratios=ratios)
        for i, each in enumerate(after.root):
            insert(xp, root, each, i, ratios)
        run = NormalWishartRun(weight, mean, tuple(root), before.shape + after.shape)
        return run, _growth(ratios)


class MultivariateStudentT(Joint):
    """The multivariate Student t with `df` degrees of freedom, shifted by `loc` and scaled.

    With the triangular root R of its squared scale, R'R, d columns, nu = df, and
    q = (x - loc)' (R'R)^-1 (x - loc):

        p(x) = Gamma((nu + d) / 2) / (Gamma(nu / 2) (pi nu)^(d / 2) det R)
               (1 + q / nu)^(-(nu + d) / 2)

    Each column is a `StudentT` of nu degrees of freedom.

    >>> import jax.numpy as jnp
    >>> from switchpoint.segments import MultivariateStudentT
    >>> MultivariateStudentT(4.0, jnp.zeros(2), jnp.eye(2)).variance.tolist()
    [2.0, 2.0]
    """

    df: Numbers
    loc: Numbers
    """(..., columns)."""
    root: Numbers
    """(..., columns, columns): upper triangular."""

    def log_density(self, x: Any) -> Numbers:
        xp = namespace(self.df, self.loc, x)
        root, half = self.root, 0.5 * xp.asarray(self.df, float)
        rows = [root[..., i, :] for i in range(root.shape[-1])]
        square = _squared_length(rows, xp.asarray(x) - self.loc)
        count = 0.5 * len(rows)
        constant = _log_gamma_ratio(xp, half, count) - count * xp.log(math.pi * self.df)
        tail = (half + count) * log1p(square / self.df)
        return constant - _log_determinant(xp, rows) - tail

    @property
    def marginals(self) -> tuple[Distribution, ...]:
        squares = jnp.sum(jnp.asarray(self.root) ** 2, axis=-2)
        return tuple(
            StudentT(self.df, self.loc[..., i], squares[..., i]) for i in range(squares.shape[-1])
        )

    @property
    def covariance(self) -> Float[Array, "... columns columns"]:
        """The covariance matrix; infinite or NaN where it does not exist."""
        df = jnp.asarray(self.df)[..., None, None]
        factor = jnp.where(df > 2, df / jnp.where(df > 2, df - 2, 1.0), jnp.nan)
        return factor * (jnp.swapaxes(self.root, -1, -2) @ self.root)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "... columns"]:
        key_noise, key_scale = jax.random.split(key)
        loc = jnp.asarray(self.loc, float)
        half = 0.5 * jnp.broadcast_to(jnp.asarray(self.df, float), loc.shape[:-1])
        noise = (jax.random.normal(key_noise, loc.shape)[..., None, :] @ self.root)[..., 0, :]
        return loc + noise * jnp.sqrt(half / jax.random.gamma(key_scale, half))[..., None]


class CorrelatedNormal(Distribution):
    """The normal distribution of a vector, whose precision matrix is W W' for a triangular W."""

    loc: Float[Array, " columns"]
    whitening: Float[Array, "columns columns"]
    """W, lower triangular."""

    def log_density(self, x: Any) -> Numbers:
        white = (x - self.loc) @ self.whitening
        logs = jnp.log(jnp.diagonal(self.whitening)) - 0.5 * math.log(2 * math.pi)
        return jnp.sum(logs - 0.5 * white**2)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " columns"]:
        return self.loc + _solved(self.whitening, jax.random.normal(key, self.loc.shape))


def principal_axes(values: Any) -> Float[np.ndarray, "columns axes"]:
    """Axes along which columns are uncorrelated, with variance 1, without those of no variance.

    The principal components of the standardised columns. `values @ axes` has fewer columns where
    some follow from others, such as a column that occurs twice; a constant column has no part in
    it. A `MultivariateNormal` of the result is one of all columns, on the subspace that they span.
    O(time columns^2).

    - `values`: (time, columns), of which rows with a NaN are left out.

    >>> import numpy as np
    >>> from switchpoint.segments import principal_axes
    >>> x = np.random.default_rng(0).normal(size=(100, 1))
    >>> principal_axes(np.repeat(x, 10, axis=1)).shape
    (10, 1)
    """
    values = np.asarray(values, float)
    seen = values[~np.isnan(values).any(axis=1)]
    if len(seen) < 2:
        return np.eye(values.shape[1])
    gaps = seen - seen.mean(axis=0)
    scales = np.sqrt((gaps**2).mean(axis=0))
    varies = scales > _DEPENDENT**2 * np.abs(seen).max(axis=0)
    inverse = np.where(varies, 1 / np.where(varies, scales, 1.0), 0.0)
    _, lengths, axes = np.linalg.svd(gaps * inverse, full_matrices=False)
    kept = lengths > _DEPENDENT * lengths[0]
    if not varies.any():
        return np.zeros((len(scales), 0))
    axes = axes[kept] * np.sign(axes[kept].sum(axis=1, keepdims=True) + 1e-300)
    return (inverse * axes / lengths[kept, None] * math.sqrt(len(seen))).T


def _log_gamma_ratio(xp: Any, z: Any, step: float) -> Any:
    """ln Gamma(z + step) - ln Gamma(z)."""
    if xp is np:
        return gammaln(z + step) - gammaln(z)
    factor, rest = gamma_ratio(jnp.asarray(z, float), jnp.asarray(step, float))
    return step * jnp.log(z) + rest - jnp.log(factor)


def _log_determinant(xp: Any, rows: Any) -> Any:
    """ln det R."""
    return sum(xp.log(row[..., i]) for i, row in enumerate(rows))


def _growth(ratios: list[Any]) -> Any:
    """The product of 1 + each of the ratios, minus 1."""
    growth: Any = 0.0
    for ratio in ratios:
        growth = growth + ratio + growth * ratio
    return growth


def _squared_length(rows: Any, gap: Any) -> Any:
    """gap' (R'R)^-1 gap, by forward substitution."""
    solved: list[Any] = []
    for i, row in enumerate(rows):
        above = sum(other[..., i] * each for other, each in zip(rows, solved, strict=False))
        solved.append((gap[..., i] - above) / row[..., i])
    return sum(each * each for each in solved)


def _solved(whitening: Float[Array, "*batch d d"], noise: Float[Array, "*batch d"]) -> Array:
    """The vectors x with x W = noise."""
    upper = jnp.swapaxes(whitening, -1, -2)
    return jax.scipy.linalg.solve_triangular(upper, noise[..., None])[..., 0]
