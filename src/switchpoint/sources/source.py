"""A source: a prior over switching points and a model of the segments."""

import functools
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from switchpoint import _checks
from switchpoint._random import constants_of_fast_draws, uniform
from switchpoint.priors import Prior
from switchpoint.priors.base import switches_at
from switchpoint.segments import Bernoulli, Dirichlet, Discrete, Segment
from switchpoint.segments.base import observe, prior_statistics

_ROUNDING = 1e-4  # of a sum of probabilities


class Draw(eqx.Module):
    """Sequences drawn from a source, with the ground truth that is hidden from predictors.

    `values` (batch, time) or (batch, time, columns), `switches` (batch, time), and the true
    distribution of each observation given the parameters of its segment, theta: for symbols `probs`
    (batch, time, alphabet), p(x_t = k | theta), and for all `log_density` (batch, time),
    ln p(x_t | theta). The regret of a predictor is measured against them.

    >>> import jax
    >>> import switchpoint as sp
    >>> draw = sp.Source(sp.PTW(5)).sample(jax.random.key(0), batch=4, length=32)
    >>> draw.symbols.shape, draw.probs.shape
    ((4, 32), (4, 32, 2))
    """

    values: Shaped[Array, "*batch_time_columns"]
    """The observations: real values, or symbols 0..alphabet-1."""

    symbol_probs: Float[Array, "*batch time alphabet"] | None
    """`probs`, or None where there is no alphabet."""

    switches: Bool[Array, "*batch time"]
    """True where a new segment starts; False at 0."""

    true_log_density: Float[Array, "*batch time"] | None = None
    """`log_density` where there is no alphabet."""

    @property
    def symbols(self) -> Int[Array, "*batch time"]:
        """The symbols, 0..alphabet-1."""
        if self.symbol_probs is None:
            raise AttributeError("these draws have no alphabet: use `values`, not `symbols`")
        return self.values

    @property
    def probs(self) -> Float[Array, "*batch time alphabet"]:
        """The distribution each symbol was drawn from."""
        if self.symbol_probs is None:
            raise AttributeError("these draws have no alphabet: use `log_density`, not `probs`")
        return self.symbol_probs

    @property
    def log_density(self) -> Float[Array, "*batch time"]:
        """ln p(x_t | the parameters of its segment): the limit of all prediction."""
        if self.true_log_density is not None:
            return self.true_log_density
        at = self.symbols[..., None]
        return jnp.log(jnp.take_along_axis(self.probs, at, axis=-1)[..., 0])


class AbstractSource(eqx.Module):
    """Sequences of observations with their true distributions.

    `switchpoint.train` and `switchpoint.evaluate` take any: a source of your own is a subclass that
    samples. Its `segment` tells what the observations are, by its alphabet or its support. Regret
    is measured against the true distributions in the `Draw`. There is no optimum to exceed, and
    `bayes_optimal` refuses it. For example, bits whose log-odds are a random walk:

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import switchpoint as sp
    >>> class Drift(sp.AbstractSource):
    ...     segment: sp.Segment = sp.Bernoulli()
    ...     step: float = 0.3
    ...     def sample(self, key, batch, length):
    ...         walk, coins = jax.random.split(key)
    ...         steps = self.step * jax.random.normal(walk, (batch, length))
    ...         ones = jax.nn.sigmoid(jnp.cumsum(steps, axis=1))
    ...         bits = jax.random.bernoulli(coins, ones).astype(jnp.int32)
    ...         probs = jnp.stack([1 - ones, ones], axis=-1)
    ...         return sp.Draw(bits, probs, jnp.zeros((batch, length), bool))
    >>> forgetful = sp.bayes_optimal(sp.Source(sp.Geometric(0.05)))
    >>> predictors = {"kt": sp.KT(), "forgetful": forgetful}
    >>> regret = sp.evaluate(predictors, Drift(), length=100, sequences=200)["regret"]
    >>> bool(regret.sel(predictor="forgetful").mean() < regret.sel(predictor="kt").mean())
    True
    """

    if TYPE_CHECKING:  # which takes an abstract variable for the first field of subclasses

        @property
        def segment(self) -> Segment:
            """What the observations are."""
    else:
        segment: eqx.AbstractVar[Segment]

    @abstractmethod
    def sample(self, key: PRNGKeyArray, batch: int, length: int) -> "Draw":
        """`batch` independent sequences of `length` observations."""

    def check_length(self, length: int) -> None:
        """Raise a `ValueError` if there are no sequences of this length."""
        del length

    @property
    def oracle_segment(self) -> Segment | None:
        """The family of all segments, for a `KTOracle`; None if there is none."""
        return None

    @property
    def overrides_sample(self) -> bool:
        """Whether the law of its sequences is known by its sampler alone."""
        return True


class Source(AbstractSource):
    """Piecewise stationary sequences: segment lengths from `prior`, values from `segment`.

    Generative model, with s_1 = 0 and for i = 1, 2, ...

        L_i ~ prior(. | s_i),    s_{i+1} = s_i + L_i,    theta_i ~ the prior of `segment`,
        x_t ~ segment(. | theta_i, x_{s_i}..x_{t-1}) for s_i <= t < s_{i+1}

    `bayes_optimal(source)` is the predictor with the least expected code length on it. Sampling
    costs O(length) per sequence, in one program for the batch.

    - `prior`: a `Prior`; `segment`: a `Segment`, by default bits under Beta(1/2, 1/2).

    >>> import jax
    >>> import switchpoint as sp
    >>> source = sp.Source(sp.RegularPeriodic(3), sp.Gaussian())
    >>> source.sample(jax.random.key(0), batch=1, length=7).switches[0].nonzero()[0].tolist()
    [3, 6]

    A subclass that overrides `sample` has no known optimum: `bayes_optimal` refuses it, and
    `evaluate` measures its regret by the true probabilities in the `Draw` that it returns.
    """

    prior: Prior
    segment: Segment = Bernoulli()

    def __check_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ValueError(
                f"prior must be a Prior, such as switchpoint.PTW(8), got {self.prior!r}"
            )
        if not isinstance(self.segment, Segment):
            raise ValueError(
                "segment must be a Segment, such as switchpoint.Bernoulli() or "
                f"switchpoint.NormalGamma(), got {self.segment!r}"
            )
        if type(self.prior).__module__.partition(".")[0] != "switchpoint":
            self.prior.check_hazards()
        foreign = type(self.segment).__module__.partition(".")[0] != "switchpoint"
        if foreign and self.segment.finite and not isinstance(self.segment, Dirichlet):
            _check_probabilities(self.segment)

    def check_length(self, length: int) -> None:
        self.prior.check_length(length)

    @property
    def oracle_segment(self) -> Segment:
        return self.segment

    @property
    def overrides_sample(self) -> bool:
        """Whether its sequences need not have the law of its prior and its segment."""
        return type(self).sample is not Source.sample

    def sample(self, key: PRNGKeyArray, batch: int, length: int) -> Draw:
        """`batch` independent sequences of `length` observations."""
        key = _checks.random_key(key)
        batch = _checks.positive_int("batch", batch)
        self.prior.check_length(length)
        constants, general = eqx.partition(self, constants_of_fast_draws)
        return _sample(general, constants, key, batch, length)


def _check_probabilities(segment: Segment) -> None:
    """Raise a `ValueError` if predictive probabilities of symbols do not sum to 1, unless traced.

    Exact algorithms divide by the sum of probabilities, to correct for rounding alone.
    """
    statistics = prior_statistics(segment)
    for count in range(3):
        predictive: Any = segment.predictive(statistics)
        probs: Any = getattr(predictive, "probs", None)
        if isinstance(probs, jax.core.Tracer):
            return
        name = f"{type(segment).__name__}.predictive"
        if jnp.shape(probs) != (segment.alphabet,):
            raise ValueError(
                f"{name} must be a Discrete distribution of {segment.alphabet} symbols, "
                f"got {_checks.shown(predictive)}"
            )
        probs = np.asarray(probs, np.float64)
        if not (abs(probs.sum() - 1) < _ROUNDING and probs.min() >= 0):
            raise ValueError(
                f"{name} must have probabilities of at least 0 that sum to one, got {probs} with "
                f"the sum {probs.sum():.6g} after {count} symbols"
            )
        statistics = observe(segment, statistics, jnp.asarray(count % segment.alphabet, float))


@functools.partial(jax.jit, static_argnames=("constants", "batch", "length"))
def _sample(general: Source, constants: Source, key: PRNGKeyArray, batch: int, length: int) -> Draw:
    source: Source = eqx.combine(general, constants)
    key_prior, key_segment, key_symbol = jax.random.split(key, 3)
    starts = source.prior.sample_starts(key_prior, batch, length)
    # Time first: every operation then runs along the batch, contiguous in memory.
    fresh = source.segment.sample(key_segment, (length, batch))
    if not isinstance(source.segment, Dirichlet):
        return _observe(source.segment, fresh, starts, key_symbol)
    probs = jnp.take_along_axis(fresh, starts.T[:, :, None], axis=0, mode="promise_in_bounds")
    below = jnp.cumsum(probs[..., :-1], axis=-1)  # P(symbol <= k), all but the last, which is 1
    coins = uniform(key_symbol, (length, batch))
    symbols = jnp.sum(coins[..., None] >= below, axis=-1, dtype=jnp.int32)
    return Draw(symbols.T, jnp.swapaxes(probs, 0, 1), switches_at(starts))


def _observe(
    segment: Segment, fresh: Any, starts: Int[Array, "batch time"], key: PRNGKeyArray
) -> Draw:
    """Observations one after another, with the parameters that were drawn for their segment."""
    batch, length = starts.shape
    initial = prior_statistics(segment)

    def one(statistics: Any, begins: Array, parameters: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        statistics = jax.tree.map(lambda new, old: jnp.where(begins, new, old), initial, statistics)
        emission = segment.emission(parameters, statistics)
        x = emission.sample(key)
        probs = emission.probs if isinstance(emission, Discrete) else None
        return observe(segment, statistics, x), (x, probs, emission.log_density(x))

    def step(statistics: Any, now: tuple[Array, Array, PRNGKeyArray]) -> tuple[Any, Any]:
        time, start, key = now
        parameters = jax.tree.map(lambda leaf: leaf[start, jnp.arange(batch)], fresh)
        return jax.vmap(one)(statistics, start == time, parameters, jax.random.split(key, batch))

    first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), initial)
    now = (jnp.arange(length), starts.T, jax.random.split(key, length))
    _, drawn = lax.scan(step, first, now)
    values, probs, logs = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), drawn)
    if segment.finite:
        return Draw(values.astype(jnp.int32), probs, switches_at(starts))
    return Draw(values, None, switches_at(starts), logs)
