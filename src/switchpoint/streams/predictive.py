"""The predictive distribution of a stream of values, in double precision on the host."""

import functools
import math
from typing import Any

import jax
import numpy as np
import scipy.special
from jaxtyping import Float

from switchpoint._namespace import namespace
from switchpoint.segments import Distribution, MixtureSameFamily
from switchpoint.segments.values import families_by_column
from switchpoint.streams.host import HostFamily, Table

_CLOSE = 1e-10  # the relative error of a probability at which its quantile is exact enough
_NEWTON_STEPS, _MOST_STEPS = 30, 200
_NEAR = 0.1  # a quotient of the last two errors, for a cubic to be better than a tangent
_CLOSER = 1e3  # how much more exact it is
_LOST = 30.0  # the logarithm of a ratio of weights


class Predictive:
    """The distribution of the next observation: a mixture over the starts of its segment.

    It stays what it was when the stream goes on. `log_density` is computed here; moments,
    quantiles and draws by the `MixtureSameFamily` of `switchpoint.segments`, in double precision.

    With n hypotheses, a `log_density` takes O(n) time; quantiles bisect the cdf.

    >>> import switchpoint as sp
    >>> stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.05), sp.Gaussian())))
    >>> _ = stream.extend([0.0] * 20 + [4.0] * 5)
    >>> prediction = stream.predict()
    >>> round(prediction.mean, 2), round(prediction.variance, 2), round(prediction.cdf(0.0), 2)
    (3.16, 1.74, 0.03)
    """

    def __init__(
        self, family: HostFamily, log_weights: Float[np.ndarray, " n"], table: Table
    ) -> None:
        self._family = family
        self._log_weights = log_weights
        self._table = table

    def detach(self) -> None:
        """Copy the arrays, which the stream is about to change."""
        self._log_weights = self._log_weights.copy()
        self._table = [each.copy() for each in self._table]

    def log_density(self, x: Any) -> Any:
        """ln p(x); for whole numbers ln P(x). Elementwise, except for the columns of a vector."""
        event = self._family.segment.event_shape
        points = np.asarray(x, np.float64)
        if points.shape[points.ndim - len(event) :] != event:
            raise ValueError(f"x must be an observation of {event[0]} columns, got {x!r}")
        logs = [self._log_density(each) for each in points.reshape(-1, *event)]
        shape = points.shape[: points.ndim - len(event)]
        return np.array(logs).reshape(shape) if shape else logs[0]

    def _log_density(self, x: Any) -> float:
        if self._is_impossible(x):
            return -np.inf
        logs = self._family.absorb(list(self._table), x if x.ndim else float(x))
        if logs is None:
            return 0.0
        joint = self._log_weights + logs
        return float(np.logaddexp.reduce(joint) - np.logaddexp.reduce(self._log_weights))

    def _is_impossible(self, x: Any) -> bool:
        """Whether a value, or one of a column, is none that the family has."""
        segment = self._family.segment
        pairs = zip(families_by_column(segment), np.atleast_1d(x), strict=True)
        return any(
            np.isinf(value) or not (np.isnan(value) or family.support.contains(value))
            for family, value in pairs
        )

    @functools.cached_property
    def _weights(self) -> Float[np.ndarray, " n"]:
        logs = self._log_weights[self._used]
        weights = np.exp(logs - logs[logs.argmax()])
        return weights / np.add.reduce(weights)

    @functools.cached_property
    def _used(self) -> Any:
        """The slots but those whose weights are lost in the sum of all by rounding."""
        logs = self._log_weights
        return np.flatnonzero(logs > logs[logs.argmax()] - _LOST)

    @functools.cached_property
    def _columns(self) -> list["_Column"]:
        """The marginal distributions of the columns, under each hypothesis."""
        marginals = self._family.marginals([each[self._used] for each in self._table])
        return [_Column(self._weights, each) for each in marginals]

    @property
    def mean(self) -> Any:
        """E[X]; infinite or NaN where it does not exist."""
        return self._each(_Column.mean)

    @property
    def variance(self) -> Any:
        """Var[X]; infinite or NaN where it does not exist."""
        return self._each(_Column.variance)

    def cdf(self, x: Any) -> Any:
        """P(X <= x); of each column of a vector."""
        points = np.asarray(x, np.float64)
        if not self._family.segment.event_shape:
            return self._each(lambda column: column.cdf(points))
        parts = zip(self._columns, np.moveaxis(points, -1, 0), strict=True)
        return np.stack([column.cdf(each) for column, each in parts], -1)

    def quantile(self, q: Any) -> Any:
        """The smallest x with P(X <= x) >= q; of each column of a vector."""
        shares = np.asarray(q, np.float64)

        def quantiles(column: _Column) -> Any:
            found = [column.quantile(each) for each in shares.ravel().tolist()]
            return np.reshape(found, shares.shape)

        return self._each(quantiles)

    def sample(self, key: Any) -> Any:
        """One draw, with a JAX random key."""
        with jax.enable_x64(True):
            segment, statistics = self._family.segment, self._family.statistics(self._table)
            mixture = MixtureSameFamily(
                jax.numpy.asarray(self._log_weights),
                jax.vmap(segment.predictive)(statistics),
                jax.numpy.zeros(segment.event_shape),
            )
            draw = np.asarray(mixture.sample(key))
        return draw if draw.ndim else float(draw)

    def _each(self, function: Any) -> Any:
        """The results of a function of each column along the last axis; of one, as a number."""
        results = [np.asarray(function(column)) for column in self._columns]
        if self._family.segment.event_shape:
            return np.stack(results, -1)
        return results[0] if results[0].ndim else float(results[0])


class _Column:
    """A mixture of distributions of a number, by NumPy where their formulas work there."""

    def __init__(self, weights: Float[np.ndarray, " n"], components: Distribution) -> None:
        self._weights, self._components = weights, components
        self._on_host = namespace(*jax.tree.leaves(components)) is np

    def _get(self, name: str, *points: Any) -> Any:
        """A property of the components, or a function at points."""
        if self._on_host:
            found = getattr(self._components, name)
            return found(*points) if points else found
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, _compiled(self._components, name, *points))

    def _average(self, values: Any) -> Any:
        """The mean over the components."""
        values = np.asarray(values)
        if values.shape[-1:] != self._weights.shape:  # the same for all
            values = values * np.ones(len(self._weights))
        return values.dot(self._weights)

    def mean(self) -> Any:
        """E[X]."""
        return self._average(self._get("mean"))

    def cdf(self, x: Any) -> Any:
        """P(X <= x)."""
        return self._average(self._get("cdf", np.asarray(x)[..., None]))

    def variance(self) -> Any:
        """Var[X]."""
        means = self._get("mean")
        with np.errstate(invalid="ignore"):  # infinite means
            squares = (means - self._average(means)) ** 2
            return self._average(self._get("variance") + squares)

    def quantile(self, q: float) -> float:
        """The smallest x with P(X <= x) >= q; NaN unless 0 < q < 1.

        By Newton's method within a bracket, and near the quantile by a cubic through two points;
        for whole numbers by bisection.
        """
        if not 0 < q < 1:
            return math.nan
        centres, scales = self._get("location")
        centre = float(self._average(centres))
        spread = math.sqrt(self._average(scales**2 + (centres - centre) ** 2))
        x = centre + spread * float(scipy.special.ndtri(q))
        if self._components.support.whole:
            return self._whole_quantile(q, round(x))
        low, high, slope, last, close = -math.inf, math.inf, 0.0, 1.0, _CLOSE * min(q, 1 - q) ** 2
        before = x
        for step in range(_MOST_STEPS):
            point = np.array([x])
            gap = float(self._average(self._get("cdf", point))) - q
            low, high = (low, x) if gap >= 0 else (x, high)
            done = abs(gap * last) < close or not low < high
            following = x - gap / slope if slope > 0 else x
            if not done:
                logs = self._get("log_density", point)
                steepness = float(self._average(np.exp(logs)))
                following = x - gap / steepness if steepness > 0 else x
                if slope > 0 and steepness > 0 and abs(gap) < _NEAR * abs(last):
                    following = _cubic_root(before, last, slope, x, gap, steepness)
                    done = abs(gap * last) < _CLOSER * close
                before, slope, last = x, steepness, gap
            if done:
                return following if low <= following <= high else x
            if not low < following < high or following == x or step > _NEWTON_STEPS:
                # Bisect, or double the distance.
                following = 0.5 * (low + high)
                if not math.isfinite(following):
                    spread *= 2
                    following = x - math.copysign(spread, gap)
            x = following
        return x

    def _whole_quantile(self, q: float, start: int) -> float:
        """The same for whole numbers from 0, near `start`."""

        def reached(x: int) -> bool:
            return x >= 0 and bool(self.cdf(float(x)) >= q)

        low, high, step = start - 1, start, 1
        while not reached(high):
            low, high, step = high, high + step, 2 * step
        while step == 1 and reached(low):
            low, high = low - (high - low) * 2, low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return float(high)


def _cubic_root(
    before: float, last: float, slope: float, x: float, gap: float, steepness: float
) -> float:
    """Where the inverse cubic through two points of a function, with these slopes, has its root."""
    rise = gap - last
    share = gap / rise
    rest = 1 - share
    root = x + (before - x) * share**2 * (3 - 2 * share)
    return root + rise * share * rest * (share / slope - rest / steepness)


@functools.partial(jax.jit, static_argnums=1)
def _compiled(components: Distribution, name: str, *points: Any) -> Any:
    found = getattr(components, name)
    return found(*points) if points else found
