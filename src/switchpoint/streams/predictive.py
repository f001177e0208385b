"""The predictive distribution of a stream of values, in double precision on the host."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from switchpoint.segments import MixtureSameFamily
from switchpoint.segments.values import families_by_column
from switchpoint.streams.host import HostFamily, Table


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
        if self._family.is_missing(x):
            return 0.0
        if self._is_impossible(x):
            return -np.inf
        table = [each.copy() for each in self._table]
        joint = self._log_weights + self._family.absorb(table, x if x.ndim else float(x))
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
    def _mixture(self) -> MixtureSameFamily:
        log_weights = self._log_weights - np.logaddexp.reduce(self._log_weights)
        with jax.enable_x64(True):
            statistics = self._family.statistics(self._table)
            components = jax.vmap(self._family.segment.predictive)(statistics)
            return MixtureSameFamily(
                jax.numpy.asarray(log_weights),
                components,
                jax.numpy.zeros(self._family.segment.event_shape),
            )

    @property
    def mean(self) -> Any:
        """E[X]; infinite or NaN where it does not exist."""
        return self._from_mixture(lambda mixture: mixture.mean)

    @property
    def variance(self) -> Any:
        """Var[X]; infinite or NaN where it does not exist."""
        return self._from_mixture(lambda mixture: mixture.variance)

    def cdf(self, x: Any) -> Any:
        """P(X <= x); of each column of a vector."""
        return self._from_mixture(lambda mixture: mixture.cdf(x))

    def quantile(self, q: Any) -> Any:
        """The smallest x with P(X <= x) >= q; of each column of a vector."""
        return self._from_mixture(lambda mixture: mixture.quantile(q))

    def sample(self, key: Any) -> Any:
        """One draw, with a JAX random key."""
        return self._from_mixture(lambda mixture: mixture.sample(key))

    def _from_mixture(self, function: Any) -> Any:
        with jax.enable_x64(True):
            found = np.asarray(function(self._mixture))
        return found if found.ndim else float(found)
