"""What a query asks of positions: a product with a matrix of its own position, and back.

All sequences have the matrices in common, so a program takes one position of many sequences.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.kernels.arithmetic import dot, largest_divisor
from switchpoint.neural.kernels.attention import PAIR, Scope
from switchpoint.neural.kernels.call import NARROW, call
from switchpoint.neural.kernels.rows import Layer

SEQUENCES, WARPS, STAGES = 128, 4, 2


class Asking(NamedTuple):
    """The weights, of all layers and heads."""

    bias: Float[Array, "layers heads pair"]
    """What is added to a query before it asks for positions."""
    matrix: Float[Array, "layers time heads pair waves"]


def forward(
    layer: Layer,
    queries: Float[Array, "layers rows heads_pair"],
    weights: Asking,
    places: Float[Array, "layers rows heads_waves"],
    scope: Scope,
) -> Float[Array, "layers rows heads_waves"]:
    """What queries ask, one layer's set."""
    batch = queries.shape[1] // scope.time
    size = largest_divisor(batch, SEQUENCES)
    return call(
        partial(_forward, scope=scope, size=size),
        "place",
        (batch // size, scope.time),
        (layer, _by_sequence(queries, scope), *weights),
        (_by_sequence(places, scope),),
        warps=WARPS,
        stages=STAGES,
    )[0].reshape(places.shape)


def backward(
    layer: Layer,
    queries: Float[Array, "layers rows heads_pair"],
    weights: Asking,
    d_query: Float[Array, "rows heads_pair"],
    d_place: Float[Array, "rows heads_waves"],
    scope: Scope,
) -> tuple[Float[Array, "rows heads_pair"], Asking]:
    """The derivatives of queries, in all, and of the weights.

    `d_query` is what the keys say.
    """
    batch = queries.shape[1] // scope.time
    size = largest_divisor(batch, SEQUENCES)
    grid = (batch // size, scope.time)
    shape = weights.matrix.shape[1:]
    total, d_bias, d_matrix = call(
        partial(_backward, scope=scope, size=size),
        "place_backward",
        grid,
        (layer, _by_sequence(queries, scope), *weights, _by_sequence(d_place, scope)),
        (_by_sequence(d_query, scope),),
        made=[((*grid, *shape[1:3]), jnp.float32), ((grid[0], *shape), jnp.float32)],
        warps=WARPS,
        stages=STAGES,
    )
    return total.reshape(d_query.shape), Asking(d_bias.sum((0, 1)), d_matrix.sum(0))


def _forward(
    layer: Layer, queries: Any, bias: Any, matrix: Any, places: Any, *, scope: Scope, size: int
) -> None:
    index, place = layer.number[0], layer.place[0]
    rows, time = pl.ds(pl.program_id(0) * size, size), pl.program_id(1)

    def of_head(head: Any, _: None) -> None:
        query = queries[place, rows, time, pl.ds(head * PAIR, PAIR)].astype(jnp.float32)
        asked = (query + bias[index, head, :][None, :]).astype(NARROW)
        made = dot(asked, matrix[index, time, head]).astype(NARROW)
        places[place, rows, time, pl.ds(head * scope.waves, scope.waves)] = made

    lax.fori_loop(0, bias.shape[1], of_head, None)


def _backward(
    layer: Layer,
    queries: Any,
    bias: Any,
    matrix: Any,
    d_place: Any,
    d_query: Any,
    d_bias: Any,
    d_matrix: Any,
    *,
    scope: Scope,
    size: int,
) -> None:
    index, place = layer.number[0], layer.place[0]
    block, time = pl.program_id(0), pl.program_id(1)
    rows = pl.ds(block * size, size)

    def of_head(head: Any, _: None) -> None:
        own = pl.ds(head * PAIR, PAIR)
        query = queries[place, rows, time, own].astype(jnp.float32)
        asked = (query + bias[index, head, :][None, :]).astype(NARROW)
        slope = d_place[rows, time, pl.ds(head * scope.waves, scope.waves)]
        d_matrix[block, time, head] = dot(asked.T, slope)
        d_asked = dot(slope, matrix[index, time, head].T)
        d_bias[block, time, head] = jnp.sum(d_asked, axis=0)
        total = d_query[rows, time, own].astype(jnp.float32) + d_asked
        d_query[rows, time, own] = total.astype(NARROW)

    lax.fori_loop(0, bias.shape[1], of_head, None)


def _by_sequence(array: Float[Array, "*layers rows columns"], scope: Scope) -> Array:
    return array.reshape(*array.shape[:-2], -1, scope.time, array.shape[-1])
