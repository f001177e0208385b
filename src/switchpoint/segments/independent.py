"""Several columns with common switching points."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from switchpoint._namespace import Numbers
from switchpoint.segments.base import Level, Segment
from switchpoint.segments.distributions import Product


class Independent(Segment):
    """Several columns with common switching points, independent within a segment.

    Generative model: theta_i ~ the prior of family i, once per segment, and
    x_t[i] | theta_i ~ that family, for the columns i of an observation. Statistics are those of
    the columns side by side, and so is the merge; the predictive is their product:

        p(x_{n+1}) = product over columns i of p_i(x_{n+1}[i])

    Values are (..., time, columns). A NaN is missing in its column alone. The cost is the sum of
    the costs of the columns; all of them are evidence for common switching points.

    - `columns`: a family of single values for each column.

    >>> import switchpoint as sp
    >>> both = sp.Independent(sp.NormalGamma(), sp.Poisson())
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), both))
    >>> bayes.predict(bayes.init()).mean.tolist()
    [0.0, 1.0]
    """

    columns: tuple[Segment, ...]

    def __init__(self, *columns: Segment) -> None:
        if not columns:
            raise ValueError("columns must be at least one Segment, got none")
        for column in columns:
            if not isinstance(column, Segment) or column.event_shape:
                raise ValueError(
                    "columns must be segment models of single values, such as "
                    f"switchpoint.Gaussian(), got {column!r}"
                )
        self.columns = columns

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (len(self.columns),)

    @property
    def missing_is_marginal(self) -> bool:
        return all(column.missing_is_marginal for column in self.columns)

    def statistic(self, x: Numbers) -> tuple[Any, ...]:
        return tuple(column.statistic(x[..., i]) for i, column in enumerate(self.columns))

    def empty(self) -> tuple[Any, ...]:
        return self._each("empty")

    def initial(self) -> tuple[Any, ...]:
        return self._each("initial")

    def missing(self) -> tuple[Any, ...]:
        return self._each("missing")

    def merge(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._each("merge", before, after)

    def predictive(self, statistics: tuple[Any, ...]) -> Product:
        return Product(self._each("predictive", statistics))

    def _absorb(self, statistics: tuple[Any, ...], x: Numbers) -> tuple[Any, tuple[Any, ...]]:
        xs = tuple(x[..., i] for i in range(len(self.columns)))
        logs, after = zip(*self._each("_absorb", statistics, xs), strict=True)
        return sum(logs), after

    def run_log_density(
        self, before: tuple[Any, ...], run: tuple[Any, ...]
    ) -> tuple[Numbers, Numbers] | None:
        parts = self._each("run_log_density", before, run)
        if any(part is None for part in parts):
            return None
        of_counts, of_values = zip(*parts, strict=True)
        return sum(of_counts[1:], of_counts[0]), sum(of_values[1:], of_values[0])

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Any, ...]:
        keys = jax.random.split(key, len(self.columns))
        return self._each("sample", keys, (shape,) * len(self.columns))

    def emission(self, parameters: tuple[Any, ...], statistics: tuple[Any, ...]) -> Product:
        return Product(self._each("emission", parameters, statistics))

    def level_posterior(self, statistics: tuple[Any, ...]) -> tuple[Level, ...]:
        """The level of each column."""
        parts = zip(self.columns, statistics, strict=True)
        return tuple(_level_of_column(column, each) for column, each in parts)

    def translate(self, statistics: tuple[Any, ...], by: Any) -> Any:
        return self._each("translate", statistics, tuple(by[i] for i in range(len(self.columns))))

    def _each(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        """The results of a method of each column, with its part of each argument."""
        columns = zip(self.columns, *arguments, strict=True)
        return tuple(getattr(column, method)(*parts) for column, *parts in columns)


def _level_of_column(column: Segment, statistics: Any) -> Any:
    """The level of a column in one number: for symbols their mean, of unknown covariance."""
    level: Any = column.level_posterior(statistics)
    if not column.finite:
        return level
    mean = level.mean @ jnp.arange(column.alphabet, dtype=float)
    return Level(mean[:, None], jnp.full((len(mean), len(mean), 1), jnp.nan), level.features)
