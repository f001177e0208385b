"""Descriptions of the observations of one segment: level, slope and noise in the data's units.

These describe the data of a segment alone. The prior of the default source decides where a segment
begins, but it does not draw its level towards those of others.
"""

import math

import numpy as np
from jaxtyping import Float

from switchpoint.segments import Regression, Segment, Trend


def describe(
    segment: Segment, values: Float[np.ndarray, " time"], times: Float[np.ndarray, " time"]
) -> dict[str, float]:
    """The description of one segment of one column; NaN where there are too few observations.

    `level` is the mean level of the segment. For trends `slope` is the slope per unit of time of
    the line of least squares, and `noise` the standard deviation from it; for other families
    `noise` is the standard deviation. Symbols have their shares instead: `p0`, `p1` and so on.
    """
    observed = ~np.isnan(values)
    at, seen = times[observed], values[observed]
    if segment.finite:
        return {f"p{k}": _mean(seen == k) for k in range(segment.alphabet)}
    # Relative to the first value, so that those of a constant are exactly 0.
    base = float(seen[0]) if len(seen) else math.nan
    above = _mean(seen - base)
    level, deviations = base + above, seen - base - above
    if not (isinstance(segment, Trend) or (isinstance(segment, Regression) and segment.slope)):
        return {"level": level, "noise": _noise(deviations, 1)}
    centred = at - _mean(at)
    spread = float(centred @ centred)
    slope = float(centred @ deviations) / spread if spread > 0 else math.nan
    middle = (times[0] + times[-1]) / 2
    return {
        "level": level + slope * (middle - _mean(at)) if spread > 0 else level,
        "slope": slope,
        "noise": _noise(deviations - slope * centred, 2),
    }


def fitted(
    description: dict[str, float], times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    """The level at each time of a segment that is described in this way."""
    slope = description.get("slope", 0.0)
    slope = 0.0 if math.isnan(slope) else slope
    return description.get("level", math.nan) + slope * (times - (times[0] + times[-1]) / 2)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _noise(deviations: Float[np.ndarray, " seen"], parameters: int) -> float:
    freedom = len(deviations) - parameters
    return math.hypot(*deviations) / math.sqrt(freedom) if freedom > 0 else math.nan
