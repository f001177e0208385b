"""Causal attention whose memory grows with the length, not with its square."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int


def attend(
    query: Float[Array, "batch queries heads long"],
    key: Float[Array, "batch keys heads long"],
    value: Float[Array, "batch keys heads size"],
    *,
    first: Int[ArrayLike, ""] = 0,
    context: int | None = None,
    slopes: Float[Array, " heads"] | None = None,
) -> Float[Array, "batch queries heads size"]:
    """The mean of the values that each query sees, weighted by the softmax of its scores.

    The queries belong to the last keys. The keys before those are of earlier tokens; the ones
    before the index `first` are empty. A query sees its own key and all before it, or with a
    `context` that many keys in all. A score is a dot product over sqrt(size), however long
    queries and keys are, less the head's slope times the distance where `slopes` are given.

    All attention passes through here. Scores are made for some sequences at a time, and for some
    queries where one sequence has too many; for the gradient they are made again, not kept.
    """
    batch, queries, heads, _ = query.shape
    one = partial(_attend_one, first=first, context=context, slopes=slopes)
    sequences = _most_scores() // (heads * queries * key.shape[1])
    if sequences >= batch:
        return jax.vmap(one)(query, key, value)
    return lax.map(lambda row: one(*row), (query, key, value), batch_size=max(1, sequences))


def _most_scores() -> int:
    """How many scores are made at a time: they shall stay in a CPU's caches, and fill a GPU."""
    return 2**21 if jax.default_backend() == "cpu" else 2**28


def _attend_one(
    query: Float[Array, "queries heads long"],
    key: Float[Array, "keys heads long"],
    value: Float[Array, "keys heads size"],
    *,
    first: Int[ArrayLike, ""],
    context: int | None,
    slopes: Float[Array, " heads"] | None,
) -> Float[Array, "queries heads size"]:
    """`attend` for one sequence, some queries at a time."""
    queries, heads, _ = query.shape
    places = jnp.arange(len(key) - queries, len(key), dtype=jnp.int32)
    # Layers and blocks of queries are loops, which need no barrier against reuse of the scores.
    some = jax.checkpoint(partial(_attend_some, context=context), prevent_cse=False)
    blocks = -(-queries // max(1, _most_scores() // (heads * len(key))))
    if blocks == 1:
        return some(query, places, key, value, first, slopes)
    size = -(-queries // blocks)
    spare = blocks * size - queries
    query = jnp.pad(query, ((0, spare), (0, 0), (0, 0))).reshape(blocks, size, heads, -1)
    places = jnp.pad(places, (0, spare), mode="edge").reshape(blocks, size)
    means = lax.map(lambda block: some(*block, key, value, first, slopes), (query, places))
    return means.reshape(blocks * size, heads, -1)[:queries]


def _attend_some(
    query: Float[Array, "queries heads long"],
    places: Int[Array, " queries"],
    key: Float[Array, "keys heads long"],
    value: Float[Array, "keys heads size"],
    first: Int[ArrayLike, ""],
    slopes: Float[Array, " heads"] | None,
    context: int | None,
) -> Float[Array, "queries heads size"]:
    """`attend` for the queries at these places among the keys of one sequence."""
    # Else JAX sees that no layer changes what is seen, and keeps all of it for the gradient.
    query, places = lax.optimization_barrier((query, places))
    index = jnp.arange(len(key), dtype=jnp.int32)
    distance = places[:, None] - index
    seen = (distance >= 0) & (index >= first)
    if context is not None:
        seen &= distance < context
    query = query * value.shape[-1] ** -0.5
    # Heads first: XLA's products on a CPU are several times as quick as with heads inside.
    scores = jnp.swapaxes(query, 0, 1) @ jnp.transpose(key, (1, 2, 0))
    if slopes is not None:
        scores -= slopes[:, None, None] * distance
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
    return jnp.swapaxes(weights @ jnp.swapaxes(value, 0, 1), 0, 1)
