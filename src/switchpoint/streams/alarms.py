"""Alarms: when the posterior of a stream says that its source has changed."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from switchpoint import _checks
from switchpoint.priors import Prior
from switchpoint.streams.stream import Stream

# The mean time to a false alarm of a Shiryaev-Roberts statistic is its threshold over the mean
# overshoot factor (Pollak, 1987), which was measured for changes of unknown size:
# benchmarks/alarms.py.
_OVERSHOOT = 0.6
_COVERAGE = 0.9


@dataclass(frozen=True)
class Change:
    """An alarm, and what is known of the change when it is raised.

    position
        The position of the observation that raised it, from 0.
    probability
        P(a segment started since the last alarm | all so far).
    began
        The most probable start of that segment.
    interval
        The shortest interval of starts with 90% of that probability: first and last, included.
    level_before, level_after
        E[x | x is of a segment that started before, or since, the last alarm] of the next
        observation: a number, an array of columns, or the probabilities of symbols.

    See `Alarm` for an example.
    """

    position: int
    probability: float
    began: int
    interval: tuple[int, int]
    level_before: Any
    level_after: Any


class Alarm:
    """An alarm rule for a `Stream`, with a rate of false alarms that one sets.

    Let a be the position after the last alarm, or at most `horizon` observed values back. After
    each observation x_t an alarm is raised if

        P(s > a | x_<=t) / P(s <= a | x_<=t) >= c h N,

    where s is the start of the current segment, h the prior probability of a switch at an
    observation, N = `one_in` and c = 0.6. Under a constant hazard h, the left side over h is the
    Shiryaev-Roberts statistic, the sum of the likelihood ratios of all starts since a, whose mean
    time to a false alarm is its threshold, but for the overshoot c (Pollak, 1987): without a change
    there is about one alarm in `one_in` observations, for any hazard. With another prior h is the
    mean over `horizon`, and the rate is approximate. Nothing is forgotten: a change too small to be
    seen at once adds up over `horizon` observations, missing ones not counted, and after an alarm
    the return to the old level is a change of its own.

    An observation costs O(hypotheses). The rule must see every observation of its stream:

        >>> import switchpoint as sp
        >>> stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.01)), 100))
        >>> alarm = sp.Alarm(one_in=10_000)
        >>> for x in [0] * 50 + [1] * 20:
        ...     log_density = stream.update(x)
        ...     if change := alarm.check(stream, x):
        ...         print(change.position, change.began, change.interval)
        52 50 (49, 50)
    """

    def __init__(self, one_in: float = 100_000, horizon: int = 1000) -> None:
        self.one_in = _checks.finite_float("one_in", one_in)
        if self.one_in < 2:
            raise ValueError(f"one_in must be at least 2 observations, got {one_in}")
        self.horizon = _checks.positive_int("horizon", horizon)
        self.probability = 0.0
        """P(a segment started since the last alarm | all so far), at the last check."""
        self._after = 0
        """The position after the last alarm."""
        self._gaps: deque[int] = deque()
        """The positions of the missing observations within the horizon."""
        self._odds: tuple[Prior, float] | None = None

    def threshold(self, stream: Stream) -> float:
        """The odds of a switch since the last alarm at which an alarm is raised: c h N."""
        prior = getattr(stream.predictor, "prior", None)
        if not isinstance(prior, Prior):
            raise ValueError(
                "an alarm needs the posterior of an exact predictor with a prior, such as that of "
                f"switchpoint.bayes_optimal(source), got a stream of {stream.predictor!r}"
            )
        if self._odds is None or self._odds[0] is not prior:
            self._odds = prior, _OVERSHOOT * self.one_in * switch_rate(prior, self.horizon)
        return self._odds[1]

    def check(self, stream: Stream, x: Any) -> Change | None:
        """The alarm that the observation x raises, which the stream observed last."""
        if x != x if isinstance(x, float) else is_missing(x):
            self._gaps.append(stream.position - 1)
        since = max(1, self._after, stream.position - self.horizon - len(self._gaps))
        while self._gaps and self._gaps[0] < since:
            self._gaps.popleft()
        odds = self.threshold(stream)
        self.probability = 0.0
        if since >= stream.position:
            return None
        self.probability = stream.change_probability(last=stream.position - since)
        if self.probability < odds / (1 + odds):
            return None
        began, interval = _likely_starts(stream, since)
        before, after = stream.levels(since)
        self.reset(stream)
        return Change(stream.position - 1, self.probability, began, interval, before, after)

    @property
    def after(self) -> int:
        """The position after the last alarm: only switches from there on count."""
        return self._after

    def reset(self, stream: Stream, after: int | None = None) -> None:
        """Count only switches from a position on, by default that of the next observation."""
        self._after = stream.position if after is None else after
        self._gaps.clear()

    def state(self) -> dict[str, Any]:
        """The rule and what it remembers, as JSON has it."""
        return {
            "one_in": self.one_in,
            "horizon": self.horizon,
            "after": self._after,
            "gaps": list(self._gaps),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Alarm":
        """The rule that returned this state."""
        alarm = cls(state["one_in"], state["horizon"])
        alarm._after, alarm._gaps = state["after"], deque(state["gaps"])
        return alarm


def switch_rate(prior: Prior, horizon: int) -> float:
    """The prior probability of a switch at an observation.

    The hazard where it is constant, otherwise the mean of P(a segment starts at t) over
    t = 1..horizon.
    """
    if prior.memoryless:
        return float(np.asarray(prior.hazard_after(np.zeros(1), np.ones(1))).reshape(-1)[0])
    length = min(horizon + 1, prior.max_sequence or math.inf)
    return float(prior.switch_probability(int(length))[1:].mean())


def _likely_starts(stream: Stream, since: int) -> tuple[int, tuple[int, int]]:
    """The most probable start from `since` on, and the shortest interval with its coverage."""
    starts, probabilities = stream.starts()
    recent = starts >= since
    starts, probabilities = starts[recent], probabilities[recent]
    sums = np.concatenate([[0.0], probabilities.cumsum()])
    ends = np.searchsorted(sums, sums[:-1] + _COVERAGE * sums[-1])
    reached = ends < len(sums)
    first = np.flatnonzero(reached)
    lengths = starts[ends[first] - 1] - starts[first]
    best = first[lengths.argmin()]
    began = int(starts[probabilities.argmax()])
    return began, (int(starts[best]), int(starts[ends[best] - 1]))


def is_missing(x: Any) -> bool:
    """Whether nothing of an observation is there."""
    if isinstance(x, Mapping):
        return all(map(_checks.is_missing, x.values()))
    if isinstance(x, Sequence | np.ndarray) and np.ndim(x) != 0:
        return all(map(_checks.is_missing, x))
    return _checks.is_missing(x)
