"""Causal attention in memory linear in the length, and the positions it may use."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from switchpoint._batching import map_chunks
from switchpoint.neural.dense import fan_in_normal

POSITIONS = ("sincos", "alibi", "relative", "rotary")
"""The position encodings of a Transformer."""

_GROUPS = 2
"""The number of loops over blocks of queries, each with its own keys.

More would skip more of the keys that follow the queries. Four are no faster than two on a CPU, and
take longer to compile.
"""


class RelativeScores(NamedTuple):
    """The part of a score that depends on the distance, a product of two factors."""

    query: Float[Array, "batch queries heads terms"]
    by_distance: Float[Array, "one_or_heads terms keys"]
    """The factor of `query` for a key at distance 0, 1, ...; heads may share it."""


def attend(
    query: Float[Array, "batch queries heads size"],
    key: Float[Array, "batch keys heads size"],
    value: Float[Array, "batch keys heads size"],
    *,
    first: Int[ArrayLike, ""] = 0,
    context: int | None = None,
    slopes: Float[Array, " heads"] | None = None,
    relative: RelativeScores | None = None,
    limits: tuple[int, int] | None = None,
) -> Float[Array, "batch queries heads size"]:
    """Causal softmax attention of the queries, which belong to the last keys.

    The keys before those are of earlier tokens; keys before the index `first` are empty. A query
    attends to its own key and all before it, or to `context` keys in all. A score is the product
    of query and key, plus the `relative` one, over sqrt(size), minus the head's slope times the
    distance if `slopes` are given.

    Scores are computed for a block of queries of some sequences at a time: at most `limits` queries
    and scores, by default those that suit a CPU's caches, or a GPU. Keys that come after all
    queries of a group of blocks are left out, as are those before the context of all. The backward
    pass recomputes scores instead of storing them.
    """
    _, queries, heads, size = query.shape
    keys = key.shape[1]
    before = keys - queries
    max_rows, max_scores = limits or _block_limits()
    blocks = -(-queries // max(1, min(max_rows, max_scores // (heads * keys))))
    rows = -(-queries // blocks)
    group = -(-blocks // _GROUPS)
    padded = keys + blocks * rows - queries  # with keys of the queries that fill the last block
    table = None
    if relative is not None:
        # By decreasing distance; after 0, space for the keys of a group that follow a query.
        table = jnp.flip(relative.by_distance, axis=-1)
        table = jnp.pad(table, ((0, 0), (0, 0), (padded - keys, group * rows)))

    # Layers and blocks of queries are loops, which need no barrier against reuse of the scores.
    @partial(jax.checkpoint, prevent_cse=False, static_argnums=0)
    def attend_block(
        start: int, position: Array, query: Array, rel_query: Array | None, key: Array, value: Array
    ) -> Array:
        """Queries of which the first is at `position`, on keys from `start`, with heads first."""
        # Without the barrier JAX would hoist the mask out of the loop over layers and store it.
        query, position = lax.optimization_barrier((query, position))
        seen = key.shape[-1]
        index = start + jnp.arange(seen, dtype=jnp.int32)
        distance = position + jnp.arange(rows, dtype=jnp.int32)[:, None] - index
        scores = query @ key
        if table is not None and rel_query is not None:
            columns = lax.dynamic_slice_in_dim(
                table, padded - rows - position + start, seen + rows, axis=-1
            )
            products = rel_query.reshape(heads, -1, rel_query.shape[-1]) @ columns
            scores += _skewed(products.reshape(*scores.shape[:-1], -1))
        if slopes is not None:
            scores -= slopes[:, None, None, None] * distance
        visible = (distance >= 0) & (index >= first)
        if context is not None:
            visible &= distance < context
        scores = jnp.where(visible, scores, -jnp.inf)
        weights = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
        return weights @ value / weights.sum(-1, keepdims=True)

    def attend_some(query: Array, rel_query: Array | None, key: Array, value: Array) -> Array:
        """Some sequences, one block of queries after another."""

        def in_blocks(x: Array) -> Array:
            x = jnp.pad(x * size**-0.5, ((0, 0), (0, padded - keys), (0, 0), (0, 0)))
            return jnp.transpose(x.reshape(-1, blocks, rows, *x.shape[2:]), (1, 3, 0, 2, 4))

        positions = before + rows * jnp.arange(blocks, dtype=jnp.int32)
        block_inputs = (positions, *jax.tree.map(in_blocks, (query, rel_query)))
        # Heads first: XLA's products on a CPU are several times as fast as with heads inside.
        key, value = jnp.transpose(key, (2, 0, 3, 1)), jnp.transpose(value, (2, 0, 1, 3))

        def attend_group(begin: int) -> Array:
            """The blocks of one group, on the keys that any of them attends to."""
            end = min(begin + group, blocks)
            stop = min(keys, before + end * rows)
            start = 0 if context is None else max(0, before + begin * rows + 1 - context)

            def attend_one(block: Any) -> Array:
                return attend_block(start, *block, key[..., start:stop], value[:, :, start:stop])

            return lax.map(attend_one, jax.tree.map(lambda x: x[begin:end], block_inputs))

        outputs = jnp.concatenate([attend_group(begin) for begin in range(0, blocks, group)])
        outputs = jnp.transpose(outputs, (2, 0, 3, 1, 4))
        return outputs.reshape(-1, blocks * rows, heads, size)[:, :queries]

    arrays = (query, None if relative is None else relative.query, key, value)
    return map_chunks(lambda some: attend_some(*some), arrays, max_scores // (heads * rows * keys))


def _skewed(by_distance: Float[Array, "*axes rows wide"]) -> Float[Array, "*axes rows keys"]:
    """Row i from column rows - 1 - i on: products by decreasing distance become those by key.

    Without its first rows - 1 numbers, the array has rows that are shorter by one.
    """
    *axes, rows, wide = by_distance.shape
    flat = by_distance.reshape(*axes, rows * wide)[..., rows - 1 : rows * wide - 1]
    return flat.reshape(*axes, rows, wide - 1)[..., : wide - rows]


def _block_limits() -> tuple[int, int]:
    """The numbers of queries and scores to process at a time, for caches of a CPU or for a GPU."""
    return (64, 2**19) if jax.default_backend() == "cpu" else (2**28, 2**28)


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
    column = positions[:, None]
    phase = lax.bitcast_convert_type(column.astype(jnp.uint32) * steps, jnp.int32)
    angles = (phase.astype(rest.dtype) / 2.0**32 + column * rest) * (2 * math.pi)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def rotated(
    x: Float[Array, "batch time heads size"], waves: Float[Array, "time size"]
) -> Float[Array, "batch time heads size"]:
    """Each pair of numbers (x_k, x_(k + size/2)) as a complex number, times exp(i w_k p).

    `waves` are the sinusoids of the positions p. The product of a query at p and a key at p' then
    depends on p - p' alone (Su et al., 2021: rotary positions).
    """
    sin, cos = jnp.split(waves[:, None], 2, axis=-1)
    real, imaginary = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)


def alibi_slopes(heads: int) -> Float[Array, " heads"]:
    """The penalty of each head per step of distance: 2^(-8 h / heads), h = 1..heads."""
    return 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)


class RelativePositions(eqx.Module):
    """Transformer-XL's scores (q_i + u)·k_j + (q_i + v)·(W_R R_(i-j)).

    R_d holds the sinusoids of the distance d.
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

    def scores(
        self, query: Float[Array, "batch queries heads size"], waves: Float[Array, "keys waves"]
    ) -> RelativeScores:
        """The second product; `waves` are the sinusoids of the distances 0, 1, ..."""
        biased = query + self.position_bias
        if query.shape[0] * query.shape[1] < query.shape[-1]:
            # Few queries: fewer operations than with a product of W_R and every R_d.
            biased = jnp.einsum("bqhs,hws->bqhw", biased, self.projection)
            return RelativeScores(biased, waves.T[None])
        return RelativeScores(biased, jnp.einsum("hws,dw->hsd", self.projection, waves))
