"""The first kernels of a layer: from the tokens to queries, keys and values, and back."""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.kernels.arithmetic import dot, product
from switchpoint.neural.kernels.call import NARROW, call
from switchpoint.neural.kernels.rows import Layer, given, normalised, normalised_backward

ROWS, WARPS, STAGES = 64, 4, 2


class Projection(NamedTuple):
    """The weights, of all layers; layer norm's own are folded into them."""

    query: Float[Array, "layers width heads_pair"]
    query_bias: Float[Array, "layers heads_pair"]
    pair: Float[Array, "layers width heads_pair"]
    pair_bias: Float[Array, "layers heads_pair"]


def forward(
    layer: Layer,
    first: Float[Array, "rows width"],
    tokens: Float[Array, "layers rows width"],
    weights: Projection,
    queries: Float[Array, "layers rows heads_pair"],
    pairs: Float[Array, "layers rows heads_pair"],
    time: int,
) -> list[Array]:
    """Queries and pairs, one layer's set."""
    size = min(ROWS, time)
    return call(
        partial(_forward, size=size),
        "project",
        (len(first) // size,),
        (layer, first, tokens, *weights),
        (queries, pairs),
        warps=WARPS,
        stages=STAGES,
    )


def _forward(
    layer: Layer,
    first: Any,
    tokens: Any,
    query: Any,
    query_bias: Any,
    pair: Any,
    pair_bias: Any,
    queries: Any,
    pairs: Any,
    *,
    size: int,
) -> None:
    index, place = layer.number[0], layer.place[0]
    rows = pl.ds(pl.program_id(0) * size, size)
    normal = normalised(given(layer, first, tokens, rows))[0].astype(NARROW)
    made = dot(normal, query[index]) + query_bias[index, :][None, :]
    queries[place, rows, :] = made.astype(NARROW)
    made = dot(normal, pair[index]) + pair_bias[index, :][None, :]
    pairs[place, rows, :] = made.astype(NARROW)


def backward(
    layer: Layer,
    first: Float[Array, "rows width"],
    tokens: Float[Array, "layers rows width"],
    weights: Projection,
    d_tokens: Float[Array, "rows width"],
    d_query: Float[Array, "rows heads_pair"],
    d_pair: Float[Array, "rows heads_pair"],
    time: int,
) -> tuple[Float[Array, "rows width"], Projection]:
    """The derivatives of what the layer was given, and of the weights.

    `d_tokens` is what came past the attention.
    """
    rows, width = first.shape
    columns = d_query.shape[1]
    size = min(ROWS, time)
    grid = rows // size
    d_first, normal, d_query_bias, d_pair_bias = call(
        partial(_backward, size=size),
        "project_backward",
        (grid,),
        (layer, first, tokens, weights.query, weights.pair, d_tokens, d_query, d_pair),
        made=[
            ((rows, width), jnp.float32),
            ((rows, width), NARROW),
            ((grid, columns), jnp.float32),
            ((grid, columns), jnp.float32),
        ],
        warps=WARPS,
        stages=STAGES,
    )
    return d_first, Projection(
        product(normal, d_query),
        d_query_bias.sum(0),
        product(normal, d_pair),
        d_pair_bias.sum(0),
    )


def _backward(
    layer: Layer,
    first: Any,
    tokens: Any,
    query: Any,
    pair: Any,
    d_tokens: Any,
    d_query: Any,
    d_pair: Any,
    d_first: Any,
    normals: Any,
    d_query_bias: Any,
    d_pair_bias: Any,
    *,
    size: int,
) -> None:
    block, index = pl.program_id(0), layer.number[0]
    rows = pl.ds(block * size, size)
    exact, scale = normalised(given(layer, first, tokens, rows))
    normals[rows, :] = exact.astype(NARROW)
    slope = d_query[rows, :]
    d_query_bias[block, :] = jnp.sum(slope.astype(jnp.float32), axis=0)
    d_normal = dot(slope, query[index].T)
    slope = d_pair[rows, :]
    d_pair_bias[block, :] = jnp.sum(slope.astype(jnp.float32), axis=0)
    d_normal += dot(slope, pair[index].T)
    d_first[rows, :] = d_tokens[rows, :] + normalised_backward(exact, scale, d_normal)
