"""Predictions several steps ahead, given the observations of one segment."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint.segments.base import Segment, Statistics, observe
from switchpoint.segments.distributions import Discrete
from switchpoint.segments.values import run_statistics

_DRAWS = 4000  # of the future, where it is sampled


class Forecast(NamedTuple):
    """The next observations of a segment that goes on.

    See `forecast` for an example.
    """

    mean: Float[np.ndarray, "horizon ..."]
    """E[x_{n+h} | x_1..x_n] of each column; for symbols, P(x_{n+h} = k | x_1..x_n)."""
    quantiles: Float[np.ndarray, "horizon levels ..."]
    """The quantiles of each x_{n+h} given x_1..x_n, one h at a time, of each column."""


def forecast(
    segment: Segment,
    values: Any,
    horizon: int,
    quantiles: Any = (0.05, 0.5, 0.95),
    steps: Any = None,
    covariates: Any = None,
) -> Forecast:
    """Predict the next `horizon` observations of one segment, if it goes on.

    p(x_{n+h} | x_1..x_n) for h = 1..horizon, with the observations between integrated out, as if
    they were missing. That is exact for families whose later observations depend on earlier ones by
    the parameters alone, or by a hidden state, such as `Trend`, `Regression` with seasons and
    `HMM`. With lags, and for a `MarkovChain`, 4,000 futures are sampled (always the same ones):
    the mean is that of their predictive means, with a standard error of 1/60 of their spread.

    - `values`: (time,) or (time, columns), the observations of the segment, NaN where missing;
    - `steps`: (time - 1,), the times between them, by default 1;
    - `covariates`: (horizon, m), those of the predicted observations, for a `Regression` with m.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> from switchpoint.segments import forecast
    >>> line = 2.0 * np.arange(30) + np.sin(np.arange(30) ** 2)
    >>> forecast(sp.Trend(), line, horizon=3).mean.round(1).tolist()
    [59.7, 61.7, 63.7]
    """
    horizon = _checks.positive_int("horizon", horizon)
    levels = np.asarray([_checks.probability("quantiles", each) for each in np.ravel(quantiles)])
    count = getattr(segment, "covariates", 0)
    given = np.zeros((horizon, 0)) if covariates is None else np.asarray(covariates, float)
    if given.shape != (horizon, count):
        raise ValueError(f"covariates must have shape {(horizon, count)}, got {given.shape}")
    segment, statistics, origin = run_statistics(segment, values, steps)
    method = _marginal if segment.missing_is_marginal else _sampled
    mean, points = method(segment, statistics, levels, jnp.asarray(given, float))
    shift = 0.0 if segment.finite else origin[0] if count else origin
    return Forecast(np.asarray(mean, float) + shift, np.asarray(points, float) + shift)


def _next(segment: Segment, statistics: Statistics, covariates: Float[Array, " count"]) -> Any:
    """The distribution of the next observation, or of its value given the covariates."""
    distribution: Any = segment.predictive(statistics)
    return distribution.given(covariates) if len(covariates) else distribution


def _mean(distribution: Any) -> Array:
    return distribution.probs if isinstance(distribution, Discrete) else distribution.mean


@jax.jit
def _marginal(
    segment: Segment,
    statistics: Statistics,
    levels: Float[Array, " levels"],
    given: Float[Array, "horizon covariates"],
) -> tuple[Array, Array]:
    def step(statistics: Statistics, covariates: Array) -> tuple[Statistics, tuple[Array, Array]]:
        distribution = _next(segment, statistics, covariates)
        after = segment.merge(statistics, segment.missing())
        return after, (_mean(distribution), distribution.quantile(levels))

    return jax.lax.scan(step, statistics, given)[1]


@jax.jit
def _sampled(
    segment: Segment,
    statistics: Statistics,
    levels: Float[Array, " levels"],
    given: Float[Array, "horizon covariates"],
) -> tuple[Array, Array]:
    def step(
        statistics: Statistics, now: tuple[Array, PRNGKeyArray]
    ) -> tuple[Statistics, tuple[Array, Array]]:
        covariates, key = now
        distribution = _next(segment, statistics, covariates)
        x = distribution.sample(key)
        row = jnp.append(x, covariates) if len(covariates) else x
        return observe(segment, statistics, row), (_mean(distribution), x)

    def future(key: PRNGKeyArray) -> tuple[Array, Array]:
        return jax.lax.scan(step, statistics, (given, jax.random.split(key, len(given))))[1]

    means, draws = jax.vmap(future)(jax.random.split(jax.random.key(0), _DRAWS))
    return means.mean(0), jnp.moveaxis(jnp.quantile(draws, levels, axis=0), 0, 1)
