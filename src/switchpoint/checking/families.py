"""A segment model: its predictive distribution, its statistics and its sampler."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint.checking.distributions import (
    mass_finding,
    probability_integral,
    uniform_finding,
)
from switchpoint.checking.report import Collector, compared
from switchpoint.priors import RegularPeriodic
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics, no_statistics, prior_statistics
from switchpoint.sources import Source

_CLOSE = 1e-6  # in double precision
_DRAWS, _SEGMENT = 10_000, 5


def check_family(
    findings: Collector, segment: Segment, values: Shaped[np.ndarray, "time *event"], seed: int
) -> None:
    """The findings about a segment model alone, with some of its observations."""
    with jax.enable_x64(True):
        findings.run("normalised", _normalised, segment, values)
        findings.run("merge is associative", _associative, segment, values)
        findings.run("zeros are neutral", _neutral, segment, values)
        findings.run("run_log_density", _run_log_density, segment, values)
        findings.run("translate", _translate, segment, values)
    findings.run("sampler", _sampler, segment, seed)


def _run(segment: Segment, values: Any) -> Statistics:
    """The statistics of some observations, without the prior of the segment."""
    statistics = segment.statistic(jnp.asarray(values[0], float))
    for x in values[1:]:
        statistics = segment.merge(statistics, segment.statistic(jnp.asarray(x, float)))
    return statistics


def _after(segment: Segment, values: Any) -> Statistics:
    """The statistics of a segment after some observations."""
    if not len(values):
        return prior_statistics(segment)
    return segment.merge(prior_statistics(segment), _run(segment, values))


def _density(segment: Segment, statistics: Statistics, values: Any) -> list[Float[Array, ""]]:
    """What the statistics predict: ln p of each of these as the next observation."""
    predictive = segment.predictive(statistics)
    return [predictive.log_density(jnp.asarray(x, float)) for x in values]


def _normalised(segment: Segment, values: Any) -> tuple[bool, str]:
    for count in (0, 1, 5):
        where = f"the predictive after {count} observations"
        predictive: Any = segment.predictive(_after(segment, values[:count]))
        probs: Any = getattr(predictive, "probs", None)
        if segment.finite and np.shape(probs) != (segment.alphabet,):
            return False, f"{where} must be a Discrete of {segment.alphabet} probabilities"
        found = mass_finding(predictive, where)
        if not found[0]:
            return found
    return True, f"the total probability {found[1].split(': ', 1)[1]}"


def _associative(segment: Segment, values: Any) -> tuple[bool, str]:
    first, second, third = (_run(segment, values[i : i + 2]) for i in (0, 2, 4))
    merge, initial = segment.merge, prior_statistics(segment)
    left = merge(initial, merge(merge(first, second), third))
    right = merge(merge(initial, first), merge(second, third))
    found, expected = (_density(segment, each, values[6:9]) for each in (left, right))
    return compared(
        found, expected, _CLOSE, "ln p after merge(merge(a, b), c) and merge(a, merge(b, c))"
    )


def _neutral(segment: Segment, values: Any) -> tuple[bool, str]:
    run, zeros = _run(segment, values[:4]), no_statistics(segment)
    merge, initial = segment.merge, prior_statistics(segment)
    expected = _density(segment, merge(initial, run), values[4:6])
    both = (("merge(0, s)", merge(zeros, run)), ("merge(s, 0)", merge(run, zeros)))
    for name, statistics in both:
        found = _density(segment, merge(initial, statistics), values[4:6])
        finding = compared(found, expected, _CLOSE, f"ln p after {name} and after s")
        if not finding[0]:
            return finding
    return compared(
        _density(segment, merge(initial, zeros), values[:1]),
        _density(segment, initial, values[:1]),
        _CLOSE,
        "ln p after merging with zeros and before",
    )


def _run_log_density(segment: Segment, values: Any) -> tuple[bool, str] | None:
    before, run = _after(segment, values[:3]), _run(segment, values[3:7])
    terms = segment.run_log_density(before, run)
    if terms is None:
        return None
    one_by_one = sum(
        _density(segment, _after(segment, values[:i]), values[i : i + 1])[0] for i in range(3, 7)
    )
    return compared(sum(terms), one_by_one, _CLOSE, "ln p of a run and of its observations")


def _translate(segment: Segment, values: Any) -> tuple[bool, str] | None:
    if not segment.shiftable.any():
        return None
    by = jnp.where(jnp.asarray(segment.shiftable), 1.5, 0.0)
    statistics = _after(segment, values[:4])
    found = _density(segment, segment.translate(statistics, by), values[4:7] - by)
    return compared(
        found, _density(segment, statistics, values[4:7]), _CLOSE, "ln p of x - b after translate"
    )


def _sampler(segment: Segment, seed: int) -> tuple[bool, str]:
    key_draw, key_coin = jax.random.split(jax.random.key(seed))
    source = Source(RegularPeriodic(_SEGMENT), segment)
    values = jnp.asarray(source.sample(key_draw, _DRAWS, _SEGMENT).values, float)
    coins = jax.random.uniform(key_coin, (_DRAWS, _SEGMENT))

    @jax.jit
    @jax.vmap
    def ranks(values: Array, coins: Array) -> Array:
        before = [_after(segment, values[:time]) for time in range(_SEGMENT)]
        statistics = jax.tree.map(lambda *leaves: jnp.stack(leaves), *before)
        predictives = jax.vmap(segment.predictive)(statistics)
        return jax.vmap(probability_integral)(predictives, values, coins)

    return uniform_finding(np.asarray(ranks(values, coins)), "draws against the predictive")
