"""The regression that describes the values of one segment, given where it begins and ends."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

from switchpoint.segments import MultivariateNormal, NormalGamma, Regression, Segment, Trend


class Fit(NamedTuple):
    """The posterior mean of a regression, and how well it predicts each value.

    Nothing is expected of covariates: NaN.
    """

    expected: Float[np.ndarray, "time columns"]
    residuals: Float[np.ndarray, "time columns"]
    """The values minus what is expected; NaN where they are missing."""
    log_density: Float[np.ndarray, " time"]
    """ln p(x_t | all other values that are inside); NaN where x_t is missing."""


def is_real(segment: Segment) -> bool:
    """Whether a family is a regression, with normal noise of unknown size."""
    return isinstance(segment, NormalGamma | Trend | Regression | MultivariateNormal)


def fit_segment(
    segment: Segment,
    values: Float[np.ndarray, "time columns"],
    times: Float[np.ndarray, " time"],
    inside: Bool[np.ndarray, " time"],
) -> Fit:
    """Fit a family with normal noise, in closed form, to those values of a segment that are inside.

    With features X, coefficients of prior precision P and noise of Gamma(a, b), the posterior mean
    is (X'X + P)^-1 X'y. Leaving one value out changes it by a term of rank one, so that all
    predictions from the others cost O(time features^2). Lags are those of values inside, and stay.
    """
    family: Any = segment
    given = values.shape[1] - getattr(segment, "covariates", 0)
    values, covariates = values[:, :given], values[:, given:]
    features, precision, mean = design(family, values, times - times[0], inside, covariates)
    columns = values.shape[1]
    near = np.where(inside[:, None], values - mean, 0.0)
    rows = np.where(inside[:, None], features, 0.0)
    root = np.linalg.cholesky(rows.T @ rows + np.diag(precision))
    coefficients = np.linalg.solve(root.T, np.linalg.solve(root, rows.T @ near))
    expected = mean + features @ coefficients
    residuals = values - expected
    leverage = (np.linalg.solve(root, features.T) ** 2).sum(0)
    seen = np.where(inside[:, None], residuals, 0.0)
    scatter = 0.5 * (seen.T @ seen + (coefficients.T * precision) @ coefficients)
    scatter += np.diag(np.broadcast_to(np.asarray(family.rate, float), columns))
    half = float(family.shape) + 0.5 * inside.sum() - 0.5 * inside
    inverse = np.linalg.inv(scatter)
    square = np.einsum("ti,ij,tj->t", residuals, inverse, residuals)
    share = np.where(inside, 1 - leverage, 1.0)  # of a residual that leaving its value out adds to
    without = np.where(inside, 1 - 0.5 * square / share, 1.0)  # what is left of the scatter
    without = np.maximum(without, 1e-12)
    spread = np.where(inside, 1 / share, 1 + leverage)
    scaled = square / share**2 / without / (2 * spread)
    constant = gammaln(half + columns / 2) - gammaln(half) - columns / 2 * math.log(2 * math.pi)
    volume = np.linalg.slogdet(scatter)[1] + np.log(without) + columns * np.log(spread)
    logs = constant - 0.5 * volume - (half + columns / 2) * np.log1p(scaled)
    return Fit(np.append(expected, np.nan * covariates, axis=1), residuals, logs)


def design(
    segment: Any,
    values: Float[np.ndarray, "time columns"],
    times: Float[np.ndarray, " time"],
    inside: Bool[np.ndarray, " time"],
    covariates: Float[np.ndarray, "time covariates"],
) -> tuple[Float[np.ndarray, "time features"], Float[np.ndarray, " features"], Any]:
    """The features of a family, the precision of their coefficients, and the expected level."""
    one = np.ones((len(times), 1))
    if isinstance(segment, NormalGamma | MultivariateNormal):
        return one, np.array([float(segment.strength)]), np.asarray(segment.mean, float)
    level = float(segment.level)
    if isinstance(segment, Trend):
        scales = [segment.level_scale, segment.slope_scale]
        return np.column_stack([one, times]), np.array(scales, float) ** -2, level
    at, before = np.flatnonzero(inside), np.cumsum(inside) - inside
    seen = np.concatenate([np.full(segment.lags, level), values[at, 0]]) - level
    lags = [seen[before + i] for i in range(segment.lags)]
    scales = [segment.level_scale, *segment.scales()]
    features = np.column_stack([one, segment.features(times, lags, [*covariates.T])])
    return features, np.array([float(each) for each in scales]) ** -2, level
