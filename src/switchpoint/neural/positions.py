"""How a Transformer knows where a token is: sinusoids, ALiBi's slopes, relative positions."""

import math
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint.neural.dense import fan_in_normal

POSITIONS = ("sincos", "alibi", "relative")
"""The kinds of position a Transformer may be given."""


def frequencies(width: int) -> np.ndarray:
    """10000^(-2k / width) for k = 0, ..., width / 2 - 1."""
    return 10_000.0 ** (-2 * np.arange(width // 2) / width)


def sinusoids(positions: Int[Array, " time"], width: int) -> Float[Array, "time width"]:
    """sin(w p) for each of the frequencies w, then cos(w p) for the same.

    Exact to the last digits of the float type for any 32-bit position, known or not, negative
    or not. A product w p in float32 would be off by 2e-4 at p = 4096.
    """
    turns = frequencies(width) / (2 * math.pi)
    # Whole turns do not matter, and 32-bit products drop them: a turn is 2^32 steps. What the
    # rounding to steps leaves out is less than half a step per position.
    steps = np.round(turns * 2**32).astype(np.uint32)
    rest = jnp.asarray(turns - steps / 2**32, float)
    places = positions[:, None]
    phase = lax.bitcast_convert_type(places.astype(jnp.uint32) * steps, jnp.int32)
    angles = (phase.astype(rest.dtype) / 2.0**32 + places * rest) * (2 * math.pi)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def alibi_slopes(heads: int) -> Float[Array, " heads"]:
    """What each head takes from a score per step of distance: 2^(-8 h / heads), h = 1..heads."""
    return 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)


class RelativePositions(eqx.Module):
    """Transformer-XL's scores (q_i + u)·k_j + (q_i + v)·(W_R R_(i-j)), as plain dot products.

    R_d holds the sinusoids of the distance d. With a and b the weights that (q_i + v) W_R gives
    to their sines and cosines,

        a sin w(i-j) + b cos w(i-j) = (a sin wi + b cos wi) cos wj + (b sin wi - a cos wi) sin wj

    is a product of something at i and something at j: longer queries and keys hold them, and no
    table of all pairs is needed.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {"projection": 0}  # of narrow heads

    content_bias: Float[Array, "*layers heads size"]
    """u"""
    position_bias: Float[Array, "*layers heads size"]
    """v"""
    projection: Float[Array, "*layers heads waves size"]
    """W_R"""

    def __init__(self, heads: int, size: int, waves: int, key: PRNGKeyArray) -> None:
        self.content_bias = jnp.zeros((heads, size))
        self.position_bias = jnp.zeros((heads, size))
        weights = fan_in_normal(key, waves, heads * size).reshape(waves, heads, size)
        self.projection = jnp.moveaxis(weights, 0, 1)

    def lengthened(
        self,
        query: Float[Array, "batch queries heads size"],
        key: Float[Array, "batch keys heads size"],
        waves: Float[Array, "keys waves"],
    ) -> tuple[Float[Array, "batch queries heads long"], Float[Array, "batch keys heads long"]]:
        """Queries and keys whose dot products are the scores, not yet scaled.

        `waves` are the sinusoids of the keys' positions; the queries are at the last of them.
        """
        weights = jnp.einsum("bqhs,hws->bqhw", query + self.position_bias, self.projection)
        of_sin, of_cos = jnp.split(weights, 2, axis=-1)
        sin, cos = jnp.split(waves[:, None], 2, axis=-1)
        sin_here, cos_here = sin[-query.shape[1] :], cos[-query.shape[1] :]
        long_query = [
            query + self.content_bias,
            of_sin * sin_here + of_cos * cos_here,
            of_cos * sin_here - of_sin * cos_here,
        ]
        shape = (*key.shape[:-1], cos.shape[-1])
        long_key = [key, jnp.broadcast_to(cos, shape), jnp.broadcast_to(sin, shape)]
        return jnp.concatenate(long_query, axis=-1), jnp.concatenate(long_key, axis=-1)
