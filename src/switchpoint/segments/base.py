"""The interface of a segment model: a conjugate family of distributions."""

from abc import abstractmethod
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint.segments.distributions import Distribution

Parameter: TypeAlias = float | Float[Array, "..."]
"""A hyperparameter that is a leaf of its module: a Python float unless traced."""

_LOWEST = -1e30  # a log density that is lower would overflow in single precision

Statistics: TypeAlias = Any
"""The sufficient statistics of a run of observations: a pytree of arrays."""


class Segment(eqx.Module):
    """The observations of a segment, whose parameters are drawn once per segment.

    All that the exact algorithms need is how the next observation is distributed given *sufficient
    statistics* of the segment so far, and how the statistics of adjacent runs of observations are
    merged. Where statistics simply add up, a family of your own is two methods:

        import jax.numpy as jnp
        import switchpoint as sp
        from switchpoint.segments import StudentT

        class Volatility(sp.Segment):
            '''Noise around 0, whose precision is drawn from Gamma(shape, rate).'''

            shape: float = 1.0
            rate: float = 1.0

            def statistic(self, x):
                return jnp.ones_like(x), x**2

            def predictive(self, statistics):
                count, squares = statistics
                shape, rate = self.shape + count / 2, self.rate + squares / 2
                return StudentT(2 * shape, 0.0, rate / shape)

        bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), Volatility()))

    Whole sequences, streams, posteriors, sampling and fitting follow, under every prior. Methods
    are written for one observation and one segment; they are vectorised where they are used.
    Fields are hyperparameters, which are traced: another value does not recompile. What decides
    about shapes must be static (`equinox.field(static=True)`).

    An observation that is NaN is missing: it has log density 0, and changes nothing.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "pseudo_counts" in cls.__dict__ and not hasattr(cls, "probs"):
            raise TypeError(
                f"{cls.__name__} has pseudo_counts: make it a subclass of "
                "switchpoint.segments.Dirichlet, which derives the rest from them"
            )

    real_fields: ClassVar[tuple[str, ...]] = ()
    """The hyperparameters that may be any real number; the others are above 0."""

    @abstractmethod
    def statistic(self, x: Float[Array, "..."]) -> Statistics:
        """The statistics of a single observation."""

    @abstractmethod
    def predictive(self, statistics: Statistics) -> Distribution:
        """The distribution of the next observation of a segment with these statistics."""

    def merge(self, before: Statistics, after: Statistics) -> Statistics:
        """The statistics of two adjacent runs; by default their sum."""
        return jax.tree.map(jnp.add, before, after)

    def empty(self) -> Statistics:
        """The statistics of no observations, neutral in `merge`; by default zeros."""
        shapes = jax.eval_shape(self.statistic, jnp.zeros(self.event))
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def initial(self) -> Statistics:
        """The statistics of a segment before its first observation: `empty`, or its prior.

        A prior that is worth some observations is merged with those that follow.
        """
        return self.empty()

    def missing(self) -> Statistics:
        """The statistics of one missing observation; by default those of none."""
        return self.empty()

    def run_log_density(
        self, before: Statistics, run: Statistics
    ) -> tuple[Float[Array, ""], Float[Array, ""]] | None:
        """ln p(the observations of a run | the statistics of the segment before it), if closed.

        It is the sum of two terms, of which the first depends on which observations are missing,
        but not on their values: it is computed once for many runs. None, the default, means the
        sum of `log_density` over the observations.
        """
        del before, run
        return None

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Any:
        """Parameters of segments, drawn from their prior: a pytree of arrays of this shape.

        By default there are none, and `emission` draws from the predictive distribution.
        """
        del key, shape
        return ()

    def emission(self, parameters: Any, statistics: Statistics) -> Distribution:
        """The distribution of the next observation, given the parameters of the segment."""
        del parameters
        return self.predictive(statistics)

    def level_mean(self, statistics: Statistics) -> Float[Array, "features outputs"]:
        """The posterior mean of the level: coefficients of `level_features`.

        The level is the mean of the next observation given the parameters of the segment (for
        symbols, their probabilities). By default it is taken from `predictive`.
        """
        predictive: Any = self.predictive(statistics)
        return jnp.atleast_1d(predictive.probs if self.finite else predictive.mean)[None]

    def level_covariance(self, statistics: Statistics) -> Float[Array, "features features outputs"]:
        """The posterior covariance of those coefficients."""
        return jnp.full_like(self.level_mean(statistics), jnp.nan)[None]

    def level_features(self, statistics: Statistics) -> Float[Array, " features"]:
        """What the level of the next observation depends on besides the parameters."""
        del statistics
        return jnp.ones(1)

    @property
    def finite(self) -> bool:
        """Whether observations are symbols of a finite alphabet."""
        return False

    @property
    def alphabet(self) -> int:
        """The number of symbols, which are 0..alphabet-1."""
        raise AttributeError(f"{self!r} has no alphabet: use log_density, not log_probs")

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of an observation: () or (columns,)."""
        return ()

    @property
    def located(self) -> Bool[np.ndarray, "*event"]:
        """Whether `translate` moves the origin of the values, for each column."""
        return np.zeros(self.event, bool)

    def translate(self, statistics: Statistics, by: Float[Array, "*event"]) -> Statistics:
        """The statistics of the values minus `by`.

        For families of real values, whose digits are then those of differences between values.
        """
        del by
        return statistics

    def invalid(self, values: Float[np.ndarray, "*event"]) -> tuple[Bool[np.ndarray, "..."], str]:
        """Which values cannot occur, and what they should be; elementwise."""
        if not self.finite:
            return np.zeros(np.shape(values), bool), ""
        outside = (values < 0) | (values >= self.alphabet) | (values != np.floor(values))
        return outside, f"whole numbers from 0 to {self.alphabet - 1}"

    def run_of(self, x: Float[Array, "*event"]) -> Statistics:
        """The statistics of one observation, which may be missing."""
        gap = jnp.isnan(x)
        seen = self.statistic(jnp.where(gap, 0.0, x))
        return jax.tree.map(lambda one, none: jnp.where(gap, none, one), seen, self.missing())

    def observe(self, statistics: Statistics, x: Float[Array, "*event"]) -> Statistics:
        """The statistics after one more observation, which may be missing."""
        return self.merge(statistics, self.run_of(x))

    def log_density(self, statistics: Statistics, x: Float[Array, "*event"]) -> Float[Array, ""]:
        """ln p(x) of the next observation; 0 if it is missing."""
        gap = jnp.isnan(x)
        known = self.predictive(statistics).log_density(jnp.where(gap, 0.0, x))
        return jnp.where(gap, 0.0, jnp.maximum(known, _LOWEST))


def positive(name: str, value: ArrayLike) -> Parameter:
    """A hyperparameter above 0, checked unless traced."""
    return value if isinstance(value, jax.core.Tracer) else _checks.positive_float(name, value)


def real(name: str, value: ArrayLike) -> Parameter:
    """A finite hyperparameter, checked unless traced."""
    return value if isinstance(value, jax.core.Tracer) else _checks.finite_float(name, value)


def weighted_mean(
    weights: tuple[Float[Array, ""], Float[Array, ""]],
    means: tuple[Float[Array, ""], Float[Array, ""]],
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """The weight and the mean of two groups together, and the squared deviation between them.

    The pairwise formula of Chan, Golub and LeVeque (1983); no large sums are subtracted.
    """
    (first, second), (mean, other) = weights, means
    total = first + second
    share = second / jnp.where(total > 0, total, 1.0)
    gap = other - mean
    return total, mean + share * gap, first * share * gap * gap
