"""Functions of large counts that keep their digits in single precision.

A difference of log-gammas of 10^5 has an error of 10^-2 in float32; the series here have 10^-7.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from switchpoint._namespace import gammaln, namespace

LOG_NEVER = -1e4
"""The logarithm of a probability of 0, whose exponential is 0 in every precision."""

_SERIES_FROM = 1024.0  # where three terms of a series have all digits


def log_student_t(half: Any, precision: Any, excess: Any) -> Any:
    """ln of Student's t density with 2 `half` degrees of freedom.

    With s^2 = 1 / (half precision), its squared scale, and excess = (gap / s)^2 / (2 half):

        ln Gamma(half + 1/2) / Gamma(half) + (1/2) ln(precision / (2 pi))
            - (half + 1/2) ln(1 + excess)
    """
    if namespace(half, precision, excess) is np:
        ratio = gamma_half_step(half)
        scale = 0.5 * np.log(precision * (0.5 / math.pi))
        return ratio + scale - (half + 0.5) * np.log1p(excess)
    half, precision, excess = (jnp.asarray(each, float) for each in (half, precision, excess))
    factor, rest = half_step(half)
    tail = (half + 0.5) * log1p(excess)
    return 0.5 * log(factor * precision * (0.5 / math.pi)) - tail + rest


def half_step(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(f, r) with ln Gamma(z + 1/2) - ln Gamma(z) = (ln f) / 2 + r, for z > 0.

    An asymptotic series, after the recurrence Gamma(z + 1) = z Gamma(z) has made z large enough.
    """
    shift = 8 if z.dtype == jnp.float64 else 2
    above, below = z, z + 0.5
    for i in range(1, shift):
        above, below = above * (z + i), below * (z + (i + 0.5))
    large = z + shift
    both = 1 / (below * large)  # one division for two
    ratio, inverse = above * large * both, below * both
    square = inverse * inverse
    series = -1 / 8 + square * (
        1 / 192 - square * (1 / 640 - square * (17 / 14336 - square * 31 / 18432))
    )
    return large * ratio * ratio, inverse * series


def gamma_half_step(z: Any) -> Any:
    """ln Gamma(z + 1/2) - ln Gamma(z) in double precision, for z > 0."""
    z = np.asarray(z, float)
    ratio = gammaln(z + 0.5) - gammaln(z)
    if z.max(initial=0.0) < _SERIES_FROM:
        return ratio
    inverse = 1 / np.maximum(z, _SERIES_FROM)
    square = inverse * inverse
    series = inverse * (square * (1 / 192 - square / 640) - 1 / 8)
    return np.where(z < _SERIES_FROM, ratio, series - 0.5 * np.log(inverse))


def gamma_ratio(z: Any, step: Any) -> tuple[Any, Any]:
    """(f, r) with ln Gamma(z + step) - ln Gamma(z) - step ln z = r - ln f, for z > 0, step >= 0.

    Stirling's series of both, after the recurrence has made z large enough.
    """
    # What depends on z alone, divisions and `jnp.log1p`, is not computed anew for every step.
    shift = 3 if z.dtype == jnp.float32 else 8
    large, factor = z + shift, 1 + step * (1 / z)
    for i in range(1, shift):
        factor = factor * (1 + step * (1 / (z + i)))
    smooth = (large + (step - 0.5)) * log1p(step * (1 / large)) - step
    series = _stirling_series(large + step) - _stirling_series(large)
    return factor, smooth + series + step * namespace(z).log1p(shift / z)


def log(x: Any) -> Any:
    """ln x for x > 0, in single precision at less than the cost of `jnp.log` on a CPU."""
    return np.log(x) if namespace(x) is np else _log(x)


def log1p(x: Any) -> Any:
    """ln(1 + x) for x >= 0, in single precision at less than the cost of `jnp.log1p` on a CPU."""
    return np.log1p(x) if namespace(x) is np else _log1p(x)


def log_probs(probs: Any) -> Any:
    """The logarithms of probabilities, with a finite one of 0."""
    xp = namespace(probs)
    return xp.where(probs > 0, xp.log(xp.where(probs > 0, probs, 1.0)), LOG_NEVER)


def log_sum(logs: Any, axis: int) -> Any:
    """ln sum exp along an axis, whose entries are finite."""
    xp = namespace(logs)
    most = logs.max(axis, keepdims=True)
    return xp.squeeze(most, axis) + xp.log(xp.exp(logs - most).sum(axis))


@jax.custom_jvp
def _log(x: Float[Array, "..."]) -> Float[Array, "..."]:
    if x.dtype == jnp.float64:
        return jnp.log(x)
    x = jnp.clip(x, *_RANGE)
    exponent, scale = _exponent(x)
    return _log_near_1(x * scale - 1, exponent)


@jax.custom_jvp
def _log1p(x: Float[Array, "..."]) -> Float[Array, "..."]:
    # 1 + x is rounded to find its exponent only, so that no digits of a small x are lost.
    if x.dtype == jnp.float64:
        return jnp.log1p(x)
    x = jnp.minimum(x, _RANGE[1])
    exponent, scale = _exponent(1 + x)
    return _log_near_1(x * scale + (scale - 1), exponent)


_log.defjvps(lambda slope, _, x: slope / x)
_log1p.defjvps(lambda slope, _, x: slope / (1 + x))

_RANGE = (1.2e-38, 1e38)  # where a number and its inverse are normal in single precision


def _exponent(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(e, 2^-e) with x 2^-e between 2/3 and 4/3."""
    bits = lax.bitcast_convert_type(x, jnp.int32)
    power = (bits - 0x3F2AAAAB) & -0x800000
    scale = lax.bitcast_convert_type(0x3F800000 - power, jnp.float32)
    return power.astype(jnp.float32) * 2.0**-23, scale


def _log_near_1(x: Float[Array, "..."], exponent: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln(1 + x) + exponent ln 2 for x from -1/3 to 1/3, by a minimax polynomial (Juffa, 2016)."""
    square = x * x
    odd = (0.140889585 * square + 0.139809534) * square + 0.200121149
    even = ((-0.130187988 * square - 0.121489584) * square - 0.166845024) * square - 0.249996364
    rest = ((odd * x + even) * x + 0.333331943) * x - 0.5
    return exponent * math.log(2) + (rest * square + x)


def stirling_error(z: Any) -> Any:
    """ln Gamma(z) minus Stirling's (z - 1/2) ln z - z + ln(2 pi) / 2, for z > 0."""
    xp = namespace(z)
    # Not xp.minimum and xp.maximum, which halve the derivative at 8: a whole number is common.
    small = xp.where(z < 8, z, 8.0)
    series = _stirling_series(xp.where(z < 8, 8.0, z))
    direct = gammaln(small) - (small - 0.5) * xp.log(small) + small - 0.5 * math.log(2 * math.pi)
    return xp.where(z < 8, direct, series)


def _stirling_series(z: Any) -> Any:
    """`stirling_error` of a large z."""
    inverse = 1 / z
    square = inverse * inverse
    return inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
