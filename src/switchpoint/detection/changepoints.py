"""Change points of a series by the exact posterior of a default source, or of a given one."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint._progress import Progress
from switchpoint.detection.groups import GroupedSegmentation, detect_groups
from switchpoint.detection.model import chosen_model, series_model, with_dispersion
from switchpoint.detection.segmentation import Segmentation
from switchpoint.detection.series import Series, parse_series
from switchpoint.detection.times import Times, warn_of_steps
from switchpoint.priors import Geometric
from switchpoint.sources import Source


@overload
def detect(
    values: Any, times: Any = None, *, group_by: None = None, **options: Any
) -> Segmentation: ...


@overload
def detect(
    values: Any, times: Any = None, *, group_by: Any, **options: Any
) -> GroupedSegmentation: ...


def detect(  # type: ignore[misc] # the overloads abbreviate the options
    values: Any,
    times: Any = None,
    *,
    group_by: Any = None,
    segment: str | Sequence[str] | None = None,
    season: float | None = None,
    sensitivity: float | None = None,
    spacing: str | None = None,
    source: Source | None = None,
    fit: bool = False,
    coverage: float = 0.9,
    min_length: int = 1,
    max_changes: int | None = None,
    progress: Progress | None = None,
) -> Segmentation | GroupedSegmentation:
    """The change points of a series, and how certain they are.

    Change points are those of least expected loss, where a reported change without a switch near
    it costs as much as a switch without a reported change: there is one where a switch within a
    window of at most 20 observations is more probable than not, at its likeliest position.

    `values` are (time,), or (time, columns) for several columns with common switches; NaN is
    missing. `times` are numbers or dates, or the name of a column of a DataFrame. Without `times`,
    an index of dates or of increasing numbers, or the only column of dates, is the time. Tables of
    the result are of polars if the values are.

    `spacing` is "regular" if the model counts observations, and "irregular" if it counts time in
    units of the median step: the hazard, the slope and the season are per unit of time, and a
    switch between observations a time d apart has probability 1 - (1 - h)^d. If not given, it is
    irregular where steps differ by more than rounding, months and business days, and the model can
    count time: with a `Geometric` prior, and without `fit`.

    `group_by` is the name of a column of the DataFrame `values`, or has a label for each row: each
    group of rows is a series of its own, and the result is a `GroupedSegmentation`, a mapping from
    group to `Segmentation` with tables of all of them.

    `segment` is what the segments look like: "trend" (lines with unknown noise), "level" (constant
    levels with unknown noise), "autocorrelated" (lines with noise that depends on the last value),
    "counts" (Poisson, or negative binomial where that has a higher evidence) or "waiting-times"
    (exponential); one for all columns, or one for each. `season` is a period in observations, whose
    first two harmonics are added to trends and levels. Without both, they are chosen for each
    column by their evidence: `choices` of the result has that of all candidates, and says where
    another reading differs; correlated columns are modelled together if that has a higher one.
    `warnings` say where the noise contradicts a given model. A value that is far from its segment
    is one of `outliers`, and cuts no segment in two. `sensitivity` is the expected number of
    switches per 1,000 observations, 5 by default. Values are standardised by robust scales, so
    their units do not matter. A `source` of your own takes the place of all these, and sees the
    values as they are, without outliers.

    With `fit`, the sensitivity and the scales of the default source, or all hyperparameters of your
    own, are those of highest evidence: for long series that switch many times. On short or
    irregular series the default source finds better change points as it is. `coverage` is the
    probability with which the interval of a change point contains a switch. Of changes nearer to
    each other, or to the ends, than `min_length` observations the more probable stay, and of more
    than `max_changes` too.

    The time is O(n), and so is that of each column: about 40 microseconds per observation. Up to
    2,048 observations nothing is approximated; in longer series, hypotheses that hardly differ are
    merged, which changes probabilities by less than 1e-3. `progress` is an object whose method
    `update(text, done)` receives the share that is done.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> noise = np.random.default_rng(0).normal(size=60)
    >>> sp.detect(noise + 5 * (np.arange(60) >= 40))
    Segmentation(60 observations, 1 change point at 40)
    >>> both = np.append(noise, noise + 5 * (np.arange(60) >= 20))
    >>> by_group = sp.detect(both, group_by=60 * ["quiet"] + 60 * ["loud"])
    >>> {group: found.changepoints.tolist() for group, found in by_group.items()}
    {'quiet': [], 'loud': [20]}
    """
    coverage = _checks.probability("coverage", coverage, below_one=True)
    min_length = _checks.positive_int("min_length", min_length)
    if max_changes is not None:
        max_changes = _checks.whole_number("max_changes", max_changes)

    if group_by is not None:
        options: dict[str, Any] = {"segment": segment, "season": season, "sensitivity": sensitivity}
        options |= {"spacing": spacing, "source": source, "fit": fit, "coverage": coverage}
        options |= {"min_length": min_length, "max_changes": max_changes}
        each = functools.partial(detect, **options)
        return detect_groups(values, times, group_by, each, progress or Progress())
    series = values if isinstance(values, Series) else parse_series(values, times)
    steps = _steps(series.times, spacing, source, fit)
    if segment is None and season is None and source is None:
        model = chosen_model(series, sensitivity, steps, fit)
    else:
        model = series_model(series.values, segment, sensitivity, source, fit, series.names, season)
        model = replace(model, steps=steps)
        if source is None and not fit:
            model = with_dispersion(model, series.values)
    return model.segmentation(series, coverage, min_length, max_changes, progress)


def _steps(
    times: Times | None, spacing: str | None, source: Source | None, fit: bool
) -> Float[np.ndarray, " steps"] | None:
    """The steps of time that a model counts; None if it counts observations."""
    if spacing not in (None, "regular", "irregular"):
        raise ValueError(f"spacing must be regular or irregular, got {spacing!r}")
    if times is None:
        if spacing == "irregular":
            raise ValueError("spacing irregular needs times")
        return None
    if spacing == "regular" or (spacing is None and not times.irregular):
        return None
    prior = None if source is None else source.prior
    if fit or not isinstance(prior, Geometric | None):
        if spacing is None:
            warn_of_steps(times)
            return None
        problem = "it cannot be fitted" if fit else f"got {prior!r}"
        raise ValueError(
            f"spacing irregular needs a given Geometric prior, whose hazard is per unit of time: "
            f"{problem}"
        )
    return times.steps
