"""The interface of a segment model: a conjugate family of distributions."""

import operator
from abc import abstractmethod
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter, Parametric
from switchpoint.segments.distributions import Distribution

_LOWEST = -1e30  # a log density that is lower would overflow in single precision

Statistics: TypeAlias = Any
"""The sufficient statistics of a run of observations: a pytree of arrays."""


class Level(NamedTuple):
    """The coefficients of the level of a segment, given its observations."""

    mean: Float[Array, "features outputs"]
    covariance: Float[Array, "features features outputs"] | None
    """None for the probabilities of symbols."""


class Segment(Parametric):
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

    Whole sequences, streams, posteriors, sampling, saved states and fitting follow, under every
    prior. Methods are written for one observation and one segment; compiled programs vectorise
    them. A family whose formulas also work on NumPy arrays with further leading axes (use
    `switchpoint.segments.namespace` in place of `jnp`) is not compiled in a `Stream`, and faster
    there. Fields are hyperparameters: their numbers become NumPy scalars, which are
    traced, so another value does not recompile. Sizes must be static
    (`equinox.field(static=True)`).

    Two methods must be written. `merge`, `initial` and `missing` are for statistics that do not
    simply add up; `observe` and `run_log_density` for faster or more accurate formulas; `sample`
    and `emission` for the parameters of segments; `level_posterior` and `level_features` for the
    level in posteriors; `location_field` and `translate` for large values; `invalid` for messages.

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

    location_field: ClassVar[str | None] = None
    """The hyperparameter that is itself a value, and moves with the origin of the values.

    A family that has one defines `translate`.
    """

    @abstractmethod
    def statistic(self, x: Float[Array, "..."]) -> Statistics:
        """The statistics of a single observation."""

    @abstractmethod
    def predictive(self, statistics: Statistics) -> Distribution:
        """The distribution of the next observation of a segment with these statistics."""

    def merge(self, before: Statistics, after: Statistics) -> Statistics:
        """The statistics of two adjacent runs; by default their sum.

        Associative, and zeros, the statistics of no observations, are neutral.
        """
        return jax.tree.map(operator.add, before, after)

    def initial(self) -> Statistics:
        """The statistics of a segment before its first observation: zeros, or its prior.

        A prior that is worth some observations is merged with those that follow.
        """
        return no_statistics(self)

    def missing(self) -> Statistics:
        """The statistics of one missing observation; by default those of none."""
        return no_statistics(self)

    def observe(self, statistics: Statistics, x: Numbers) -> tuple[Numbers, Statistics]:
        """ln p(x) of the next observation, and the statistics that include it.

        By default from `predictive` and `merge`; both often share most of their work.
        """
        return self.predictive(statistics).log_density(x), self.merge(statistics, self.statistic(x))

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

    def level_posterior(self, statistics: Statistics) -> Level:
        """The posterior mean and covariance of the level of a segment.

        The level is the mean of the next observation given the parameters of the segment (for
        symbols, their probabilities): a linear function of `level_features`.
        """
        predictive: Any = self.predictive(statistics)
        if self.finite:
            return Level(predictive.probs[None], None)
        mean = jnp.atleast_1d(predictive.mean)[None]
        return Level(mean, jnp.full_like(mean, jnp.nan)[None])

    def level_features(self, statistics: Statistics) -> Float[Array, " features"]:
        """The features of the next observation, on which its level depends linearly."""
        del statistics
        return jnp.ones(1)

    @property
    def finite(self) -> bool:
        """Whether observations are symbols of a finite alphabet: whether there is an `alphabet`."""
        return type(self).alphabet is not Segment.alphabet

    @property
    def alphabet(self) -> int:
        """The number of symbols, which are 0..alphabet-1."""
        raise AttributeError(f"{self!r} has no alphabet: use log_density, not log_probs")

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of an observation: () or (columns,)."""
        return ()

    @property
    def shiftable(self) -> Bool[np.ndarray, "*event"]:
        """Whether there is a location, which moves with the origin, for each column."""
        return np.full(self.event_shape, self.location_field is not None)

    @property
    def location(self) -> Any:
        """The hyperparameter that moves with the origin of the values, for each column, or 0."""
        return 0.0 if self.location_field is None else getattr(self, self.location_field)

    def translated(self, by: Numbers) -> "Segment":
        """The family of the values minus `by`, which is 0 in columns without a location."""
        if self.location_field is None:
            return self
        return eqx.tree_at(attrgetter(self.location_field), self, self.location - by)

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


def no_statistics(segment: Segment) -> Statistics:
    """The statistics of no observations: zeros."""
    shapes = jax.eval_shape(segment.statistic, jnp.zeros(segment.event_shape))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def prior_statistics(segment: Segment) -> Statistics:
    """The statistics of a segment before its first observation, as JAX arrays."""
    shapes = jax.eval_shape(segment.statistic, jnp.zeros(segment.event_shape))
    return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), segment.initial(), shapes)


def lift(segment: Segment, x: Numbers) -> Statistics:
    """The statistics of one observation, which may be missing."""
    columns = getattr(segment, "columns", None)
    if columns is not None:
        return tuple(lift(column, x[..., i]) for i, column in enumerate(columns))
    return _unless_missing(x, segment.statistic, segment.missing())


def observe(segment: Segment, statistics: Statistics, x: Numbers) -> Statistics:
    """The statistics of a segment after one more observation, which may be missing."""
    return segment.merge(statistics, lift(segment, x))


def log_density(segment: Segment, statistics: Statistics, x: Numbers) -> Numbers:
    """ln p(x) of the next observation; 0 if it is missing."""
    columns = getattr(segment, "columns", None)
    if columns is not None:
        parts = enumerate(zip(columns, statistics, strict=True))
        return sum(log_density(column, each, x[..., i]) for i, (column, each) in parts)
    maximum = namespace(x).maximum

    def bounded(known: Any) -> Any:
        return maximum(segment.observe(statistics, known)[0], _LOWEST)

    return _unless_missing(x, bounded, 0.0)


def _unless_missing(x: Any, function: Any, otherwise: Any) -> Any:
    """`function(x)`, or `otherwise` where x is missing; its gradient is finite in both cases."""
    xp = namespace(x)
    gap = xp.isnan(x)
    if xp is np and not gap.any():
        return function(x)
    found = function(xp.where(gap, 0.0, x))
    return jax.tree.map(lambda one, none: xp.where(gap, none, one), found, otherwise)


def positive(name: str, value: ArrayLike) -> Parameter:
    """A hyperparameter above 0, checked unless traced."""
    return value if isinstance(value, jax.core.Tracer) else _checks.positive_float(name, value)


def real(name: str, value: ArrayLike) -> Parameter:
    """A finite hyperparameter, checked unless traced."""
    return value if isinstance(value, jax.core.Tracer) else _checks.finite_float(name, value)


def weighted_mean(weights: tuple[Any, Any], means: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """The weight and the mean of two groups together, and the squared deviation between them.

    The pairwise formula of Chan, Golub and LeVeque (1983); no large sums are subtracted. The mean
    is computed from that of the larger weight, which keeps its digits if the other is far away, as
    a prior that says little may be.
    """
    (first, second), (mean, other) = weights, means
    total = first + second
    xp = namespace(total)
    inverse = 1 / xp.where(total > 0, total, 1.0)
    share = second * inverse
    gap = other - mean
    merged = xp.where(first < second, other - first * inverse * gap, mean + share * gap)
    return total, merged, first * share * gap * gap
