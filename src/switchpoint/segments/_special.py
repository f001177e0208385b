"""Functions of large counts that keep their digits in single precision.

A difference of log-gammas of 10^5 has an error of 10^-2 in float32; the series here have 10^-7.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


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


def gamma_ratio(
    z: Float[Array, "..."], step: Float[Array, "..."]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(f, r) with ln Gamma(z + step) - ln Gamma(z) - step ln z = r - ln f, for z > 0, step >= 0.

    Stirling's series of both, after the recurrence has made z large enough.
    """
    # What depends on z alone, divisions and `jnp.log1p`, is not computed anew for every step.
    shift = 8 if z.dtype == jnp.float64 else 3
    large, factor = z + shift, 1 + step * (1 / z)
    for i in range(1, shift):
        factor = factor * (1 + step * (1 / (z + i)))
    smooth = (large + (step - 0.5)) * log1p(step * (1 / large)) - step
    series = _stirling_series(large + step) - _stirling_series(large)
    return factor, smooth + series + step * jnp.log1p(shift / z)


@jax.custom_jvp
def log(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln x for x > 0, in single precision at less than the cost of `jnp.log` on a CPU."""
    if x.dtype == jnp.float64:
        return jnp.log(x)
    x = jnp.clip(x, *_RANGE)
    exponent, scale = _exponent(x)
    return _log_near_1(x * scale - 1, exponent)


@jax.custom_jvp
def log1p(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln(1 + x) for x >= 0, in single precision at less than the cost of `jnp.log1p` on a CPU.

    1 + x is rounded to find its exponent only, so that no digits of a small x are lost.
    """
    if x.dtype == jnp.float64:
        return jnp.log1p(x)
    x = jnp.minimum(x, _RANGE[1])
    exponent, scale = _exponent(1 + x)
    return _log_near_1(x * scale + (scale - 1), exponent)


log.defjvps(lambda slope, _, x: slope / x)
log1p.defjvps(lambda slope, _, x: slope / (1 + x))

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


def stirling_error(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln Gamma(z) minus Stirling's (z - 1/2) ln z - z + ln(2 pi) / 2, for z > 0."""
    # Not jnp.minimum and jnp.maximum, which halve the derivative at 8: a whole number is common.
    small = jnp.where(z < 8, z, 8.0)
    series = _stirling_series(jnp.where(z < 8, 8.0, z))
    direct = (
        jax.scipy.special.gammaln(small)
        - (small - 0.5) * jnp.log(small)
        + small
        - 0.5 * math.log(2 * math.pi)
    )
    return jnp.where(z < 8, direct, series)


def _stirling_series(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """`stirling_error` of a large z."""
    inverse = 1 / z
    square = inverse * inverse
    return inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
