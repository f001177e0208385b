"""Probabilities as log-odds, accurate near both 0 and 1 even in single precision.

In float32 a hazard of 1 - 1e-9 rounds to 1, which loses its complement, the survival probability.
Its log-odds of 20.7 keep both.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from switchpoint import _checks
from switchpoint._parameters import Parameter

_NEIGHBOURS = 8


def log_odds_of(name: str, value: ArrayLike, *, below_one: bool = False) -> Parameter:
    """ln p / (1 - p) of a probability, checked unless traced."""
    if isinstance(value, jax.core.Tracer):
        return jnp.log(value) - jnp.log1p(-value)
    known = _checks.probability(name, value, below_one=below_one)
    return math.inf if known == 1 else math.log(known) - math.log1p(-known)


def probability_of(log_odds: Parameter) -> Parameter:
    """The probability with these log-odds: the exact number they were made from, unless traced."""
    if not isinstance(log_odds, float):
        return jax.nn.sigmoid(log_odds)
    exact = 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else math.exp(log_odds)
    for digits in range(1, 18):  # the shortest decimal that has these log-odds
        short = float(f"{exact:.{digits}g}")
        if 0 < short <= 1 and log_odds_of("probability", short) == log_odds:
            return short
    below = above = exact  # which is rounded itself
    for _ in range(_NEIGHBOURS):
        below, above = math.nextafter(below, 0.0), math.nextafter(above, 1.0)
        for near in (below, above):
            if 0 < near <= 1 and log_odds_of("probability", near) == log_odds:
                return near
    return exact


def shown_probability(log_odds: Any) -> Any:
    """The probability for `repr`; the leaf itself if it is no number, as in an abstract prior."""
    return probability_of(log_odds) if isinstance(log_odds, float) else log_odds


def log_one_minus_exp(exponent: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln(1 - e^x) for x <= 0, accurate near 0 and away from it."""
    near = exponent > -math.log(2)
    # The branch not taken must not have an infinite derivative.
    small = jnp.where(near, exponent, -1.0)
    large = jnp.where(near, -1.0, exponent)
    return jnp.where(near, jnp.log(-jnp.expm1(small)), jnp.log1p(-jnp.exp(large)))
