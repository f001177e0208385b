"""Several columns with common switching points."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

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

    def statistic(self, x: Numbers) -> tuple[Any, ...]:
        return tuple(column.statistic(x[..., i]) for i, column in enumerate(self.columns))

    def empty(self) -> tuple[Any, ...]:
        return tuple(column.empty() for column in self.columns)

    def initial(self) -> tuple[Any, ...]:
        return tuple(column.initial() for column in self.columns)

    def missing(self) -> tuple[Any, ...]:
        return tuple(column.missing() for column in self.columns)

    def merge(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            column.merge(*pair) for column, *pair in zip(self.columns, before, after, strict=True)
        )

    def predictive(self, statistics: tuple[Any, ...]) -> Product:
        parts = zip(self.columns, statistics, strict=True)
        return Product(tuple(column.predictive(each) for column, each in parts))

    def run_log_density(
        self, before: tuple[Any, ...], run: tuple[Any, ...]
    ) -> tuple[Float[Array, ""], Float[Array, ""]] | None:
        parts = []
        for column, *pair in zip(self.columns, before, run, strict=True):
            part = column.run_log_density(*pair)
            if part is None:
                return None
            parts.append(part)
        of_counts, of_values = (sum(each[1:], each[0]) for each in zip(*parts, strict=True))
        return of_counts, of_values

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Any, ...]:
        keys = jax.random.split(key, len(self.columns))
        return tuple(
            column.sample(each, shape) for column, each in zip(self.columns, keys, strict=True)
        )

    def emission(self, parameters: tuple[Any, ...], statistics: tuple[Any, ...]) -> Product:
        parts = zip(self.columns, parameters, statistics, strict=True)
        return Product(tuple(column.emission(*each) for column, *each in parts))

    def level_posterior(self, statistics: tuple[Any, ...]) -> Level:
        """The levels of the columns side by side: features and outputs of each by itself."""
        parts = zip(self.columns, statistics, strict=True)
        levels = [_level_of_column(column, each) for column, each in parts]
        sizes = [len(level.mean) for level in levels]
        covariance = jnp.zeros((sum(sizes), sum(sizes), len(levels)))
        end = 0
        for i, level in enumerate(levels):
            begin, end = end, end + sizes[i]
            covariance = covariance.at[begin:end, begin:end, i].set(level.covariance[..., 0])
        mean = jax.scipy.linalg.block_diag(*(level.mean for level in levels))
        return Level(mean, covariance, jnp.concatenate([level.features for level in levels]))

    @property
    def shiftable(self) -> Bool[np.ndarray, " columns"]:
        return np.array([bool(column.shiftable) for column in self.columns])

    @property
    def location(self) -> tuple[Any, ...]:
        return tuple(column.location for column in self.columns)

    def translated(self, by: Any) -> Segment:
        moved = (column.translated(each) for column, each in zip(self.columns, by, strict=True))
        return eqx.tree_at(lambda segment: segment.columns, self, tuple(moved))

    def translate(self, statistics: tuple[Any, ...], by: Any) -> Any:
        parts = enumerate(zip(self.columns, statistics, strict=True))
        return tuple(column.translate(each, by[i]) for i, (column, each) in parts)


def _level_of_column(column: Segment, statistics: Any) -> Any:
    """The level of a column in one number: for symbols their mean, of unknown covariance."""
    level = column.level_posterior(statistics)
    if not column.finite:
        return level
    mean = level.mean @ jnp.arange(column.alphabet, dtype=float)
    return Level(mean[:, None], jnp.full((len(mean), len(mean), 1), jnp.nan), level.features)
