"""The interface of a segment model: a conjugate family of distributions."""

import operator
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parametric, fields_with
from switchpoint.segments.distributions import Distribution, Support

_LOWEST = -1e30  # a log density that is lower would overflow in single precision

Statistics: TypeAlias = Any
"""The sufficient statistics of a run of observations: a pytree of arrays."""


class Level(NamedTuple):
    """The posterior of the level of a segment: features @ coefficients, for uncertain coefficients.

    One of two statistics matters for each part: `features` are those of the observation after the
    statistics, `mean` and `covariance` those of the coefficients given the statistics.

    The variance of output j is f^T C_j f, with the features f and the covariance C_j. A `Gaussian`
    with the prior N(0, 1) and noise N(0, 1), after an observation of 3:

    >>> import jax.numpy as jnp
    >>> import switchpoint as sp
    >>> segment = sp.Gaussian()
    >>> after = segment.merge(segment.initial(), segment.statistic(jnp.array(3.0)))
    >>> level = segment.level_posterior(after)
    >>> level.mean.tolist(), level.covariance.tolist()
    ([[1.5]], [[[0.5]]])
    """

    mean: Float[Array, "features outputs"]
    covariance: Float[Array, "features features outputs"] | None
    """None for the probabilities of symbols."""
    features: Numbers = np.ones(1, np.float32)  # (features,); 1 in every precision


class Segment(Parametric):
    """The observations of a segment, whose parameters theta are drawn once per segment.

    Generative model: theta ~ p(theta), then x_t ~ p(x | theta, statistics of the segment so far).
    Exact algorithms need two things of it: the *statistics* S(x_1..x_n) of a run of observations,
    which merge, S(run, run') = merge(S(run), S(run')), and the *predictive distribution*
    p(x_{n+1} | x_1..x_n) as a function of them. Where statistics add up, a family of your own is
    two methods:

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
    there.

    **What an author writes.** Two methods must be written; each of the others has a default.

    - `statistic(x)`, of one observation, and `predictive(statistics)`, a `Distribution`.
    - `merge(before, after)`, `empty()`, `initial()` and `missing()`, if statistics are a monoid
      other than sums from zero: centred moments, Gram matrices, products of forward operators,
      the last symbols as a context.
    - `alphabet`, for symbols 0..alphabet-1, and `event_shape`, for vectors (columns,).
    - `sample(key, shape)`, parameters drawn from the prior, and `emission(parameters, statistics)`,
      the distribution given them: the truth in a `Draw`, against which regret is measured.
    - `level_posterior(statistics)`, the posterior of the mean given the parameters, for bands.
    - `translate(statistics, by)`, if a field is declared by `location()` and the statistics are not
      a named tuple with a field of its name.
    - `observe(statistics, x)` and `run_log_density(before, run)`, faster forms of what follows from
      the first two.

    Covariates or lags need nothing else: columns of x (or symbols that `merge` keeps) enter
    `statistic` and `predictive`, whose distribution may be conditional on some columns of x.

    Fields are hyperparameters: numbers become NumPy scalars, which are traced, so another value
    does not recompile. `positive()`, `real()`, `location()` and `simplex()` from
    `switchpoint.segments` declare their range, which `fit` keeps; others are taken for positive.
    Sizes must be static (`equinox.field(static=True)`).

    An observation that is NaN, or a vector of which an entry is, is missing: it has log density 0,
    and adds `missing()`.

    >>> import switchpoint as sp
    >>> segment = sp.Poisson(shape=2.0, rate=1.0)
    >>> after = segment.merge(segment.initial(), segment.statistic(4.0))
    >>> float(segment.predictive(after).mean)
    3.0
    """

    passing: ClassVar[tuple[str, ...]] = ()
    """Fields of the statistics, a named tuple, that are not fitted to the values but pass with time
    or hold the last ones: an outlier that a stream leaves out of the fit changes these alone."""

    @abstractmethod
    def statistic(self, x: Float[Array, "..."]) -> Statistics:
        """The statistics of a single observation: a number, or of shape `event_shape`."""

    @abstractmethod
    def predictive(self, statistics: Statistics) -> Distribution:
        """The distribution of the next observation of a segment with these statistics."""

    def merge(self, before: Statistics, after: Statistics) -> Statistics:
        """The statistics of two adjacent runs; by default their sum.

        Associative, and `empty()` is neutral.
        """
        return jax.tree.map(operator.add, before, after)

    def empty(self) -> Statistics:
        """The statistics of no observations, neutral in `merge`; by default zeros."""
        shapes = jax.eval_shape(self.statistic, jnp.zeros(self.event_shape))
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    def initial(self) -> Statistics:
        """The statistics of a segment before its first observation: empty, or its prior.

        A prior that is worth some observations is merged with those that follow.
        """
        return self.empty()

    def missing(self) -> Statistics:
        """The statistics of one missing observation; by default empty."""
        return self.empty()

    def observe(self, statistics: Statistics, x: Numbers) -> tuple[Numbers, Statistics]:
        """ln p(x) of the next observation, and the statistics that include it.

        By default from `predictive` and `merge`; both often share most of their work.
        """
        return self.predictive(statistics).log_density(x), self.merge(statistics, self.statistic(x))

    def _absorb(self, statistics: Statistics, x: Numbers) -> tuple[Numbers, Statistics]:
        """`observe` of an observation that may be missing."""
        maximum = namespace(x).maximum

        def bounded(x: Any) -> Any:
            log_density, after = self.observe(statistics, x)
            return maximum(log_density, _LOWEST), after

        return _unless_missing(self, x, bounded, (0.0, self.merge(statistics, self.missing())))

    def run_log_density(
        self, before: Statistics, run: Statistics
    ) -> tuple[Numbers, Numbers] | None:
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

    def level_posterior(self, statistics: Statistics) -> Level | tuple[Level, ...]:
        """The posterior of the level of a segment, and the features of the next observation.

        The level is E[x | theta], or for symbols P(x = k | theta), of the next observation: one for
        all columns, or a tuple of one for each. By default the mean of the predictive distribution,
        of unknown covariance.
        """
        predictive: Any = self.predictive(statistics)
        if self.finite:
            return Level(predictive.probs[None], None)
        mean = jnp.atleast_1d(predictive.mean)[None]
        return Level(mean, jnp.full_like(mean, jnp.nan)[None])

    def translate(self, statistics: Statistics, by: Float[Array, "*event"]) -> Statistics:
        """The statistics of the values minus `by`: large values keep the digits of differences.

        By default for named tuples with a field that is called like the `location()` of the family.
        """
        name = location_field(self)
        if name is None:
            return statistics
        return statistics._replace(**{name: getattr(statistics, name) - by})

    @property
    def alphabet(self) -> int:
        """The number of symbols, which are 0..alphabet-1."""
        raise AttributeError(f"{self!r} has no alphabet: use log_density, not log_probs")

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of an observation: () or (columns,)."""
        return ()

    @property
    def complete_rows(self) -> bool:
        """Whether vectors of which only some entries are missing are refused."""
        return False

    @property
    def missing_is_marginal(self) -> bool:
        """Whether the law after a missing observation is that with its values integrated out.

        So it is where observations are independent given the parameters and the time. It is not
        where those after a gap are predicted as if they had no past.
        """
        return True

    @property
    def finite(self) -> bool:
        """Whether observations are symbols of a finite alphabet: whether there is an `alphabet`."""
        return type(self).alphabet is not Segment.alphabet

    @property
    def support(self) -> Support:
        """The values that can occur: those that the predictive distribution supports."""
        if self.finite:
            return Support(0, self.alphabet - 1, whole=True)
        structure = jax.tree.structure(self)
        if structure not in _SUPPORTS:
            predictive = jax.eval_shape(lambda: self.predictive(prior_statistics(self)))
            known = isinstance(predictive, Distribution)
            _SUPPORTS[structure] = predictive.support if known else Support()
        return _SUPPORTS[structure]


_SUPPORTS: dict[Any, Support] = {}


def location_field(segment: Segment) -> str | None:
    """The hyperparameter that is declared by `location()`."""
    return next(iter(fields_with(type(segment), "location")), None)


def prior_statistics(segment: Segment) -> Statistics:
    """The statistics of a segment before its first observation, as JAX arrays."""
    shapes = jax.eval_shape(segment.statistic, jnp.zeros(segment.event_shape))
    return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), segment.initial(), shapes)


def lift(segment: Segment, x: Numbers) -> Statistics:
    """The statistics of one observation, which may be missing."""
    columns = getattr(segment, "columns", None)
    if columns is not None:
        return tuple(lift(column, x[..., i]) for i, column in enumerate(columns))
    return _unless_missing(segment, x, segment.statistic, segment.missing())


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

    def bounded(x: Any) -> Any:
        return maximum(segment.observe(statistics, x)[0], _LOWEST)

    return _unless_missing(segment, x, bounded, 0.0)


def _unless_missing(segment: Segment, x: Any, function: Any, otherwise: Any) -> Any:
    """`function(x)`, or `otherwise` where x is missing; its gradient is finite in both cases."""
    xp = namespace(x)
    gaps = xp.isnan(x)
    missing = gaps.any(axis=-1) if segment.event_shape else gaps
    if xp is np and not missing.any():
        return function(x)
    result = function(xp.where(missing[..., None] if segment.event_shape else missing, 0.0, x))
    return jax.tree.map(lambda one, none: xp.where(missing, none, one), result, otherwise)


def elapse(statistics: Statistics, time: Numbers) -> Statistics:
    """The statistics of segments after more time without an observation, by their `duration`.

    Families without a field of that name in their statistics count observations, not time.
    """

    def moved(path: Any, leaf: Any) -> Any:
        return leaf + time if getattr(path[-1], "name", "") == "duration" else leaf

    return jax.tree_util.tree_map_with_path(moved, statistics)


def scalar_level(mean: Float[Array, ""], variance: Float[Array, ""]) -> Level:
    """The posterior of a level that is one number throughout the segment."""
    return Level(mean.reshape(1, 1), variance.reshape(1, 1, 1))


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


def updated_mean(weight: Numbers, mean: Numbers, x: Numbers, step: Numbers) -> Numbers:
    """The mean of a group with one more observation, where step = (x - mean) / (weight + 1).

    In single precision it is computed from the larger weight, as in `weighted_mean`.
    """
    xp = namespace(weight)
    return mean + step if xp is np else xp.where(weight < 1, x - weight * step, mean + step)
