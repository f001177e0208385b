"""Functions of large counts that keep their digits in single precision.

A difference of log-gammas of 10^5 has an error of 10^-2 in float32; the series here have 10^-7.
"""

import math

import jax
import jax.numpy as jnp
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


def log1p(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln(1 + x) for x >= 0, in single precision at less than the cost of `jnp.log1p` on a CPU.

    A small x is cut after 20 binary places, so that 1 is added without loss, and the rest is added
    to the logarithm by its derivative. (XLA would cancel the sum that recovers a rounding error.)
    """
    if x.dtype == jnp.float64:
        return jnp.log1p(x)
    near = x < 0.25
    cut = jnp.where(near, jnp.round(x * 2.0**20) * 2.0**-20, x)
    return jnp.log(1 + cut) + (x - cut) * (1 - jnp.where(near, cut, 0.0))


def stirling_error(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln Gamma(z) minus Stirling's (z - 1/2) ln z - z + ln(2 pi) / 2, for z > 0."""
    large = jnp.maximum(z, 8.0)
    inverse = 1 / large
    square = inverse * inverse
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    small = jnp.minimum(z, 8.0)
    direct = (
        jax.scipy.special.gammaln(small)
        - (small - 0.5) * jnp.log(small)
        + small
        - 0.5 * math.log(2 * math.pi)
    )
    return jnp.where(z < 8, direct, series)
