"""Real values around a line, the harmonics of seasons and their own past, with unknown noise."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers, broadcast_batch, namespace
from switchpoint._parameters import Parameter, location, positive
from switchpoint.segments._special import log
from switchpoint.segments._triangular import between, insert
from switchpoint.segments.base import Level, Segment, scalar_level
from switchpoint.segments.distributions import Distribution, Normal, StudentT
from switchpoint.segments.normal_gamma import noise_variance, noisy_run_log_density


class RegressionRun(NamedTuple):
    """A regression fitted to a run, as the triangular root of its centred Gram matrix.

    Times count from the beginning of the run. The first values of a run that does not begin a
    segment wait for the values before them, which are their lags.
    """

    weight: Numbers
    """The number of observations in the fit."""
    means: Numbers
    """(..., features + 1): the means of their features, and of their values."""
    root: tuple[Numbers, ...]
    """Rows (..., features + 1) of R and Q'y, of the QR decomposition of the centred features."""
    shape: Numbers
    """Half the number of observations, those that wait included."""
    rate: Numbers
    """Half the sum of squared residuals."""
    duration: Numbers
    """The length of the run, missing observations included."""
    first: tuple[Numbers, ...]
    """As many of the first observed values as there are lags, if they wait for theirs; whole rows
    if there are covariates."""
    since: tuple[Numbers, ...]
    """Their times."""
    waiting: Numbers
    """The number of values that wait."""
    last: tuple[Numbers, ...]
    """As many of the last observed values as there are lags, the newest last."""
    seen: Numbers
    """The number of these that are known."""


class Regression(Segment):
    """Real values around a regression on time and on their own past, with unknown noise.

    Generative model, with coefficients beta and the precision tau drawn once per segment, and
    t = 0, 1, ... from its start:

        tau ~ Gamma(shape, rate),    beta_j | tau ~ N(0, scale_j^2 / tau),
        x_t ~ N(level + beta' f_t, 1 / tau)

    The features f_t are 1 (scale `level_scale`); with `slope`, t (`slope_scale`); for each period P
    of `season` and j = 1..harmonics, cos(2 pi j t / P) and sin(2 pi j t / P) (`season_scale`); and
    for k = 1..lags, the k-th last observed value minus `level` (`lag_scale`), which is 0 before the
    segment has k values. Lags model autocorrelated noise: with one, the values are an AR(1) process
    around a line. With `covariates` = m, observations are rows (x_t, c_1, ..., c_m), the last
    features are the c_i (`covariate_scale`), and densities are those of x_t given the c_i. Where
    rows are sampled, the c_i are standard normal. The level is that for covariates of 0.

    Statistic: the means of features and values, and the triangular root of their centred Gram
    matrix, so that no large squares are subtracted. Runs merge by Givens rotations, after the
    second has been moved in time, which shifts t and rotates each pair of a cosine and a sine.
    Given the posterior mean b and precision matrix tau L of the coefficients, and
    Gamma(alpha, beta) of tau:

        x_t ~ StudentT(2 alpha, level + b' f_t, (beta / alpha) (1 + f_t' L^-1 f_t))

    which is Bayesian linear regression (Gelman et al., "Bayesian Data Analysis", chapter 14), in
    O(k^2) per observation and hypothesis, and O(k^3) per merge, for k features. `NormalGamma` is
    the case without features, `Trend` that of a slope alone; both are faster. A missing value lets
    time pass.

    - `slope`: whether there is one;
    - `season`: periods of at least 2 observations, which need not be whole;
    - `harmonics` >= 1 of each season, of which those above half the period are left out;
    - `lags` >= 0, `covariates` >= 0;
    - `level_scale`, `slope_scale`, `season_scale`, `lag_scale`, `covariate_scale` > 0: the spread
      of coefficients between segments, in units of the noise;
    - `shape` > 0, `rate` > 0: the prior of the noise, whose variance is about rate / shape;
    - `level`: the expected level at the start, any real number.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> weekly = sp.Regression(season=7, season_scale=10.0)
    >>> x = np.sin(2 * np.pi * np.arange(70) / 7)
    >>> next_one = sp.segments.forecast(weekly, x[:-1], horizon=1)
    >>> print(f"{next_one.mean[0]:.1f}, then {x[-1]:.1f}")
    -0.8, then -0.8
    """

    passing: ClassVar[tuple[str, ...]] = ("duration", "last", "seen")
    slope: bool = eqx.field(static=True)
    season: tuple[float, ...] = eqx.field(static=True)
    harmonics: int = eqx.field(static=True)
    lags: int = eqx.field(static=True)
    covariates: int = eqx.field(static=True)
    level_scale: Parameter = positive()
    slope_scale: Parameter = positive()
    season_scale: Parameter = positive()
    lag_scale: Parameter = positive()
    covariate_scale: Parameter = positive()
    shape: Parameter = positive()
    rate: Parameter = positive()
    level: Parameter = location()

    def __init__(
        self,
        *,
        slope: bool = True,
        season: float | Sequence[float] | Float[np.ndarray, " periods"] = (),
        harmonics: int = 2,
        lags: int = 0,
        covariates: int = 0,
        level_scale: Parameter = 1.0,
        slope_scale: Parameter = 1.0,
        season_scale: Parameter = 1.0,
        lag_scale: Parameter = 1.0,
        covariate_scale: Parameter = 1.0,
        shape: Parameter = 1.0,
        rate: Parameter = 1.0,
        level: Parameter = 0.0,
    ) -> None:
        self.slope = bool(slope)
        periods = [season] if np.ndim(season) == 0 else season
        self.season = tuple(_period(period) for period in periods)  # type: ignore[union-attr]
        if len(set(self.season)) < len(self.season):
            raise ValueError(f"season must not hold a period twice, got {season!r}")
        self.harmonics = _checks.positive_int("harmonics", harmonics)
        self.lags = _checks.whole_number("lags", lags)
        self.level_scale, self.slope_scale = level_scale, slope_scale
        self.covariates = _checks.whole_number("covariates", covariates)
        self.season_scale, self.lag_scale = season_scale, lag_scale
        self.covariate_scale = covariate_scale
        self.shape, self.rate, self.level = shape, rate, level

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (1 + self.covariates,) if self.covariates else ()

    def statistic(self, x: Numbers) -> RegressionRun:
        x = jnp.asarray(x)
        value, covariates = self._columns(x)
        one = jnp.ones_like(value)
        zero, lags = 0.0 * one, self.lags
        others = (zero,) * (lags - 1)
        features = self.features(zero, (zero,) * lags, covariates)
        means = jnp.concatenate([features, value[..., None]], -1)
        waiting = one * (lags > 0)
        return RegressionRun(
            weight=one - waiting,
            means=means * (lags == 0),
            root=(0.0 * means,) * features.shape[-1],
            shape=0.5 * one,
            rate=zero,
            duration=one,
            first=(x, *(0.0 * x,) * (lags - 1))[:lags],
            since=(zero,) * lags,
            waiting=waiting,
            last=(*others, value)[len(others) + 1 - lags :],
            seen=waiting,
        )

    @property
    def missing_is_marginal(self) -> bool:
        return not self.lags

    def missing(self) -> RegressionRun:
        return self.empty()._replace(duration=np.ones(()))

    def initial(self) -> RegressionRun:
        scales = self.scales()
        own = (self.level,) * self.lags
        columns = np.arange(len(scales) + 1)
        return self.empty()._replace(
            weight=1 / self.level_scale**2,
            means=self.level * self._are_values(),
            root=tuple((columns == i) / jnp.asarray(scale) for i, scale in enumerate(scales)),
            shape=self.shape,
            rate=self.rate,
            last=own,
            seen=np.asarray(float(self.lags)),
        )

    def merge(self, before: RegressionRun, after: RegressionRun) -> RegressionRun:
        xp = namespace(before.duration, after.duration)
        moved = self._moved(after, before.duration)
        row, (weight, means) = between(
            xp, (before.weight, before.means), (moved.weight, moved.means)
        )
        root = list(before.root)
        residuals = [insert(xp, root, row)[..., -1]]
        for row, start in zip(moved.root, self._first_columns(), strict=True):
            residuals.append(insert(xp, root, row, start)[..., -1])
        merged = before._replace(
            weight=weight,
            means=means,
            root=tuple(root),
            shape=before.shape + after.shape,
            rate=before.rate + after.rate + 0.5 * sum(each * each for each in residuals),
            duration=before.duration + after.duration,
        )
        for i in range(self.lags):  # the values of the second run whose lags are now known
            lags = (*before.last[i:], *(self._columns(each)[0] for each in moved.first[:i]))
            known = (i < after.waiting) & (before.seen + i >= self.lags)
            merged = self._with(merged, moved.since[i], lags, moved.first[i], known)
        return self._joined(merged, before, moved) if self.lags else merged

    def predictive(self, statistics: RegressionRun) -> "StudentT | GivenCovariates":
        xp = namespace(statistics.duration)
        none = tuple(xp.zeros_like(statistics.duration) for _ in range(self.covariates))
        features = self.features(statistics.duration, statistics.last, none)
        if not self.covariates:
            return _student_t(statistics, features)
        return RegressionGivenCovariates(xp.stack(none, -1), statistics, features)

    def observe(self, statistics: RegressionRun, x: Numbers) -> tuple[Numbers, RegressionRun]:
        zero = namespace(x, statistics.duration).zeros_like(statistics.duration)
        x = x + (zero[..., None] if self.covariates else zero)
        last, value = statistics.last, self._columns(x)[0]
        after = self._with(statistics, statistics.duration, last, x, statistics.duration >= 0)
        return self.predictive(statistics).log_density(x), after._replace(
            shape=statistics.shape + 0.5,
            duration=statistics.duration + 1,
            last=(*last, value)[len(last) + 1 - self.lags :],
        )

    def run_log_density(self, before: RegressionRun, run: RegressionRun) -> tuple[Numbers, Numbers]:
        after = self.merge(before._replace(rate=0.0 * before.rate), run)
        growth = after.weight * (1 / before.weight)
        for i, (row, old) in enumerate(zip(after.root, before.root, strict=True)):
            ratio = row[..., i] / old[..., i]
            growth = growth * ratio * ratio
        if not self.lags:
            return noisy_run_log_density(before, run, after.rate, growth)
        of_counts, of_values = noisy_run_log_density(before, run, after.rate, 0.0 * growth + 1)
        return of_counts, of_values - 0.5 * log(growth)  # the lags are values

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Coefficients of each segment, (*shape, features + 1), and the variance of its noise."""
        key_precision, key_coefficients = jax.random.split(key)
        variance = self.rate / jax.random.gamma(key_precision, self.shape, shape)
        scales = [self.level_scale, *self.scales()]
        noise = jax.random.normal(key_coefficients, (*shape, len(scales)))
        return jnp.stack(scales) * jnp.sqrt(variance)[..., None] * noise, variance

    def emission(
        self, parameters: tuple[Array, Array], statistics: RegressionRun
    ) -> "Normal | GivenCovariates":
        coefficients, variance = parameters
        lags = tuple(each - self.level for each in statistics.last)
        features = self.features(statistics.duration, lags)
        slopes = coefficients[..., 1 + features.shape[-1] :]
        known = coefficients[..., 1 : 1 + features.shape[-1]]
        mean = self.level + coefficients[..., 0] + (known * features).sum(-1)
        if not self.covariates:
            return Normal(mean, variance)
        return NormalGivenCovariates(jnp.zeros_like(slopes), mean, slopes, variance)

    def level_posterior(self, statistics: RegressionRun) -> Level | tuple[Level, ...]:
        means, count = statistics.means, len(statistics.root)
        root = jnp.stack(statistics.root) if count else jnp.zeros((0, 1))
        inverse = jax.scipy.linalg.solve_triangular(root[:, :count], jnp.eye(count))
        coefficients, joint = inverse @ root[:, count], inverse @ inverse.T
        across = -joint @ means[:count]
        constant = 1 / statistics.weight - means[:count] @ across
        covariance = jnp.block([[constant[None, None], across[None]], [across[:, None], joint]])
        mean = jnp.append(means[count] - means[:count] @ coefficients, coefficients)
        features = self.features(statistics.duration, statistics.last, (0.0,) * self.covariates)
        level = Level(
            mean[:, None],
            noise_variance(statistics.shape, statistics.rate) * covariance[..., None],
            jnp.append(1.0, features),
        )
        if not self.covariates:
            return level
        return (level, *(scalar_level(jnp.zeros(()), jnp.zeros(())),) * self.covariates)

    def translate(self, statistics: RegressionRun, by: Float[Array, "*event"]) -> RegressionRun:
        value, _ = self._columns(by)
        return statistics._replace(
            means=statistics.means - value * self._are_values(),
            first=tuple(each - by for each in statistics.first),
            last=tuple(each - value for each in statistics.last),
        )

    def _columns(self, x: Any) -> tuple[Any, tuple[Any, ...]]:
        """The value of an observation, and its covariates."""
        if not self.covariates:
            return x, ()
        return x[..., 0], tuple(x[..., 1 + i] for i in range(self.covariates))

    def _are_values(self) -> Bool[np.ndarray, " columns"]:
        """Of the features and the value, those that are values: the lags, and the last column."""
        count = len(self.scales())
        columns = np.arange(count + 1)
        past = count - self.covariates - columns
        return (columns == count) | ((past > 0) & (past <= self.lags))

    @property
    def _waves(self) -> list[tuple[float, int]]:
        """The period and the number of every harmonic."""
        return [
            (period, j)
            for period in self.season
            for j in range(1, min(self.harmonics, int(period / 2)) + 1)
        ]

    def scales(self) -> list[Parameter]:
        """The scales of the coefficients of `features`."""
        return [
            *[self.slope_scale] * self.slope,
            *[self.season_scale] * (2 * len(self._waves)),
            *[self.lag_scale] * self.lags,
            *[self.covariate_scale] * self.covariates,
        ]

    def _first_columns(self) -> list[int]:
        """The first column of each row of a root that is not 0 once it has been moved in time."""
        waves = range(self.slope, self.slope + 2 * len(self._waves))
        return [
            i - (i - self.slope) % 2 if i in waves else i
            for i in range(waves.stop + self.lags + self.covariates)
        ]

    def features(self, time: Any, lags: Sequence[Any], covariates: Sequence[Any] = ()) -> Any:
        """The features at these times since the start, given the last values, the newest last."""
        columns = [time] if self.slope else []
        for cosine, sine in self._rotations(time):
            columns += [cosine, sine]
        columns += [*reversed(lags), *covariates]
        xp = namespace(*columns, time)
        if not columns:
            return xp.zeros((*np.shape(time), 0))
        return xp.stack(xp.broadcast_arrays(*columns), -1)

    def _rotations(self, time: Any) -> list[tuple[Any, Any]]:
        """The cosine and sine of every harmonic; whole periods are left out, to keep digits."""
        xp = namespace(time)
        angles = [
            2 * math.pi * j * (time / period - xp.floor(time / period)) for period, j in self._waves
        ]
        return [(xp.cos(angle), xp.sin(angle)) for angle in angles]

    def _moved(self, run: RegressionRun, by: Any) -> RegressionRun:
        """A run whose times count from `by` observations before its beginning."""
        rotations = self._rotations(by)
        xp = namespace(by, run.means)

        def rotated(row: Any) -> Any:
            columns = [row[..., i] for i in range(row.shape[-1])]
            for at, (c, s) in zip(range(self.slope, len(columns), 2), rotations, strict=False):
                one, other = columns[at : at + 2]
                columns[at : at + 2] = c * one - s * other, s * one + c * other
            return xp.stack(xp.broadcast_arrays(*columns), -1)

        means, root = run.means, run.root
        if rotations:
            means, root = rotated(means), tuple(rotated(row) for row in root)
        if self.slope:
            time = np.arange(means.shape[-1]) == 0
            means = means + xp.asarray(by * (run.weight > 0))[..., None] * time
        since = tuple(each + by for each in run.since)
        return run._replace(means=means, root=root, since=since)

    def _with(
        self, run: RegressionRun, time: Any, lags: Sequence[Any], x: Any, known: Any
    ) -> RegressionRun:
        """The fit with one more observation, if it is known."""
        value, covariates = self._columns(x)
        xp = namespace(run.weight, time, value)
        features = self.features(time, lags, covariates)
        row = xp.concatenate(broadcast_batch(features, value[..., None]), -1)
        new = xp.where(known, 1.0, 0.0), row
        row, (weight, means) = between(xp, (run.weight, run.means), new)
        root = list(run.root)
        residual = insert(xp, root, row)[..., -1]
        return run._replace(
            weight=weight,
            means=means,
            root=tuple(root),
            rate=run.rate + 0.5 * residual * residual,
        )

    def _joined(
        self, merged: RegressionRun, before: RegressionRun, after: RegressionRun
    ) -> RegressionRun:
        """The merged fit, with the values at both ends of the two runs together."""
        xp = namespace(before.seen, after.seen)
        begun = before.seen > before.waiting  # it begins a segment, and nothing of it waits
        first, since, last = [], [], []
        for j in range(self.lags):
            value, time, end = before.first[j], before.since[j], after.last[j]
            for i in range(j + 1):
                here = ~begun & (before.waiting + i == j) & (i < after.waiting)
                value = xp.where(
                    here[..., None] if self.covariates else here, after.first[i], value
                )
                time = xp.where(here, after.since[i], time)
            for count in range(self.lags - j):
                end = xp.where(after.seen == count, before.last[j + count], end)
            first.append(value)
            since.append(time)
            last.append(end)
        waiting = xp.minimum(before.waiting + after.waiting, self.lags)
        return merged._replace(
            first=tuple(first),
            since=tuple(since),
            waiting=xp.where(begun, before.waiting, waiting),
            last=tuple(last),
            seen=xp.minimum(before.seen + after.seen, self.lags),
        )


class GivenCovariates(Distribution):
    """Rows (x, c_1, ..., c_m), with the density of x given the c_i.

    Where rows are sampled, and for the mean, the c_i are standard normal.
    """

    origin: Float[Array, "... covariates"]
    """Zeros: covariates in the mean."""

    @abstractmethod
    def given(self, covariates: Any) -> Distribution:
        """The distribution of x given the covariates, (..., m)."""

    def log_density(self, x: Any) -> Numbers:
        return self.given(x[..., 1:]).log_density(x[..., 0])

    @property
    def mean(self) -> Float[Array, "... columns"]:
        mean = jnp.asarray(self.given(self.origin).mean)
        return jnp.concatenate([mean[..., None], jnp.asarray(self.origin)], -1)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "... columns"]:
        key_covariates, key_value = jax.random.split(key)
        covariates = jax.random.normal(key_covariates, self.origin.shape)
        value = self.given(covariates).sample(key_value)
        return jnp.concatenate([value[..., None], covariates], -1)


class RegressionGivenCovariates(GivenCovariates):
    """The predictive of a `Regression` with covariates."""

    statistics: RegressionRun
    features: Float[Array, "... features"]
    """Those of the next observation, with covariates of 0."""

    def given(self, covariates: Any) -> StudentT:
        xp = namespace(self.features, covariates)
        features = self.features[..., : -self.origin.shape[-1]]
        return _student_t(
            self.statistics, xp.concatenate(broadcast_batch(features, covariates), -1)
        )


class NormalGivenCovariates(GivenCovariates):
    """x = mean + slopes' c + noise."""

    intercept: Float[Array, "..."]
    slopes: Float[Array, "... covariates"]
    variance_given: Float[Array, "..."]

    def given(self, covariates: Any) -> Normal:
        return Normal(self.intercept + (self.slopes * covariates).sum(-1), self.variance_given)


def _student_t(statistics: RegressionRun, features: Any) -> StudentT:
    """The distribution of a value with these features."""
    ahead = features - statistics.means[..., :-1]
    expected, square = statistics.means[..., -1], 1 + 1 / statistics.weight
    solved: list[Any] = []
    for i, row in enumerate(statistics.root):
        above = (other[..., i] * each for other, each in zip(statistics.root, solved, strict=False))
        solved.append((ahead[..., i] - sum(above)) / row[..., i])
        expected = expected + solved[i] * row[..., -1]
        square = square + solved[i] * solved[i]
    return StudentT(2 * statistics.shape, expected, inverse_spread=0.5 / (statistics.rate * square))


def _period(period: Any) -> float:
    if _checks.finite_float("season", period) < 2:
        raise ValueError(f"season must be a period of at least 2 observations, got {period!r}")
    return float(period)
