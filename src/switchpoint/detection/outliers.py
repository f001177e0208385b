"""Outliers: single values that belong to no segment, and cut none in two.

With probability `SHARE` a value is an outlier, of a Cauchy distribution that does not depend on the
segment. Whether it is one would have to be summed over all subsets of a segment. Instead, each
hypothesis decides as values come: a value that is likelier an outlier than the next of the segment
stays out of its statistics. Its density is the sum of both cases, so that probabilities still sum
to 1 and everything computed from them is exact, for this model of outliers.

Only the first values of a segment are judged by too little. So segments of few observations are
looked at again, from the side of the segment before and the one after: the values in them that
are outliers there are taken out if that makes the values of both more probable.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from switchpoint._namespace import Numbers, namespace
from switchpoint.detection.elapsed import in_elapsed_time, make_clock
from switchpoint.detection.fits import Fit, fit_segment, is_real
from switchpoint.exact import bayes_optimal
from switchpoint.segments import Independent, Segment
from switchpoint.segments.base import elapse
from switchpoint.segments.distributions import Distribution
from switchpoint.sources import Source
from switchpoint.streams.forward import FamilyHypotheses

SHARE = 0.01
"""The probability of an outlier."""

_SCALE = 3.0  # of the outliers, in units of the spread of the series
_SHORT, _NEAR = 40, 200  # observations of a segment that is looked at again, and of those beside it
_MOST_WINDOWS = 100
_ROUNDS = 10


class Robust(Segment):
    """A family whose outliers stay out of its statistics, for recursions over single values."""

    family: tuple[Segment]

    def statistic(self, x: Numbers) -> Any:
        return self.family[0].statistic(x)

    def empty(self) -> Any:
        return self.family[0].empty()

    def initial(self) -> Any:
        return self.family[0].initial()

    def missing(self) -> Any:
        return self.family[0].missing()

    def merge(self, before: Any, after: Any) -> Any:
        return self.family[0].merge(before, after)

    def predictive(self, statistics: Any) -> Distribution:
        return self.family[0].predictive(statistics)

    def observe(self, statistics: Any, x: Numbers) -> tuple[Numbers, Any]:
        family = self.family[0]
        logs, observed = family.observe(statistics, x)
        xp = namespace(x, logs)
        logs = logs + math.log1p(-SHARE)
        odd = xp.zeros_like(logs) + math.log(SHARE) + log_outlier_density(family, x)
        left_out = logs < odd
        if xp is np and not left_out.any():
            return np.logaddexp(logs, odd), observed
        skipped = elapse(statistics, 1.0)

        def chosen(without: Any, leaf: Any) -> Any:
            more = np.ndim(leaf) - np.ndim(left_out)
            return xp.where(left_out.reshape(left_out.shape + (1,) * more), without, leaf)

        return xp.logaddexp(logs, odd), jax.tree.map(chosen, skipped, observed)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.family[0].event_shape

    @property
    def complete_rows(self) -> bool:
        return self.family[0].complete_rows


def with_outliers(source: Source, steps: Float[np.ndarray, " steps"] | None) -> Source:
    """The source with outliers in each column that has normal noise, in elapsed time if given."""
    columns = source.segment.columns if isinstance(source.segment, Independent) else None
    families = [Robust((each,)) if is_real(each) else each for each in columns or [source.segment]]
    source = Source(source.prior, families[0] if columns is None else Independent(*families))
    return source if steps is None else in_elapsed_time(source, steps)


def log_outlier_density(family: Segment, x: Any) -> Any:
    """ln p(an outlier), standardised: Cauchy in each column."""
    logs = -namespace(x).log1p((x / _SCALE) ** 2) - math.log(math.pi * _SCALE)
    return logs.sum(-1) if family.event_shape else logs


def inlier_log_odds(
    family: Segment,
    values: Float[np.ndarray, "time columns"],
    times: Float[np.ndarray, " time"],
    inside: Bool[np.ndarray, " time"],
) -> tuple[Fit, Float[np.ndarray, " time"]]:
    """The fit of a segment without outliers, and the log odds that each value is none.

    A value is predicted from all others of the segment. Values outside count as missing; outliers
    are left out until nothing changes.
    """
    left_out, log_odds = np.zeros(len(values), bool), np.zeros(len(values))
    for _ in range(_ROUNDS):
        fit = fit_segment(family, values, times, inside & ~left_out)
        odd = log_outlier_density(family, values if family.event_shape else values[:, 0])
        log_odds = fit.log_density - odd + math.log1p(-SHARE) - math.log(SHARE)
        before, left_out = left_out, inside & (log_odds < 0)
        if (left_out == before).all():
            break
    return fit, log_odds


def hidden_outliers(
    source: Source,
    values: Float[np.ndarray, "time columns"],
    changes: list[int],
    steps: Float[np.ndarray, " steps"] | None = None,
) -> Bool[np.ndarray, "time columns"]:
    """The values in short segments that are outliers of a neighbouring one.

    They have a higher evidence, with these values missing and outliers, in the window of both
    segments: O(1) time for each short segment, of which the first `_MOST_WINDOWS` are examined.
    """
    hidden, clock = np.zeros(values.shape, bool), make_clock(len(values), steps)
    edges = [0, *changes, len(values)]
    short = [number for number, (a, b) in enumerate(pairwise(edges)) if b - a <= _SHORT]
    for number in short[:_MOST_WINDOWS] if changes else []:
        start, end = edges[number : number + 2]
        first = max(edges[max(number - 1, 0)], start - _NEAR)
        last = min(edges[min(number + 2, len(edges) - 1)], end + _NEAR)
        window = values[first:last]
        within = None if steps is None else steps[first : last - 1]
        proposals = []
        for begin, stop in ((first, end), (start, last)):
            if stop - begin > end - start:
                rows, whole = slice(begin, stop), [0, stop - begin]
                _, odd = segment_fits(source.segment, values[rows], clock[rows], whole)
                proposal = np.zeros(window.shape, bool)
                proposal[start - first : end - first] = odd[start - begin : end - begin] > 0.5
                proposals.append(proposal)
        best, chosen = log_evidence(source, window, within), None
        for proposal in proposals:
            if proposal.any():
                logs = log_evidence(source, np.where(proposal, np.nan, window), within)
                logs += log_density_of_outliers(source, window, proposal)
                if logs > best:
                    best, chosen = logs, proposal
        if chosen is not None:
            hidden[first:last] |= chosen
    return hidden


def log_density_of_outliers(
    source: Source,
    values: Float[np.ndarray, "time columns"],
    which: Bool[np.ndarray, "time columns"],
) -> float:
    """ln P(these values are outliers, and what they are)."""
    count = which.any(1).sum() if source.segment.complete_rows else which.sum()
    seen = np.where(which, values, np.nan)
    logs = -np.log1p((seen / _SCALE) ** 2) - math.log(math.pi * _SCALE)
    return float(np.nansum(logs)) + int(count) * math.log(SHARE)


def segment_fits(
    segment: Segment,
    values: Float[np.ndarray, "time columns"],
    clock: Float[np.ndarray, " time"],
    edges: Sequence[int],
    outliers: bool = True,
    hidden: Bool[np.ndarray, "time columns"] | None = None,
) -> tuple[Float[np.ndarray, "time columns"], Float[np.ndarray, "time columns"]]:
    """The fits of the segments between edges, and P(an outlier | the others of its segment).

    Outliers and hidden values do not influence the fits.
    """
    expected, odd = np.full(values.shape, np.nan), np.zeros(values.shape)
    gaps = np.isnan(values)
    for columns, family in blocks(segment):
        for bounds in pairwise(edges) if is_real(family) else ():
            part = slice(*bounds), columns
            seen = ~gaps[part].any(1)
            inside = seen if hidden is None else seen & ~hidden[part].any(1)
            given = family, values[part], clock[slice(*bounds)], inside
            if not outliers:
                expected[part] = fit_segment(*given).expected
                continue
            fit, log_odds = inlier_log_odds(*given)
            expected[part] = fit.expected
            odd[part] = np.where(seen, expit(-log_odds), 0.0)[:, None]
    return expected, odd


def blocks(segment: Segment) -> list[tuple[slice, Segment]]:
    """The columns of each family: one of several for `Independent`, and otherwise all of them."""
    if isinstance(segment, Independent):
        return [(slice(i, i + 1), each) for i, each in enumerate(segment.columns)]
    return [(slice(None), segment)]


def as_observations(
    source: Source, values: Float[np.ndarray, "time columns"]
) -> Float[np.ndarray, "time *columns"]:
    """The values without an axis of columns, if those of the source have none."""
    return values if source.segment.event_shape else values[:, 0]


def log_evidence(
    source: Source,
    values: Float[np.ndarray, "time columns"],
    steps: Float[np.ndarray, " steps"] | None,
    max_hypotheses: int | None = None,
) -> float:
    """ln p(standardised values), some of which may be outliers."""
    law = with_outliers(source, steps)
    engine = FamilyHypotheses(bayes_optimal(law, max_hypotheses), None)
    total = 0.0
    each = as_observations(source, values)
    for time, x in enumerate(each if each.ndim > 1 else each.tolist()):
        total += engine.step(x)
        if steps is not None and time < len(steps):
            engine.elapse(steps[time] - 1)
    return total
