"""A segment model: its predictive distribution, its statistics and its sampler."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint.checking.report import Collector, require, require_equal, require_uniform
from switchpoint.priors import RegularPeriodic
from switchpoint.segments import Discrete, Distribution, Joint, Segment
from switchpoint.segments.base import Statistics, observe, prior_statistics
from switchpoint.segments.values import shiftable
from switchpoint.sources import Source

_CLOSE = 1e-6  # in double precision
_DRAWS, _SEGMENT = 10_000, 5
_REACH, _POINTS = 40.0, 40_001  # of a grid that is even in asinh of the distance from the centre
_MOST_COUNTS = 200_000
_MASS_ERROR = 3e-3  # a density that jumps, as at 0, costs half a step of the grid


def check_family(
    findings: Collector, segment: Segment, values: Shaped[np.ndarray, "time *event"], draws: Array
) -> None:
    """The findings about a segment model alone, with some observations and many drawn segments."""
    with jax.enable_x64(True):
        findings.run("normalised", _normalised, segment, values)
        densities = findings.make("merge", _densities, segment, jnp.asarray(values, float))
        for name, (found, expected, what) in (densities or {}).items():
            findings.run(name, require_equal, found, expected, _CLOSE, what)
    findings.run("sampler", _sampler, segment, draws)


def _normalised(segment: Segment, values: Any) -> str:
    statistics, detail = prior_statistics(segment), ""
    for count, x in enumerate(values[:4]):
        where = f"the predictive after {count} observations"
        predictive: Any = eqx.filter_jit(segment.predictive)(statistics)
        probs: Any = getattr(predictive, "probs", None)
        if segment.finite:
            size = segment.alphabet
            require(
                np.shape(probs) == (size,), f"{where} must be a Discrete of {size} probabilities"
            )
        detail = require_normalised(predictive, where)
        statistics = observe(segment, statistics, jnp.asarray(x, float))
    return detail


def require_normalised(distribution: Any, where: str) -> str:
    """Raise a `ValueError` unless each column has total mass 1 and no negative probability."""
    if not isinstance(distribution, Distribution):
        raise ValueError(f"{where}: a {type(distribution).__name__} is not a Distribution")
    worst = 0.0
    for _, column in _columns(distribution):
        mass = _total_mass(column)
        require(
            abs(mass - 1) <= _MASS_ERROR, f"{where}: the total probability is {mass:.6g}, not 1"
        )
        least = float(column.probs.min()) if isinstance(column, Discrete) else 0.0
        require(least >= 0, f"{where}: a probability is {least:.6g}")
        worst = max(worst, abs(mass - 1))
    return f"{where}: the total probability is 1 (off by at most {worst:.1g})"


def _columns(distribution: Any) -> list[tuple[Any, Any]]:
    """Distributions of single numbers, each with its index in x."""
    if isinstance(distribution, Joint):
        return [((..., i), column) for i, column in enumerate(distribution.marginals)]
    return [(..., distribution)]


@eqx.filter_jit
def _log_densities(
    distribution: Distribution, points: Float[Array, " points"]
) -> Float[Array, " points"]:
    return jax.vmap(distribution.log_density)(points)


def _total_mass(distribution: Any) -> float:
    """The sum or the integral of the density of one number, with its tail by `cdf` for counts."""
    if isinstance(distribution, Discrete):
        return float(distribution.probs.sum())
    centre, scale = (float(each) for each in distribution.location)
    if distribution.support.whole:
        size = 2 ** int(centre + 100 * scale + 100).bit_length()  # each size is compiled
        counts = jnp.arange(min(_MOST_COUNTS, size), dtype=float)
        logs = np.asarray(_log_densities(distribution, counts), np.float64)
        return float(np.exp(logs).sum() + 1 - distribution.cdf(counts[-1]))
    steps = np.linspace(-_REACH, _REACH, _POINTS)
    points = jnp.asarray(centre + scale * np.sinh(steps))
    logs = np.asarray(_log_densities(distribution, points), np.float64)
    with np.errstate(over="ignore"):
        heights = np.exp(logs + np.log(scale * np.cosh(steps)))
    return float(heights.sum() * (steps[1] - steps[0]))


@eqx.filter_jit
def _densities(segment: Segment, values: Float[Array, "time *event"]) -> dict[str, Any]:
    """ln p of observations by statistics that were merged in two orders, for each property."""
    merge, initial, empty = segment.merge, prior_statistics(segment), segment.empty()
    singles = [segment.statistic(x) for x in values[:4]]
    runs = [merge(singles[0], singles[1]), merge(segment.missing(), singles[2]), singles[3]]

    def logs(statistics: Statistics, shift: Any = 0.0) -> Array:
        predictive = segment.predictive(statistics)
        return jnp.stack([predictive.log_density(x - shift) for x in values[4:7]])

    left = merge(merge(merge(initial, runs[0]), runs[1]), runs[2])
    right = merge(initial, merge(runs[0], merge(runs[1], runs[2])))
    neutral = [merge(initial, merge(empty, merge(runs[0], empty))), merge(initial, empty)]
    plain = [merge(initial, runs[0]), initial]
    found: dict[str, tuple[Array, Array, str]] = {
        "merge is associative": (
            logs(left),
            logs(right),
            "ln p after merge(merge(a, b), c) and merge(a, merge(b, c))",
        ),
        "empty is neutral": (
            jnp.stack([logs(each) for each in neutral]),
            jnp.stack([logs(each) for each in plain]),
            "ln p after merging with empty() and before",
        ),
    }
    terms = segment.run_log_density(initial, functools.reduce(merge, singles))
    if terms is not None:
        statistics, one_by_one = initial, jnp.zeros(())
        for x, single in zip(values, singles, strict=False):
            one_by_one += segment.predictive(statistics).log_density(x)
            statistics = merge(statistics, single)
        found["run_log_density"] = (
            terms[0] + terms[1],
            one_by_one,
            "ln p of a run and of its observations",
        )
    movable = shiftable(segment)
    if movable.any():
        by = jnp.where(jnp.asarray(movable), 1.5, 0.0)
        moved = logs(segment.translate(left, by), by)
        found["translate"] = moved, logs(left), "ln p of x - b after translate, and of x"
    return found


def drawn_segments(segment: Segment, seed: int) -> Float[Array, "draws time *event"]:
    """Many short segments."""
    source = Source(RegularPeriodic(_SEGMENT), segment)
    draw = source.sample(jax.random.key(seed), _DRAWS, _SEGMENT)
    return jnp.asarray(draw.values, float)


def joined(draws: Float[Array, "draws time *event"], length: int) -> Shaped[np.ndarray, "..."]:
    """Two sequences of this length, from some of the segments."""
    values = np.asarray(draws).reshape(-1, *draws.shape[2:])
    return values[: 2 * length].reshape(2, length, *draws.shape[2:])


def _sampler(segment: Segment, draws: Float[Array, "draws time *event"]) -> str:
    """Require that the probability integral transforms of draws are uniform."""
    coins = jax.random.uniform(jax.random.key(0), draws.shape[:2])

    def step(statistics: Statistics, now: tuple[Array, Array]) -> tuple[Statistics, Array]:
        ranks = probability_integral(segment.predictive(statistics), *now)
        return observe(segment, statistics, now[0]), ranks

    @jax.jit
    @jax.vmap
    def ranks(values: Array, coins: Array) -> Array:
        return jax.lax.scan(step, prior_statistics(segment), (values, coins))[1]

    return require_uniform(np.asarray(ranks(draws, coins)), "draws against the predictive")


def probability_integral(
    distribution: Any, x: Shaped[Array, "*event"], coin: Float[Array, ""]
) -> Float[Array, " columns"]:
    """P(X <= x) of each column; for whole numbers a random point of the step at x.

    Uniform on (0, 1) if x was drawn from the distribution (Rosenblatt, 1952).
    """
    ranks = []
    for at, column in _columns(distribution):
        entry = jnp.asarray(x)[at]
        step = jnp.exp(column.log_density(entry)) if column.support.whole else 0.0
        ranks.append(column.cdf(entry) - coin * step)
    return jnp.stack(ranks)
