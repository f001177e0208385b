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
    """Observations of several columns, each with its own family, independent within a segment.

    Values are (..., time, columns). A NaN is missing in its column alone.
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
        features = [len(level.mean) for level in levels]
        covariance = jnp.zeros((sum(features), sum(features), len(levels)))
        end = 0
        for i, level in enumerate(levels):
            begin, end = end, end + features[i]
            covariance = covariance.at[begin:end, begin:end, i].set(level.covariance[..., 0])
        return Level(jax.scipy.linalg.block_diag(*(level.mean for level in levels)), covariance)

    def level_features(self, statistics: tuple[Any, ...]) -> Float[Array, " features"]:
        parts = zip(self.columns, statistics, strict=True)
        return jnp.concatenate([column.level_features(each) for column, each in parts])

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
    return Level(mean[:, None], jnp.full((len(mean), len(mean), 1), jnp.nan))
