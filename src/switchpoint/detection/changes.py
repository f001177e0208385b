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

import numpy as np
from jaxtyping import Bool, Float

WINDOW = 20  # observations
_THRESHOLD = 0.5


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
    paying = expected[ends] - expected[np.maximum(ends - WINDOW, 0)] > _THRESHOLD
    gains = np.zeros(length + 1)
    begins = np.full(length + 1, -1)
    last = 0
    for end in ends[paying].tolist():  # elsewhere no window pays
        gains[last + 1 : end + 1] = gains[last]
        first, last = max(0, end - WINDOW), end
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
