"""Several columns with common switching points."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from switchpoint.segments.base import Segment
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
            if not isinstance(column, Segment) or column.event:
                raise ValueError(
                    "columns must be segment models of single values, such as "
                    f"switchpoint.Gaussian(), got {column!r}"
                )
        self.columns = columns

    @property
    def event(self) -> tuple[int, ...]:
        return (len(self.columns),)

    def statistic(self, x: Float[Array, " columns"]) -> tuple[Any, ...]:
        return self.run_of(x)

    def run_of(self, x: Float[Array, " columns"]) -> tuple[Any, ...]:
        return tuple(column.run_of(x[i]) for i, column in enumerate(self.columns))

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

    def log_density(
        self, statistics: tuple[Any, ...], x: Float[Array, " columns"]
    ) -> Float[Array, ""]:
        parts = enumerate(zip(self.columns, statistics, strict=True))
        return jnp.asarray(sum(column.log_density(each, x[i]) for i, (column, each) in parts))

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

    def level_mean(self, statistics: tuple[Any, ...]) -> Float[Array, "features columns"]:
        means = [
            _of_one_output(column, column.level_mean(each))
            for column, each in zip(self.columns, statistics, strict=True)
        ]
        return jax.scipy.linalg.block_diag(*means)

    def level_covariance(
        self, statistics: tuple[Any, ...]
    ) -> Float[Array, "features features columns"]:
        parts = []
        for column, each in zip(self.columns, statistics, strict=True):
            if not column.finite:
                parts.append(column.level_covariance(each)[..., 0])
            else:
                features = len(column.level_mean(each))
                parts.append(jnp.full((features, features), jnp.nan))
        ends = np.cumsum([len(part) for part in parts])
        whole = jnp.zeros((ends[-1], ends[-1], len(parts)))
        for i, (end, part) in enumerate(zip(ends, parts, strict=True)):
            begin = end - len(part)
            whole = whole.at[begin:end, begin:end, i].set(part)
        return whole

    def level_features(self, statistics: tuple[Any, ...]) -> Float[Array, " features"]:
        parts = zip(self.columns, statistics, strict=True)
        return jnp.concatenate([column.level_features(each) for column, each in parts])

    @property
    def located(self) -> Bool[np.ndarray, " columns"]:
        return np.array([bool(column.located) for column in self.columns])

    def translate(self, statistics: tuple[Any, ...], by: Float[Array, " columns"]) -> Any:
        parts = enumerate(zip(self.columns, statistics, strict=True))
        return tuple(column.translate(each, by[i]) for i, (column, each) in parts)


def _of_one_output(
    column: Segment, mean: Float[Array, "features outputs"]
) -> Float[Array, "features 1"]:
    """The level of a column in one number: for symbols, their mean."""
    if not column.finite:
        return mean
    return (mean @ jnp.arange(column.alphabet, dtype=float))[:, None]
