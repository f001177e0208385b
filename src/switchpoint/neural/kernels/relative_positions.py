"""Relative positions in attention: low-rank sinusoids of distances, and the queries' factors.

The positional term of a score is a sum over sinusoids of i - j, which factor into a part at the
query and a part at the key. A query's factor is its product with a matrix that depends on its
position. All sequences share these matrices, so a program handles one position of many sequences.
"""

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.attention import frequencies
from switchpoint.neural.kernels.attention import HEAD, AttentionSpec
from switchpoint.neural.kernels.common import FP16, call, dot, largest_divisor
from switchpoint.neural.kernels.token_wise import Activations, Layer

SEQUENCES = 128
"""The number of sequences per program."""

_MIN_RANK = 16
_TOLERANCE = 1e-7


class LowRankSinusoids(NamedTuple):
    """Factors of sinusoids: cos(w j) is `of_cos[w] @ at_key[j]`, and likewise the sines."""

    sin: np.ndarray
    """(positions, frequencies)"""
    cos: np.ndarray
    of_sin: np.ndarray
    """(frequencies, rank)"""
    of_cos: np.ndarray
    at_key: np.ndarray
    """(positions, rank)"""

    def at_query(self) -> Float[Array, "positions sinusoids rank"]:
        """The sinusoids of i - j, sines first, are `at_query()[i] @ at_key[j]`.

        sin w(i-j) = sin wi cos wj - cos wi sin wj, and cos w(i-j) = cos wi cos wj + sin wi sin wj.
        """
        # It may be large: keep the compiler from folding it into a constant.
        sin, cos = lax.optimization_barrier((self.sin[..., None], self.cos[..., None]))
        parts = [
            sin * self.of_cos - cos * self.of_sin,
            cos * self.of_cos + sin * self.of_sin,
        ]
        return jnp.concatenate(parts, axis=1)


@cache
def lowrank_sinusoids(time: int, width: int) -> LowRankSinusoids:
    """Those of `width` / 2 frequencies at the positions before `time`.

    Over a few hundred positions the slowest of the 32 frequencies hardly vary, so their sines and
    cosines have numerical rank 32, not 64. The rank is padded to a power of two.
    """
    angles = np.arange(time)[:, None] * frequencies(width)
    sin, cos = np.sin(angles), np.cos(angles)
    left, sizes, right = np.linalg.svd(np.concatenate([cos, sin], axis=1), full_matrices=False)
    rank = int(np.sum(sizes > _TOLERANCE * sizes[0]))
    columns = max(_MIN_RANK, 1 << (rank - 1).bit_length())
    at_key, back = np.zeros((time, columns)), np.zeros((width, columns))
    at_key[:, :rank] = left[:, :rank] * np.sqrt(time)
    back[:, :rank] = right[:rank].T * sizes[:rank] / np.sqrt(time)
    of_cos, of_sin = np.split(back, 2)
    parts = (sin, cos, of_sin, of_cos, at_key)
    return LowRankSinusoids(*(part.astype(np.float32) for part in parts))


class RelPosWeights(NamedTuple):
    """The weights of relative positions, for all layers and heads."""

    bias: Float[Array, "layers heads columns"]
    """Added to a query before the product."""
    matrix: Float[Array, "layers time heads columns rank"]


def forward(
    layer: Layer, saved: Activations, weights: RelPosWeights, spec: AttentionSpec
) -> Activations:
    """The activations with this layer's positional part of the queries."""
    assert saved.rel_query is not None
    batch = saved.query.shape[1] // spec.time
    size = largest_divisor(batch, SEQUENCES)

    def kernel(layer: Layer, query: Any, weights: Any, rel_query: Any) -> None:
        index, slot = layer.number[0], layer.slot[0]
        rows, time = pl.ds(pl.program_id(0) * size, size), pl.program_id(1)

        def one_head(head: Any, _: None) -> None:
            biased = _biased(
                query[slot, rows, time, pl.ds(head * HEAD, HEAD)], weights, index, head
            )
            product = dot(biased, weights.matrix[index, time, head]).astype(FP16)
            rel_query[slot, rows, time, pl.ds(head * spec.rank, spec.rank)] = product

        lax.fori_loop(0, weights.bias.shape[1], one_head, None)

    (rel_query,) = call(
        kernel,
        "rel_query",
        (batch // size, spec.time),
        (layer, _by_sequence(saved.query, spec), weights),
        (_by_sequence(saved.rel_query, spec),),
    )
    return saved._replace(rel_query=rel_query.reshape(saved.rel_query.shape))


def backward(
    layer: Layer,
    query: Float[Array, "layers rows heads_columns"],
    weights: RelPosWeights,
    d_query: Float[Array, "rows heads_columns"],
    d_rel_query: Float[Array, "rows heads_rank"],
    spec: AttentionSpec,
) -> tuple[Float[Array, "rows heads_columns"], RelPosWeights]:
    """The total gradient of the queries, and the gradients of the weights.

    `d_query` is the gradient of the queries from the products with keys.
    """
    batch = query.shape[1] // spec.time
    size = largest_divisor(batch, SEQUENCES)
    grid = (batch // size, spec.time)
    shape = weights.matrix.shape[1:]

    def kernel(
        layer: Layer,
        query: Any,
        weights: Any,
        d_rel_query: Any,
        d_query: Any,
        d_bias: Any,
        d_matrix: Any,
    ) -> None:
        index, slot = layer.number[0], layer.slot[0]
        block, time = pl.program_id(0), pl.program_id(1)
        rows = pl.ds(block * size, size)

        def one_head(head: Any, _: None) -> None:
            columns = pl.ds(head * HEAD, HEAD)
            biased = _biased(query[slot, rows, time, columns], weights, index, head)
            d_product = d_rel_query[rows, time, pl.ds(head * spec.rank, spec.rank)]
            d_matrix[block, time, head] = dot(biased.T, d_product)
            d_biased = dot(d_product, weights.matrix[index, time, head].T)
            d_bias[block, time, head] = jnp.sum(d_biased, axis=0)
            total = d_query[rows, time, columns].astype(jnp.float32) + d_biased
            d_query[rows, time, columns] = total.astype(FP16)

        lax.fori_loop(0, weights.bias.shape[1], one_head, None)

    total, d_bias, d_matrix = call(
        kernel,
        "rel_query_backward",
        grid,
        (layer, _by_sequence(query, spec), weights, _by_sequence(d_rel_query, spec)),
        (_by_sequence(d_query, spec),),
        outputs=[((*grid, *shape[1:3]), jnp.float32), ((grid[0], *shape), jnp.float32)],
    )
    return total.reshape(d_query.shape), RelPosWeights(d_bias.sum((0, 1)), d_matrix.sum(0))


def _biased(query: Any, weights: Any, index: Any, head: Any) -> Any:
    exact = query.astype(jnp.float32)
    return (exact + weights.bias[index, head, :][None, :]).astype(FP16)


def _by_sequence(array: Float[Array, "*layers rows columns"], spec: AttentionSpec) -> Array:
    return array.reshape(*array.shape[:-2], -1, spec.time, array.shape[-1])
