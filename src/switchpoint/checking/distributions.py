"""Distributions of one observation: their total mass, and draws that should follow them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint.segments.distributions import Discrete, Distribution, Product

_LEAST_P = 1e-6  # of a check that passes: seeds are fixed, and there are few checks
_REACH, _POINTS = 40.0, 400_001  # of a grid that is even in asinh of the distance from the centre
_MOST_COUNTS = 200_000
_MASS_ERROR = 2e-3  # a density that jumps, as at 0, costs half a step of the grid


def columns_of(distribution: Any) -> list[tuple[str, Any, Any]]:
    """Distributions of single numbers: a name for messages, which of x it is about, and itself."""
    if isinstance(distribution, Product):
        parts = enumerate(distribution.columns)
        return [(f"column {i} of ", (..., i), column) for i, column in parts]
    return [("", ..., distribution)]


def total_mass(distribution: Any) -> float:
    """The sum or the integral of the density of one number; what is far out, by its `cdf`."""
    if isinstance(distribution, Discrete):
        return float(distribution.probs.sum())
    centre, scale = (float(each) for each in distribution.location)
    if distribution.support.whole:
        counts = np.arange(min(_MOST_COUNTS, int(centre + 100 * scale) + 100), dtype=float)
        below = np.exp(np.asarray(jax.jit(jax.vmap(distribution.log_density))(counts), np.float64))
        return float(below.sum()) + 1 - float(distribution.cdf(counts[-1]))
    steps = np.linspace(-_REACH, _REACH, _POINTS)
    points = centre + scale * np.sinh(steps)
    logs = np.asarray(jax.jit(jax.vmap(distribution.log_density))(points), np.float64)
    with np.errstate(over="ignore"):
        heights = np.exp(logs + np.log(scale * np.cosh(steps)))
    return float(heights.sum() * (steps[1] - steps[0]))


def mass_finding(distribution: Any, where: str) -> tuple[bool, str]:
    """Whether each column of a distribution has total mass 1, and no negative probability."""
    if not isinstance(distribution, Distribution):
        return False, f"{where}: a {type(distribution).__name__} is not a Distribution"
    worst = 0.0
    for name, _, column in columns_of(distribution):
        mass = total_mass(column)
        if not abs(mass - 1) <= _MASS_ERROR:
            return False, f"{name}{where}: the total probability is {mass:.6g}, not 1"
        if isinstance(column, Discrete) and not bool((column.probs >= 0).all()):
            return False, f"{name}{where}: a probability is {float(column.probs.min()):.6g}"
        worst = max(worst, abs(mass - 1))
    return True, f"{where}: 1 (off by at most {worst:.1g})"


def probability_integral(
    distribution: Any, x: Shaped[Array, "*event"], coin: Float[Array, ""]
) -> Float[Array, " columns"]:
    """P(X <= x) of each column; for whole numbers a random point of the step at x.

    Uniform on (0, 1) if x was drawn from the distribution (Rosenblatt, 1952).
    """
    ranks = []
    for _, at, column in columns_of(distribution):
        own = jnp.asarray(x)[at]
        step = jnp.exp(column.log_density(own)) if column.support.whole else 0.0
        ranks.append(column.cdf(own) - coin * step)
    return jnp.stack(ranks)


def uniform_finding(ranks: Float[np.ndarray, "draws time columns"], what: str) -> tuple[bool, str]:
    """Whether the ranks at each time are uniform, by the bound of Dvoretzky, Kiefer and Wolfowitz.

    P(the largest difference of the distribution functions > d) <= 2 exp(-2 n d^2) (Massart, 1990).
    """
    draws, _, columns = ranks.shape
    order = np.sort(np.asarray(ranks, np.float64), axis=0)
    steps = np.arange(1, draws + 1)[:, None, None] / draws
    gaps = np.maximum(np.abs(order - steps), np.abs(order - steps + 1 / draws)).max(0)
    gaps = np.where(np.isnan(gaps), 1.0, gaps)
    time, column = np.unravel_index(np.argmax(gaps), gaps.shape)
    gap = float(gaps[time, column])
    bound = 2 * math.exp(-2 * draws * gap**2)
    if bound < _LEAST_P:
        which = f", column {column}" if columns > 1 else ""
        return False, (
            f"{what}: at time {time}{which} the ranks of {draws} draws are {gap:.3g} from uniform, "
            f"which has a probability below {bound:.1g}"
        )
    return True, f"{what}: ranks of {draws} draws within {gap:.2g} of uniform"
