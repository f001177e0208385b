"""Change points of a series by the exact posterior of a default source, or of a given one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint.detection.defaults import (
    SEGMENTS,
    SENSITIVITY,
    default_column,
    default_source,
    fitted_parameters,
)
from switchpoint.detection.segmentation import Segmentation
from switchpoint.detection.series import parse_series
from switchpoint.exact import bayes_optimal
from switchpoint.priors import Geometric
from switchpoint.sources import Source


def detect(
    values: Any,
    times: Any = None,
    *,
    segment: str | Sequence[str] | None = None,
    sensitivity: float | None = None,
    source: Source | None = None,
    fit: bool = False,
    coverage: float = 0.9,
) -> Segmentation:
    """The change points of a series: the most probable partition, and how certain it is.

    `values` are (time,), or (time, columns) for several columns with common switches; NaN is
    missing. `times` are numbers or dates. They label the observations and do not enter the
    model, which counts observations; a warning says where their steps differ.

    `segment` is what the segments look like: "trend" (lines with unknown noise, the default),
    "level" (constant levels with unknown noise), "counts" (Poisson) or "waiting-times"
    (exponential); one for all columns, or one for each. `sensitivity` is the expected number of
    switches per 1,000 observations, 5 if not given. Values are standardised by robust scales, so
    their units do not matter. A `source` of your own takes the place of both, and sees the values
    as they are.

    With `fit`, the sensitivity and the scales of the default source, or all hyperparameters of your
    own, are those of highest evidence. `coverage` is the probability with which the interval of a
    change point contains a switch.
    """
    series = parse_series(values, times)
    coverage = _checks.probability("coverage", coverage, below_one=True)
    count = series.values.shape[1]
    if source is None:
        given = (
            SENSITIVITY
            if sensitivity is None
            else _checks.positive_float("sensitivity", sensitivity)
        )
        if given >= 1000:
            raise ValueError(
                "sensitivity must be below 1000, the number of switches per 1,000 observations, "
                f"got {given:g}"
            )
        columns = [
            default_column(kind, column)
            for kind, column in zip(_kinds(segment, count), series.values.T, strict=True)
        ]
        source = default_source(columns, given)
        parameters = fitted_parameters(source)
        centres = np.array([column.centre for column in columns])
        scales = np.array([column.scale for column in columns])
    else:
        for name, value in (("segment", segment), ("sensitivity", sensitivity)):
            if value is not None:
                raise ValueError(f"{name} cannot be given with a source, got {value!r}")
        if source.segment.event not in ((), (count,)) or (not source.segment.event and count > 1):
            raise ValueError(
                f"source must be for {count} columns, such as with a switchpoint.Independent "
                f"segment, got {source.segment!r}"
            )
        centres, scales = np.zeros(count), np.ones(count)
        parameters = None
    length = len(series.values)
    standard = _filled_up((series.values - centres) / scales, source)
    data = standard if source.segment.event else standard[:, 0]
    if fit:
        from switchpoint.exact.fitting import fit as fit_source

        source = fit_source(source, data, parameters).source
    posterior = bayes_optimal(source).posterior(data)
    intervals, no_switch = posterior.intervals_and_no_switch(coverage, before=length)
    logs_of_scale = np.log(scales) * (~np.isnan(series.values)).sum(0)
    return Segmentation(
        changepoints=np.array([each.position for each in intervals], int),
        probability=np.array([each.probability for each in intervals], float),
        intervals=np.array([(each.begin, each.end) for each in intervals], int).reshape(-1, 2),
        interval_probability=np.array([each.interval_probability for each in intervals], float),
        switch_probability=np.asarray(posterior.switch_smoothed, float)[:length],
        no_switch_probability=no_switch,
        log_evidence=float(posterior.log_marginal) - float(logs_of_scale.sum()),
        coverage=coverage,
        source=source,
        series=series,
    )


def _filled_up(
    values: Float[np.ndarray, "time columns"], source: Source
) -> Float[np.ndarray, "more columns"]:
    """Values with missing ones at the end, up to a round length, since programs depend on it.

    Missing observations have no influence on what is inferred about those before them. The most
    probable partition includes the times of the missing ones; where the hazard is constant, it is
    the same before them.
    """
    length = len(values)
    if type(source.prior) is not Geometric or source.segment.finite:
        return values
    # The time grows with the square: beyond that it would be more than one more compilation.
    step = 1024 if length <= 8192 else 2048
    room = 256 if length <= 256 else -(-length // step) * step
    return np.pad(values, ((0, room - length), (0, 0)), constant_values=np.nan)


def _kinds(segment: str | Sequence[str] | None, count: int) -> list[str]:
    """The kind of segments of each column."""
    kinds = [segment or SEGMENTS[0]] if segment is None or isinstance(segment, str) else segment
    if len(kinds) not in (1, count):
        raise ValueError(f"segment must be one, or one for each of {count} columns, got {segment}")
    return list(kinds) * (count if len(kinds) == 1 else 1)
