"""How well change points agree with those that people marked, or that are true.

`annotations` are the marked change points of one person, or of several: a mapping from names, or a
list of lists. Change points are positions of the first observation of a segment, from 0.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

Annotations: TypeAlias = "Mapping[Any, Sequence[int]] | Sequence[Sequence[int]] | Sequence[int]"


def covering(annotations: Annotations, changepoints: Sequence[int], length: int) -> float:
    """How well the segments between change points cover those of each person, from 0 to 1.

    For segments A of one person and B between the change points, sum over A of |A| / length times
    the largest Jaccard overlap |A and B| / |A or B|; the mean over people (Arbelaez et al., 2010;
    van den Burg and Williams, 2020). O(segments^2) time.

    >>> import switchpoint as sp
    >>> sp.detection.covering([50], [50], length=100)
    1.0
    >>> sp.detection.covering([50], [], length=100)
    0.5
    """
    segments = list(pairwise([0, *sorted(map(int, changepoints)), length]))

    def best_overlap(a: int, b: int) -> float:
        return max(max(min(b, d) - max(a, c), 0) / (max(b, d) - min(a, c)) for c, d in segments)

    covered = [
        sum((b - a) / length * best_overlap(a, b) for a, b in pairwise([0, *marked, length]))
        for marked in _people(annotations)
    ]
    return float(np.mean(covered))


def f1(annotations: Annotations, changepoints: Sequence[int], margin: int = 5) -> float:
    """The harmonic mean of precision and recall, with a margin in observations.

    A change point is correct within the margin of one that anybody marked; recall is the mean over
    people. The position 0 counts as marked and as reported, and no point is matched twice (van den
    Burg and Williams, 2020).

    >>> import switchpoint as sp
    >>> sp.detection.f1({"Ann": [50], "Bob": []}, [52])
    1.0
    """
    people = _people(annotations)
    points = {0, *map(int, changepoints)}
    everyone = {0}.union(*people)
    precision = _matches(everyone, points, margin) / len(points)
    recall = np.mean([_matches({0, *each}, points, margin) / len({0, *each}) for each in people])
    return float(2 * precision * recall / (precision + recall))


def false_alarms(true: Sequence[int], changepoints: Sequence[int], margin: int = 5) -> int:
    """The number of change points that are not within the margin of a true one of their own.

    >>> import switchpoint as sp
    >>> sp.detection.false_alarms([50], [20, 52])
    1
    """
    points = {*map(int, changepoints)}
    return len(points) - _matches({*map(int, true)}, points, margin)


def delays(true: Sequence[int], alarms: Sequence[int]) -> list[int | None]:
    """How many observations after each true change the first alarm came before the next change.

    None where there was none. For alarms of a stream, which come after the change.

    >>> import switchpoint as sp
    >>> sp.detection.delays([50, 80], [20, 52])
    [2, None]
    """
    changes = sorted(map(int, true))
    result: list[int | None] = []
    for change, following in pairwise([*changes, np.inf]):
        after = [int(each) - int(change) for each in alarms if change <= each < following]
        result.append(min(after, default=None))
    return result


def _people(annotations: Annotations) -> list[list[int]]:
    marked: Any = annotations.values() if isinstance(annotations, Mapping) else annotations
    marked = list(marked)
    if all(np.ndim(each) == 0 for each in marked):
        marked = [marked]
    return [sorted(map(int, each)) for each in marked]


def _matches(marked: set[int], reported: set[int], margin: int) -> int:
    """How many marked points have a reported one within the margin, none of them used twice."""
    left, matches = set(reported), 0
    for point in sorted(marked):
        near = [(abs(point - each), each) for each in left if abs(point - each) <= margin]
        if near:
            left.remove(min(near)[1])
            matches += 1
    return matches
