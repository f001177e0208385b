"""Whether a series contradicts the independent noise around a line that the default source assumes.

Both checks look at the differences of neighbouring values, which hardly depend on levels, trends
and changes. With autocorrelations r_k of the differences, independent noise has r_1 = -1/2, and an
AR(1) process with coefficient phi has r_1 = -(1 - phi) / 2 (Box and Jenkins, 1970). A season of P
observations has r_P near 1.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_LEAST = 30  # differences
_STANDARD_ERRORS = 3.5
_AUTOCORRELATED, _SEASONAL = 0.25, 0.4
_MOST_LAGS = 10_000
_ROUNDING = 1e-14  # the variation of a straight line, relative to the largest value
_OUTLIER = 3.0  # in robust standard deviations


class Dependence(NamedTuple):
    """How the noise of a series depends on its past; None where nothing is noticeable."""

    autocorrelation: float | None
    """The correlation of the noise of neighbouring observations."""
    season: int | None
    """The period of a season, in observations."""


def noise_dependence(values: Float[np.ndarray, " time"]) -> Dependence:
    """The autocorrelation of the noise of a series, or its season; NaN is missing.

    O(n log n) time. Differences beyond 3 robust standard deviations, such as those of changes
    and outliers, are clipped.
    """
    largest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0  # sums must not overflow
    rows, scales = clipped_differences(values[:, None] / largest)
    clipped = rows[:, 0]
    seen = clipped[~np.isnan(clipped)]
    if len(seen) < _LEAST or scales[0] < _ROUNDING:
        return Dependence(None, None)
    noise = math.sqrt(0.5 / len(seen))  # of r_1 for independent noise, by Bartlett's formula
    most = min(len(values) // 3, _MOST_LAGS)
    correlations = _autocorrelations(np.nan_to_num(clipped), ~np.isnan(clipped), most)
    below = np.flatnonzero(correlations <= 0)
    if len(below):
        later = np.where(np.arange(len(correlations)) < below[0], 0.0, correlations)
        least = max(_SEASONAL, _STANDARD_ERRORS * math.sqrt(1.5 / len(seen)))
        if later.max() > least:  # the shortest of the periods that are about as strong
            padded = np.concatenate([[0.0], later, [0.0]])
            peaks = (later >= padded[:-2]) & (later >= padded[2:]) & (later > 0.8 * later.max())
            return Dependence(None, int(np.flatnonzero(peaks)[0]) + 1)
    phi = 1 + 2 * float(correlations[0])
    certain = phi > max(_AUTOCORRELATED, 2 * _STANDARD_ERRORS * noise)
    return Dependence(min(phi, 1.0) if certain else None, None)


def clipped_differences(
    values: Float[np.ndarray, "time columns"],
) -> tuple[Float[np.ndarray, "rows columns"], Float[np.ndarray, " columns"]]:
    """Differences of neighbouring rows over their robust scales, and these.

    They hardly depend on levels and changes. Rows beyond 3 scales are shortened to that.
    """
    gaps = np.diff(values, axis=0)
    seen = ~np.isnan(gaps).any(1)
    if not seen.any():
        return gaps, np.ones(values.shape[1])
    gaps = gaps - np.median(gaps[seen], axis=0)
    scales = 1.4826 * np.median(np.abs(gaps[seen]), axis=0)
    scales = np.where(scales > 0, scales, gaps[seen].std(0))
    gaps = gaps / np.where(scales > 0, scales, 1.0)
    longest = np.abs(gaps).max(1, keepdims=True)
    return gaps / np.maximum(longest / _OUTLIER, 1.0), scales


class ResidualChecks(NamedTuple):
    """What is left of the values of a column beside the fits of their segments."""

    autocorrelation: float
    """The correlation of neighbouring residuals; near 0 where the noise is independent."""
    season: int | None
    """The lag of their largest other correlation, if that is above 0.4."""
    excess_kurtosis: float
    """Of residuals in units of their segment's noise: 0 for a Gaussian, larger for heavy tails."""


def check_residuals(residuals: Float[np.ndarray, " time"]) -> ResidualChecks | None:
    """Checks of residuals, which are NaN where missing; None of fewer than 30."""
    seen = ~np.isnan(residuals)
    square = float(np.nansum(residuals**2)) / max(int(seen.sum()), 1)
    if seen.sum() < _LEAST or square == 0:
        return None
    most = min(len(residuals) // 3, _MOST_LAGS)
    correlations = _autocorrelations(np.where(seen, residuals, 0.0), seen, most)
    lag = 1 + int(correlations[1:].argmax()) if len(correlations) > 1 else 0
    kurtosis = float(np.nanmean(residuals**4)) / square**2 - 3
    season = lag + 1 if correlations[lag] > _SEASONAL else None
    return ResidualChecks(float(correlations[0]), season, kurtosis)


def _autocorrelations(
    values: Float[np.ndarray, " time"], seen: np.ndarray, most: int
) -> Float[np.ndarray, " lags"]:
    """The autocorrelations at lags 1..most, each over the pairs that are there."""
    length = 2 ** math.ceil(math.log2(2 * len(values)))
    products, pairs = (
        np.fft.irfft(np.abs(np.fft.rfft(each, length)) ** 2)[: most + 1]
        for each in (values, seen.astype(float))
    )
    mean = products / np.maximum(pairs, 1.0)
    return np.where(pairs[1:] >= _LEAST / 2, mean[1:] / mean[0], 0.0)
