"""Change points from the posterior of switching points.

The most probable partition is a poor answer: of many partitions with a switch somewhere in 1890 to
1894 none is probable, and one without it may win. Instead, the reported changes minimise an
expected loss: 1 for each reported change in whose window there is no switch, and 1 for each switch
that no window contains. Windows are disjoint and at most 20 observations wide. A window pays where
P(at least one switch in it | x) exceeds 1/2, so the sum of these excesses is maximised, by dynamic
programming. P is replaced by its upper bound, the expected number of switches, if below 1. Each
change is reported at the likeliest position of its window.
"""

import bisect
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from switchpoint.detection.posterior import SwitchPosterior

_WINDOW = 20  # observations
_THRESHOLD = 0.5

# Expected numbers of switches relative to the coverage; an interval may contain more than one.
_SHARES = np.array([1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0])


class Change(NamedTuple):
    """A change point with its uncertainty."""

    position: int
    """The first observation of the new segment."""
    probability: float
    """P(a switch at exactly this position | x)."""
    begin: int
    """The first and the last position of an interval that probably contains a switch."""
    end: int
    interval_probability: float
    """P(at least one switch in the interval | x)."""


def change_points(
    probability: Float[np.ndarray, " time"],
    observed: Bool[np.ndarray, " time"],
    min_length: int = 1,
    max_changes: int | None = None,
) -> list[int]:
    """The changes of least expected loss, given P(a switch at t | x) for each t.

    A change in a gap is reported at the next observation. Of changes nearer to each other than
    `min_length`, and beyond `max_changes`, the more probable stay.
    """
    length = len(probability)
    expected = np.append(0.0, np.cumsum(probability))
    ends = np.arange(1, length + 1)
    paying = expected[ends] - expected[np.maximum(ends - _WINDOW, 0)] > _THRESHOLD
    gains = np.zeros(length + 1)
    begins = np.full(length + 1, -1)
    last = 0
    for end in ends[paying].tolist():  # elsewhere no window pays
        gains[last + 1 : end + 1] = gains[last]
        first, last = max(0, end - _WINDOW), end
        inside = np.minimum(expected[end] - expected[first:end], 1.0)
        totals = gains[first:end] + inside - _THRESHOLD
        best = len(totals) - 1 - int(totals[::-1].argmax())  # of equal ones, the shortest window
        if totals[best] > gains[end] + 1e-12:
            gains[end], begins[end] = totals[best], first + best
    next_seen = np.minimum.accumulate(np.where(observed, np.arange(length), length)[::-1])[::-1]
    found: dict[int, float] = {}
    before = length
    for end in np.flatnonzero(begins >= 0)[::-1].tolist():
        if end <= before:
            before = begin = int(begins[end])
            position = begin + int(probability[begin:end].argmax())
            seen = int(next_seen[position])
            found[seen if seen < length else position] = expected[end] - expected[begin]
    kept = [0, length]
    changes: list[int] = []
    for position in sorted(found, key=lambda each: -found[each]):
        place = bisect.bisect(kept, position)
        near = min(position - kept[place - 1], kept[place] - position)
        if near >= min_length:
            kept.insert(place, position)
            changes.append(position)
    return sorted(changes[:max_changes])


def with_intervals(
    posterior: SwitchPosterior, positions: list[int], coverage: float
) -> tuple[list[Change], float]:
    """The changes at these positions, and P(no switch at all | x).

    An interval is the shortest around its position, between the neighbouring changes, that contains
    a switch with probability `coverage`. If all the positions between the neighbours reach less,
    it is the shortest with that share of the probability that they reach.
    """
    probability = posterior.switch_probability
    expected = np.append(0.0, np.cumsum(probability))
    length = len(probability)
    edges = [0, *positions, length]
    lows, highs = [each + 1 for each in edges[:-2]], [each - 1 for each in edges[2:]]
    if length < 2:
        return [], 1.0
    whole = [(1, length - 1), *zip(lows, highs, strict=True)]
    none, *missed = posterior.no_switch_within(np.array(whole, int)).tolist()
    between = [1 - each for each in missed]
    goals = [coverage if each >= coverage else coverage * each for each in between]
    candidates = [
        [_shortest(expected, at, low, high, goal * share) for share in _SHARES] + [(low, high)]
        for at, low, high, goal in zip(positions, lows, highs, goals, strict=True)
    ]
    flat = np.array([each for row in candidates for each in row], int).reshape(-1, 2)
    reached = 1 - posterior.no_switch_within(flat).reshape(len(positions), len(_SHARES) + 1)
    changes = []
    for at, row, chances, goal in zip(positions, candidates, reached, goals, strict=True):
        best = int(np.argmax(chances >= goal * (1 - 1e-9)))
        begin, end = row[best]
        changes.append(Change(at, float(probability[at]), begin, end, float(chances[best])))
    return changes, float(none)


def _shortest(
    expected: Float[np.ndarray, " ends"], at: int, low: int, high: int, share: float
) -> tuple[int, int]:
    """The shortest interval in low..high around `at` with this expected number of switches."""
    begins = np.arange(low, at + 1)
    ends = np.searchsorted(expected[: high + 2], expected[begins] + share * (1 - 1e-9)) - 1
    ends = np.maximum(ends, at)
    if (ends > high).all():
        return low, high
    best = int(np.argmin(np.where(ends <= high, ends - begins, high + 1)))
    return int(begins[best]), int(ends[best])
