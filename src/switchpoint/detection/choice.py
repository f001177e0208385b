"""The kind of segments of a series, chosen by evidence.

The evidence of a kind is that of its source, with switches: levels against trends, then seasons on
top of the better one, then a lag. Periods are that of the differences of neighbouring values, and
those of the calendar.

Evidence alone is a bad judge of lags. With a coefficient near 1, a lag explains a random walk, a
curve and their bends, all of which people call changes. So a lag is for stationary noise: it must
earn `_LEAST_GAIN` an observation, and what is left around the lines of its segments must be
stationary: n observations must have an autocorrelation below 1 - 21.8 / n, which 5% of random walks
have (Fuller, 1976, "Introduction to Statistical Time Series", table 8.5.1, with a line).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from switchpoint.detection.changes import change_points
from switchpoint.detection.checks import noise_dependence
from switchpoint.detection.defaults import default_column, default_source
from switchpoint.detection.elapsed import make_clock
from switchpoint.detection.outliers import log_evidence, segment_fits, with_outliers
from switchpoint.detection.posterior import SwitchPosterior
from switchpoint.sources import Source

HYPOTHESES = 100
"""The hypotheses by which evidences are compared."""

_PART = 2048  # observations that are enough to choose by
_LEAST_LAG, _LEAST_GAIN = 100, 0.05
_UNIT_ROOT, _STATIONARY = 21.8, 0.95

_DAY = 86_400.0
_CALENDAR = {  # seconds of a step, and the seasons of such series in steps
    900.0: (96.0, 672.0),
    1800.0: (48.0, 336.0),
    3600.0: (24.0, 168.0),
    _DAY: (7.0, 365.25),
    7 * _DAY: (52.18,),
    30.44 * _DAY: (12.0,),
    91.31 * _DAY: (4.0,),
}
_SAME = 0.04  # relative difference of months


class Candidate(NamedTuple):
    """A kind of segments, and its evidence."""

    segment: str
    season: tuple[float, ...]
    log_evidence: float
    """ln p(the values that were used), in units of their spread."""

    def __str__(self) -> str:
        periods = " and ".join(f"{each:g}" for each in self.season)
        return self.segment + (f" with season {periods}" if periods else "")


@dataclass(frozen=True)
class Choice:
    """The kind of segments of a column, and the others that were considered."""

    candidates: tuple[Candidate, ...]
    """The chosen one first, and the others by their evidence."""
    observations: int
    """The number of observations that were used, from the middle of the series."""
    autocorrelation: float | None
    """Of what is left around the lines of segments with a lag, if that was considered."""
    alternative: str
    """The other reading of the series, in a sentence; empty if there is none that differs."""

    @property
    def chosen(self) -> Candidate:
        return self.candidates[0]

    @property
    def summary(self) -> dict[str, Any]:
        """The choice, ready for JSON."""
        rows = [each._asdict() | {"season": list(each.season)} for each in self.candidates]
        return asdict(self) | {"candidates": rows}

    def __str__(self) -> str:
        best, *others = self.candidates
        gaps = []
        for each in others[:3]:
            gap = each.log_evidence - best.log_evidence
            little = " (too little for a lag)" if gap > 0 and not self.alternative else ""
            gaps.append(f"{each} {evidence_gap(gap)}{little}")
        return f"{best}, by evidence: {', '.join(gaps)}"


def middle_part(length: int, columns: int) -> slice:
    """The observations by which the kind of segments is chosen."""
    most = max(_PART // columns, 512)
    start = max(0, (length - most) // 2)
    return slice(start, min(length, start + most))


def choose(
    values: Float[np.ndarray, " time"],
    sensitivity: float,
    steps: Float[np.ndarray, " steps"] | None,
    seconds: float | None,
) -> Choice:
    """Choose the kind of segments of a column, whose usual step of time is known or None."""

    def reading(segment: str, season: tuple[float, ...]) -> tuple[Source, Any, Any]:
        column = default_column(segment, values, season)
        standard = (values[:, None] - column.centre) / column.scale
        return default_source([column], sensitivity), standard, steps

    length, considered = len(values), []
    for segment in ("level", "trend"):
        logs = log_evidence(*reading(segment, ()), HYPOTHESES)
        considered.append(Candidate(segment, (), logs))
    plain = max(considered, key=_by_evidence).segment
    noticed = noise_dependence(values)
    periods = _periods(noticed.season, seconds, length)
    for season in [*((each,) for each in periods), *[tuple(periods)] * (len(periods) > 1)]:
        logs = log_evidence(*reading(plain, season), HYPOTHESES)
        considered.append(Candidate(plain, season, logs))
    chosen = max(considered, key=_by_evidence)
    autocorrelation, alternative = None, ""
    dependent = bool(chosen.season) or noticed.autocorrelation is not None
    seen = int((~np.isnan(values)).sum())
    if dependent and seen >= _LEAST_LAG:
        with_lag = reading("autocorrelated", chosen.season)
        lagged = Candidate("autocorrelated", chosen.season, log_evidence(*with_lag, HYPOTHESES))
        considered.append(lagged)
        gap = lagged.log_evidence - chosen.log_evidence
        if gap > _LEAST_GAIN * length:
            changes = _changes(*with_lag)
            autocorrelation = _autocorrelation(*reading("trend", chosen.season), changes)
            if autocorrelation < min(1 - _UNIT_ROOT / seen, _STATIONARY):
                other = _in_words(_changes(*reading(*chosen[:2])), -gap)
                chosen, alternative = lagged, f"with independent noise: {other}"
            else:
                alternative = (
                    f"with autocorrelated noise: {_in_words(changes, gap)}; not taken, since a lag "
                    "explains curves and random walks too, and the autocorrelation around its "
                    f"lines is {autocorrelation:.2f}"
                )
    others = sorted((each for each in considered if each is not chosen), key=_by_evidence)
    return Choice((chosen, *others[::-1]), length, autocorrelation, alternative)


def _changes(source: Source, standard: Any, steps: Any) -> list[int]:
    """The change points under a source."""
    posterior = SwitchPosterior(with_outliers(source, steps), standard[:, 0])
    return change_points(posterior.switch_probability, ~np.isnan(standard[:, 0]))


def _autocorrelation(source: Source, standard: Any, steps: Any, changes: Sequence[int]) -> float:
    """The correlation of neighbouring residuals within segments."""
    length = len(standard)
    clock, edges = make_clock(length, steps), [0, *changes, length]
    expected, odd = segment_fits(source.segment, standard, clock, edges)
    rest = np.where(odd > 0.5, np.nan, standard - expected)[:, 0]
    products = np.delete(rest[1:] * rest[:-1], np.array(changes, int) - 1)
    square = float(np.nansum(rest**2))
    return float(np.nansum(products)) / square if square > 0 else 0.0


def evidence_gap(gap: float) -> str:
    """How much higher or lower an evidence is, in words."""
    return f"e^{abs(gap):.{0 if abs(gap) >= 10 else 1}f} {'higher' if gap > 0 else 'lower'}"


def _in_words(changes: Sequence[int], gap: float) -> str:
    count = len(changes)
    what = "no change" if not count else f"{count} change{'s' * (count > 1)}"
    return f"{what}, evidence {evidence_gap(gap)}"


def _by_evidence(candidate: Candidate) -> float:
    return candidate.log_evidence


def _periods(noticed: int | None, seconds: float | None, length: int) -> list[float]:
    """The periods that are worth considering: at most two of the calendar, or one noticed."""
    known = [
        periods
        for step, periods in _CALENDAR.items()
        if (seconds is not None and math.isclose(step, seconds, rel_tol=_SAME))
        or (seconds is None and noticed == periods[0])
    ]
    periods = [each for each in next(iter(known), ()) if 2 * each <= length + 1]
    if noticed is not None and noticed not in periods:
        periods = [float(noticed), *periods[:1]]
    return periods
