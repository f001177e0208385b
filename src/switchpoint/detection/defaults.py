"""The default source of `detect`: one setting for all series, on robustly standardised values."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint.priors import Geometric
from switchpoint.segments import (
    Exponential,
    Independent,
    MultivariateNormal,
    NegativeBinomial,
    NormalGamma,
    Poisson,
    Regression,
    Segment,
    Trend,
    estimate_dispersion,
)
from switchpoint.segments.values import checked_values
from switchpoint.sources import Source

SEGMENTS = ("trend", "level", "autocorrelated", "counts", "waiting-times")
"""The names of the default segment models."""

SENSITIVITY = 5.0
"""The default expected number of switches per 1,000 observations."""

# On standardised values. Levels differ by about twice the noise, and a trend moves as far within
# 20 observations. The prior of the noise is worth 6 observations with about 0.6 of the spread of
# the series: without such a floor a smooth curve would be split into many short lines. Accuracy on
# real series changes little from half to twice these values (docs/detect.md).
_LEVEL_SCALE, _SLOPE_SCALE, _SHAPE, _RATE = 2.0, 0.1, 3.0, 1.0

# Waves are as large as levels, and the coefficient of a lag is about the size of the noise.
_SEASON_SCALE, _LAG_SCALE = 2.0, 1.0

# What `fit` varies: a single series says too little about how much the noise of segments differs,
# which is what `shape` means.
_FITTED = ("level_scale", "slope_scale", "strength", "rate")

_TAIL = 0.1
_GAUSSIAN_RANGE = 2.5631031310892007  # between these quantiles, in standard deviations
_ROUNDING = 1e-12  # relative variation that is none


class Column(NamedTuple):
    """The model of a column in the default source: (values - centre) / scale under `segment`."""

    segment: Segment
    centre: float
    scale: float


def default_source(columns: Sequence[Column], sensitivity: float) -> Source:
    """Geometric lengths with common switches in all columns."""
    segments = [column.segment for column in columns]
    segment = segments[0] if len(segments) == 1 else Independent(*segments)
    return Source(Geometric(sensitivity / 1000), segment)


def fitted_parameters(source: Source) -> list[str]:
    """The hyperparameters of a default source that can be chosen by the evidence of one series."""
    columns = getattr(source.segment, "columns", (source.segment,))
    return ["hazard", *(name for name in _FITTED if any(hasattr(each, name) for each in columns))]


def default_column(
    kind: str,
    values: Float[np.ndarray, " time"],
    season: Sequence[float] = (),
    name: str = "values",
) -> Column:
    """The default model of a column of this kind, which has at least one observation."""
    seen = values[~np.isnan(values)]
    if kind == "autocorrelated" or (season and kind in ("trend", "level")):
        for period in season:
            if 2 * period > len(values) + 1:  # two years have 730 days, and 2 * 365.25 are more
                raise ValueError(
                    f"season must be at most half of the {len(values)} observations, got {period:g}"
                )
        segment = Regression(
            slope=kind != "level",
            season=season,
            lags=int(kind == "autocorrelated"),
            level_scale=_LEVEL_SCALE,
            slope_scale=_SLOPE_SCALE,
            season_scale=_SEASON_SCALE,
            lag_scale=_LAG_SCALE,
            shape=_SHAPE,
            rate=_RATE,
        )
        return Column(segment, *centre_and_scale(seen))
    if season:
        raise ValueError(f"season is for segments with a trend or a level, got segment {kind!r}")
    if kind == "trend":
        return Column(Trend(_LEVEL_SCALE, _SLOPE_SCALE, _SHAPE, _RATE), *centre_and_scale(seen))
    if kind == "level":
        level = NormalGamma(0.0, _LEVEL_SCALE**-2, _SHAPE, _RATE)
        return Column(level, *centre_and_scale(seen))
    _checks.one_of("segment", kind, SEGMENTS)
    checked_values(Poisson() if kind == "counts" else Exponential(), values, name)
    # The prior of the rate is exponential, the broadest of its kind, with the mean of the series.
    mean = max(seen.mean(), 1 / len(seen))
    rate = float(f"{1 / mean if kind == 'counts' else mean:.3g}")
    return Column(Poisson(1.0, rate) if kind == "counts" else Exponential(1.0, rate), 0.0, 1.0)


def overdispersed_counts(values: Float[np.ndarray, " time"]) -> NegativeBinomial:
    """Counts with the dispersion of these, whose prior has their mean as the median of levels."""
    dispersion = float(f"{estimate_dispersion(values):.3g}")
    mean = max(float(np.nanmean(values)), 1 / len(values))
    alpha = math.log(2) / math.log1p(mean / dispersion)
    return NegativeBinomial(dispersion, float(f"{alpha:.3g}"), 1.0)


def correlated_segment(count: int) -> MultivariateNormal:
    """Levels of so many correlated columns; each alone is that of segment "level"."""
    return MultivariateNormal(count, 0.0, _LEVEL_SCALE**-2, _SHAPE, _RATE)


def centre_and_scale(seen: Float[np.ndarray, " seen"]) -> tuple[float, float]:
    """The median, and the range of the central 80% in units of a Gaussian's standard deviation.

    A few outliers move neither. The scale is the standard deviation where that range is a point,
    and 1 for a constant.
    """
    largest = float(np.abs(seen).max()) or 1.0
    shares = seen / largest  # whose squares do not overflow
    low, middle, high = np.quantile(shares, [_TAIL, 0.5, 1 - _TAIL])
    scales = ((high - low) / _GAUSSIAN_RANGE, shares.std())
    scale = next((largest * float(scale) for scale in scales if scale > _ROUNDING), 1.0)
    return largest * float(middle), scale or 1.0  # the smallest numbers have smaller scales: 0
