"""Regret in bits, and what is made of it."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from switchpoint._labels import keeps_labels, unlabelled
from switchpoint.sources import Draw

BITS_PER_NAT = float(1 / np.log(2))
"""What turns natural logarithms into bits."""


def regret(draw: Draw, log_probs: Float[Array, "..."]) -> Float[Array, "*batch time"]:
    """The expected instantaneous regret in bits: KL(true || predicted) of each symbol.

    The expectation is over x_t under its true distribution, given the past that was drawn. Where
    there is no alphabet, `log_probs` are the log densities of the values, and the regret is the
    realised one: the true log density minus the predicted one.
    """
    if draw.symbol_probs is None:
        _same_shape("log densities", log_probs, draw.switches.shape)
        return (draw.log_density - log_probs) * BITS_PER_NAT
    _same_shape("log_probs", log_probs, draw.probs.shape)
    # Where the truth gives a symbol no chance, its prediction costs nothing.
    expected = jnp.where(draw.probs > 0, draw.probs * log_probs, 0)
    return jnp.sum(xlogy(draw.probs, draw.probs) - expected, axis=-1) * BITS_PER_NAT


def cumulative_regret(draw: Draw, log_probs: Float[Array, "..."]) -> Float[Array, "*batch time"]:
    """The regret in bits summed up to and including each time."""
    return jnp.cumsum(regret(draw, log_probs), axis=-1)


def excess_regret(
    draw: Draw,
    log_probs: Float[Array, "..."],
    reference: Float[Array, "..."],
) -> Float[Array, "*batch time"]:
    """How many bits of regret each symbol costs beyond what `reference` pays for it.

    In one difference, so that it is accurate where both regrets are nearly the same.
    """
    if draw.symbol_probs is None:
        _same_shape("log densities", log_probs, draw.switches.shape)
        return (reference - log_probs) * BITS_PER_NAT
    _same_shape("log_probs", log_probs, draw.probs.shape)
    _same_shape("reference", reference, draw.probs.shape)
    expected = jnp.where(draw.probs > 0, draw.probs * (reference - log_probs), 0)
    return jnp.sum(expected, axis=-1) * BITS_PER_NAT


@keeps_labels("code_length")
def code_length(symbols: Any, log_probs: Any) -> Float[Array, "*batch time"]:
    """The realised code length in bits: -log2 P(x_t | x_<t) of the symbol that occurred.

    `symbols` are (..., time) and `log_probs` (..., time, alphabet).
    """
    symbols, log_probs = unlabelled(symbols), unlabelled(log_probs)
    _same_shape("log_probs", log_probs, (*symbols.shape, log_probs.shape[-1]))
    taken = jnp.take_along_axis(log_probs, symbols[..., None], axis=-1)[..., 0]
    return -taken * BITS_PER_NAT


def _same_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
