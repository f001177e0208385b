"""Causal attention in memory linear in the length, and the positions it may use."""

import math
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from switchpoint.neural.dense import fan_in_normal

POSITIONS = ("sincos", "alibi", "relative")
"""The position encodings of a Transformer."""


def attend(
    query: Float[Array, "batch queries heads long"],
    key: Float[Array, "batch keys heads long"],
    value: Float[Array, "batch keys heads size"],
    *,
    first: Int[ArrayLike, ""] = 0,
    context: int | None = None,
    slopes: Float[Array, " heads"] | None = None,
) -> Float[Array, "batch queries heads size"]:
    """Causal softmax attention of the queries, which belong to the last keys.

    The keys before those are of earlier tokens; keys before the index `first` are empty. A query
    attends to its own key and all before it, or to `context` keys in all. A score is a dot product
    over sqrt(size), however long queries and keys are, minus the head's slope times the distance
    if `slopes` are given.

    Scores are computed for some sequences at a time, and for some queries where one sequence has
    too many; the backward pass recomputes them instead of storing them.
    """
    batch, queries, heads, _ = query.shape
    keys = key.shape[1]
    size = value.shape[-1]

    # Layers and blocks of queries are loops, which need no barrier against reuse of the scores.
    @partial(jax.checkpoint, prevent_cse=False)
    def attend_block(query: Array, places: Array, key: Array, value: Array) -> Array:
        """Some queries of one sequence, at these places among its keys."""
        # Without the barrier JAX would hoist the mask out of the loop over layers and store it.
        query, places = lax.optimization_barrier((query, places))
        index = jnp.arange(keys, dtype=jnp.int32)
        distance = places[:, None] - index
        visible = (distance >= 0) & (index >= first)
        if context is not None:
            visible &= distance < context
        # Heads first: XLA's products on a CPU are several times as fast as with heads inside.
        scores = jnp.swapaxes(query * size**-0.5, 0, 1) @ jnp.transpose(key, (1, 2, 0))
        if slopes is not None:
            scores -= slopes[:, None, None] * distance
        weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf))
        return jnp.swapaxes(weights @ jnp.swapaxes(value, 0, 1), 0, 1)

    def attend_one(query: Array, key: Array, value: Array) -> Array:
        """One sequence, some queries at a time."""
        places = jnp.arange(keys - queries, keys, dtype=jnp.int32)
        blocks = -(-queries // max(1, _max_scores() // (heads * keys)))
        if blocks == 1:
            return attend_block(query, places, key, value)
        rows = -(-queries // blocks)
        spare = blocks * rows - queries
        query = jnp.pad(query, ((0, spare), (0, 0), (0, 0))).reshape(blocks, rows, heads, -1)
        places = jnp.pad(places, (0, spare), mode="edge").reshape(blocks, rows)
        outputs = lax.map(lambda block: attend_block(*block, key, value), (query, places))
        return outputs.reshape(blocks * rows, heads, -1)[:queries]

    sequences = _max_scores() // (heads * queries * keys)
    if sequences >= batch:
        return jax.vmap(attend_one)(query, key, value)
    return lax.map(lambda row: attend_one(*row), (query, key, value), batch_size=max(1, sequences))


def _max_scores() -> int:
    """How many scores to compute at a time: few enough for a CPU's caches, enough for a GPU."""
    return 2**21 if jax.default_backend() == "cpu" else 2**28


def frequencies(width: int) -> np.ndarray:
    """10000^(-2k / width) for k = 0, ..., width / 2 - 1."""
    return 10_000.0 ** (-2 * np.arange(width // 2) / width)


def sinusoids(positions: Int[Array, " time"], width: int) -> Float[Array, "time width"]:
    """sin(w p) for each frequency w, then cos(w p) for each.

    Accurate to the last digits of the float type for any 32-bit position, traced or not, of
    either sign. A product w p in float32 would be off by 2e-4 at p = 4096.
    """
    turns = frequencies(width) / (2 * math.pi)
    # Whole turns cancel, and 32-bit products drop them: a turn is 2^32 steps. Rounding to steps
    # leaves less than half a step per position, which `rest` restores.
    steps = np.round(turns * 2**32).astype(np.uint32)
    rest = jnp.asarray(turns - steps / 2**32, float)
    places = positions[:, None]
    phase = lax.bitcast_convert_type(places.astype(jnp.uint32) * steps, jnp.int32)
    angles = (phase.astype(rest.dtype) / 2.0**32 + places * rest) * (2 * math.pi)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def alibi_slopes(heads: int) -> Float[Array, " heads"]:
    """The penalty of each head per step of distance: 2^(-8 h / heads), h = 1..heads."""
    return 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)


class RelativePositions(eqx.Module):
    """Transformer-XL's scores (q_i + u)·k_j + (q_i + v)·(W_R R_(i-j)), as plain dot products.

    R_d holds the sinusoids of the distance d. With a and b the weights that (q_i + v) W_R gives
    to their sines and cosines,

        a sin w(i-j) + b cos w(i-j) = (a sin wi + b cos wi) cos wj + (b sin wi - a cos wi) sin wj

    is a product of a term at i and a term at j. Augmented queries and keys hold these terms, so no
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

    def augment_qk(
        self,
        query: Float[Array, "batch queries heads size"],
        key: Float[Array, "batch keys heads size"],
        waves: Float[Array, "keys waves"],
    ) -> tuple[Float[Array, "batch queries heads long"], Float[Array, "batch keys heads long"]]:
        """Queries and keys whose dot products are the scores, before scaling.

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
