"""Segments of several kinds."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import simplex
from switchpoint.segments._special import log_probs, log_sum
from switchpoint.segments.base import Level, Segment, prior_statistics
from switchpoint.segments.distributions import Discrete, Distribution, Joint, Support
from switchpoint.segments.values import families_by_column, observations_in_words, run_statistics


class MixtureRun(NamedTuple):
    """The statistics of a run under each kind, with the posterior of the kinds."""

    log_weights: Numbers
    """(..., kinds): ln P(kind | the run) if it begins a segment, and 0 otherwise."""
    kinds: tuple[Any, ...]


class Mixture(Segment):
    """Segments of one of K kinds.

    Generative model: with w = `weights`, each segment draws its kind k ~ w, then theta ~ the prior
    of family k, and its observations are those of that family:

        p(x_1..x_n) = sum_k w_k p_k(x_1..x_n)

    Statistics are those of all kinds side by side, with the posterior of the kinds,
    P(k | x_1..x_n), which is proportional to w_k p_k(x_1..x_n). Predictive:

        p(x_{n+1} | x_1..x_n) = sum_k P(k | x_1..x_n) p_k(x_{n+1} | x_1..x_n)

    All of it is exact. When a segment is merged with the run after it, each ln P(k | .) grows by
    ln p_k(run | segment), which is normalised at once: only increments are added, so that long
    segments keep their digits. A run alone, without the segment before it, has no evidence yet; so
    the merge is associative. It takes the closed form `run_log_density` of every kind. A family
    without one is refused.

    The cost is the sum of the costs of the kinds. In the posterior, `level_mean`, `level_std` and
    `probs_smoothed` average over kinds; `kind_probs` has the kind of each segment. A finite mixture
    of known concepts has kinds without unknown parameters, such as an `HMM` each, or one with a
    single hidden state for independent symbols with known probabilities. With hidden Markov kinds
    it is the generator of Xie et al. (2022), one document after another.

    - `kinds`: families of the same observations: of one alphabet, or of values with one support;
    - `weights`: P(kind), by default equal; `fit` varies them on the simplex.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> calm, wild = sp.NormalGamma(rate=0.01), sp.NormalGamma(rate=100.0)
    >>> mixture = sp.Mixture(calm, wild, weights=[0.9, 0.1])
    >>> mixture.kind_probs([0.1, -0.1, 0.2]).round(3)
    array([1., 0.])
    >>> x = np.concatenate([np.cos(np.arange(40)) / 10, 10 * np.cos(np.arange(20))])
    >>> stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.02), mixture)))
    >>> _ = stream.extend(x)
    >>> stream.run_length.mode  # of 60 observations
    20
    """

    kinds: tuple[Segment, ...]
    weights: Float[np.ndarray | Array, " kinds"] = simplex()

    def __init__(self, *kinds: Segment, weights: Any = None) -> None:
        self.kinds = kinds
        if not kinds:
            raise ValueError("kinds must be at least one Segment, got none")
        for kind in kinds:
            _check_kind(kind, kinds[0])
        self.weights = _checks.mixture_weights("weights", weights, len(kinds), "kinds")

    @property
    def alphabet(self) -> int:
        return self.kinds[0].alphabet

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.kinds[0].event_shape

    @property
    def complete_rows(self) -> bool:
        return bool(self.event_shape)

    @property
    def missing_is_marginal(self) -> bool:
        return all(kind.missing_is_marginal for kind in self.kinds)

    @property
    def finite(self) -> bool:
        return self.kinds[0].finite

    @property
    def support(self) -> Support:
        return families_by_column(self.kinds[0])[0].support

    def kind_probs(self, values: Any) -> Float[np.ndarray, " kinds"]:
        """P(kind | the values of one whole segment), which are (time,) or (time, columns)."""
        _, statistics, _ = run_statistics(self, values)
        return np.exp(np.asarray(statistics.log_weights, np.float64))

    def statistic(self, x: Numbers) -> MixtureRun:
        batch = np.shape(x)[: np.ndim(x) - len(self.event_shape)]
        nothing = namespace(x).zeros((*batch, len(self.kinds)))
        return MixtureRun(nothing, tuple(kind.statistic(x) for kind in self.kinds))

    def empty(self) -> MixtureRun:
        return self._without_evidence("empty")

    def missing(self) -> MixtureRun:
        return self._without_evidence("missing")

    def initial(self) -> MixtureRun:
        return self._without_evidence("initial")._replace(log_weights=log_probs(self.weights))

    def merge(self, before: MixtureRun, after: MixtureRun) -> MixtureRun:
        # The weights are 0 where no segment has begun, as there is no evidence before it.
        begun = (before.log_weights < 0).any(-1)
        fresh = zip(before.kinds, self._each("initial"), strict=True)
        first = [_where(begun, *each) for each in fresh]
        joint = before.log_weights + self._evidence(first, after.kinds)
        xp = namespace(begun, joint)
        total = log_sum(joint, -1)[..., None]
        pairs = zip(self.kinds, before.kinds, after.kinds, strict=True)
        return MixtureRun(
            xp.where(begun[..., None], joint - total, after.log_weights),
            tuple(kind.merge(*runs) for kind, *runs in pairs),
        )

    def predictive(self, statistics: MixtureRun) -> Distribution:
        return self._mixed(statistics.log_weights, self._each("predictive", statistics.kinds))

    def observe(self, statistics: MixtureRun, x: Numbers) -> tuple[Numbers, MixtureRun]:
        pairs = zip(self.kinds, statistics.kinds, strict=True)
        logs, after = zip(*(kind.observe(each, x) for kind, each in pairs), strict=True)
        joint = statistics.log_weights + _stacked(logs)
        total = log_sum(joint, -1)
        return total, MixtureRun(joint - total[..., None], after)

    def run_log_density(self, before: MixtureRun, run: MixtureRun) -> tuple[Numbers, Numbers]:
        joint = before.log_weights + self._evidence(before.kinds, run.kinds)
        total = log_sum(joint, -1) - log_sum(before.log_weights, -1)
        return 0.0 * total, total

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Array, tuple[Any, ...]]:
        """The kind of each segment, and the parameters that it has under every kind."""
        key, *keys = jax.random.split(key, 1 + len(self.kinds))
        kind = jax.random.categorical(key, log_probs(jnp.asarray(self.weights)), shape=shape)
        return kind, self._each("sample", keys, (shape,) * len(keys))

    def emission(
        self, parameters: tuple[Array, tuple[Any, ...]], statistics: MixtureRun
    ) -> Distribution:
        which, each = parameters
        certain = jnp.where(np.arange(len(self.kinds)) == which, 0.0, -jnp.inf)
        return self._mixed(certain, self._each("emission", each, statistics.kinds))

    def level_posterior(self, statistics: MixtureRun) -> Level | tuple[Level, ...]:
        """The coefficients of all kinds side by side, each with the probability of its kind.

        With block-diagonal matrices D of the kinds, weights w, means m and covariances C of their
        coefficients, the mixture has the mean (w_1 m_1, ..., w_K m_K), the covariance
        D(w_k (C_k + m_k m_k')) minus its square, and the features of all kinds.
        """
        weights = jnp.exp(statistics.log_weights)
        levels = self._each("level_posterior", statistics.kinds)
        if not self.event_shape:
            return _mixed_levels(weights, levels)
        by_column = zip(*(_by_column(level) for level in levels), strict=True)
        return tuple(_mixed_levels(weights, column) for column in by_column)

    def translate(self, statistics: MixtureRun, by: Any) -> MixtureRun:
        moved = self._each("translate", statistics.kinds, (by,) * len(self.kinds))
        return statistics._replace(kinds=moved)

    def _mixed(self, log_weights: Numbers, parts: tuple[Any, ...]) -> Distribution:
        """The mixture of the distributions of the kinds."""
        if self.finite:
            probs = _stacked([part.probs for part in parts], -2)
            weights = namespace(log_weights).exp(log_weights)
            return Discrete((weights[..., None] * probs).sum(-2))
        joint = all(isinstance(part, Joint) for part in parts)
        return (JointMixture if joint else MixtureGeneral)(log_weights, parts)

    def _evidence(self, before: Any, runs: Any) -> Numbers:
        """ln p_k(the run | the segment before it), (..., kinds)."""
        pairs = zip(self.kinds, before, runs, strict=True)
        terms: Any = (kind.run_log_density(*both) for kind, *both in pairs)
        return _stacked([of_counts + of_values for of_counts, of_values in terms])

    def _without_evidence(self, method: str) -> MixtureRun:
        return MixtureRun(np.zeros(len(self.kinds)), self._each(method))

    def _each(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        """The results of a method of each kind, with its part of each argument."""
        kinds = zip(self.kinds, *arguments, strict=True)
        return tuple(getattr(kind, method)(*parts) for kind, *parts in kinds)


class MixtureGeneral(Distribution):
    """A mixture of distributions of any families.

    p(x) = sum over k of w_k p_k(x), with w_k = exp(log_weights[k]), which sum to 1.

    >>> import jax.numpy as jnp
    >>> from switchpoint.segments import MixtureGeneral, Normal, StudentT
    >>> parts = (Normal(-1.0, 1.0), StudentT(5.0, 3.0, 1.0))
    >>> round(float(MixtureGeneral(jnp.log(jnp.array([0.5, 0.5])), parts).mean), 3)
    1.0
    """

    log_weights: Float[Array, " components"]
    components: tuple[Distribution, ...]

    def log_density(self, x: Any) -> Numbers:
        logs = _stacked([component.log_density(x) for component in self.components])
        return jax.nn.logsumexp(self.log_weights + logs, -1)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        return self._mean([component.cdf(x) for component in self.components])

    @property
    def mean(self) -> Float[Array, "..."]:
        return self._mean([component.mean for component in self.components])

    @property
    def variance(self) -> Float[Array, "..."]:
        mean = self.mean
        return self._mean([each.variance + (each.mean - mean) ** 2 for each in self.components])

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        likely = jnp.argmax(self.log_weights)
        centres, scales = zip(*(each.location for each in self.components), strict=True)
        return _stacked(centres)[..., likely], _stacked(scales)[..., likely]

    @property
    def support(self) -> Support:
        return self.components[0].support

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        key, *keys = jax.random.split(key, 1 + len(self.components))
        which = jax.random.categorical(key, self.log_weights)
        pairs = zip(self.components, keys, strict=True)
        return jnp.stack([component.sample(each) for component, each in pairs])[which]

    def _mean(self, values: list[Any]) -> Float[Array, "..."]:
        """The mean over components; at those of weight 0 a value may be infinite."""
        weights = jnp.exp(self.log_weights)
        return jnp.where(weights > 0, weights * _stacked(values), 0.0).sum(-1)


class JointMixture(Joint):
    """A mixture of distributions of the same columns.

    >>> import jax.numpy as jnp
    >>> from switchpoint.segments import JointMixture, Normal, Product
    >>> both = Product((Normal(0.0, 1.0), Normal(5.0, 1.0)))
    >>> JointMixture(jnp.zeros(1), (both,)).mean.tolist()
    [0.0, 5.0]
    """

    log_weights: Float[Array, " components"]
    components: tuple[Joint, ...]

    @property
    def marginals(self) -> tuple[Distribution, ...]:
        columns = zip(*(component.marginals for component in self.components), strict=True)
        return tuple(MixtureGeneral(self.log_weights, column) for column in columns)

    def log_density(self, x: Any) -> Numbers:
        return MixtureGeneral(self.log_weights, self.components).log_density(x)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "... columns"]:
        return MixtureGeneral(self.log_weights, self.components).sample(key)


def _check_kind(kind: Any, first: Segment) -> None:
    """Raise a `ValueError` if this is no kind of segment beside the first one."""
    if not isinstance(kind, Segment):
        raise ValueError(
            f"kinds must be segment models, such as switchpoint.NormalGamma(), got {kind!r}"
        )
    closed = jax.eval_shape(kind.run_log_density, prior_statistics(kind), kind.empty())
    if closed is None:
        raise ValueError(
            "kinds must have the evidence of a run of observations in closed form, "
            f"run_log_density, which {type(kind).__name__} has not"
        )
    one, other = observations_in_words(kind), observations_in_words(first)
    if one != other:
        raise ValueError(
            f"kinds must have the same observations, got {one} for {kind!r} and {other} for "
            f"{first!r}"
        )


def _where(begun: Any, run: Any, otherwise: Any) -> Any:
    """The statistics of runs that have begun a segment, and others in place of the rest."""

    def choose(leaf: Any, other: Any) -> Any:
        which = begun[(..., *(None,) * (np.ndim(leaf) - np.ndim(begun)))]
        return namespace(begun, leaf, other).where(which, leaf, other)

    return jax.tree.map(choose, run, otherwise)


def _stacked(parts: Any, axis: int = -1) -> Any:
    xp = namespace(*parts)
    return xp.stack(xp.broadcast_arrays(*parts), axis)


def _by_column(level: Level | tuple[Level, ...]) -> list[Level]:
    """The level of each column."""
    if not isinstance(level, Level):
        return list(level)
    covariance: Any = level.covariance
    columns = range(level.mean.shape[-1])
    return [Level(level.mean[:, [i]], covariance[..., [i]], level.features) for i in columns]


def _mixed_levels(weights: Float[Array, " kinds"], levels: Any) -> Level:
    """The mixture of the levels of the kinds."""
    features = jnp.concatenate([jnp.asarray(level.features) for level in levels])
    means = [level.mean for level in levels]
    pairs = list(zip(weights, means, strict=True))
    mean = jnp.concatenate([weight * each for weight, each in pairs])
    if levels[0].covariance is None:
        return Level(mean, None, features)
    squares = [
        weight * (level.covariance + each[:, None] * each)
        for level, (weight, each) in zip(levels, pairs, strict=True)
    ]
    blocks = jax.vmap(jax.scipy.linalg.block_diag, in_axes=-1, out_axes=-1)(*squares)
    return Level(mean, blocks - mean[:, None] * mean, features)
