"""The weights of a Transformer's layers as the kernels want them.

A head's queries, keys and values have 8 columns, and tiles have 16: see `attention` for what lies
beside what. Layer norm's own weights are folded into those that follow them, scores come out in
units of log 2. All of it is plain JAX, which knows the derivatives.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from switchpoint.neural.blocks import HEADS, SIZE, WIDTH, Block
from switchpoint.neural.kernels.attention import Scope
from switchpoint.neural.kernels.call import NARROW
from switchpoint.neural.kernels.feed_forward import FeedForward
from switchpoint.neural.kernels.places import Asking
from switchpoint.neural.kernels.projection import Projection
from switchpoint.neural.kernels.waves import waves


class Weights(NamedTuple):
    """Those of each kind of kernel, each of all layers."""

    project: Projection
    asking: Asking | None
    feed: FeedForward


def packed(blocks: Block, scope: Scope) -> Weights:
    """What the kernels of all layers multiply."""
    unit = SIZE**-0.5 * math.log2(math.e)
    layers = len(blocks.mixing)
    norm = blocks.before_attention
    split = blocks.projections.reshape(layers, WIDTH, 3, HEADS, SIZE)
    query, key, value = jnp.moveaxis(norm.scale[:, :, None, None, None] * split, 2, 0)
    shifts = jnp.einsum("lw,lwthn->tlhn", norm.shift, split)
    query_bias, asking = shifts[0], None
    if blocks.relative is not None:
        query_bias = query_bias + blocks.relative.content_bias
        differs = blocks.relative.position_bias - blocks.relative.content_bias
        at_query = waves(scope.time, WIDTH).at_query()
        matrix = jnp.einsum("lhws,twc->lthsc", blocks.relative.projection, at_query)
        asking = Asking(_with_zeros(differs * unit, -1), _with_zeros(matrix, -2))
    project = Projection(
        _with_zeros(query * unit, -1).reshape(layers, WIDTH, -1),
        _with_zeros(query_bias * unit, -1).reshape(layers, -1),
        jnp.concatenate([key, value], axis=-1).reshape(layers, WIDTH, -1),
        jnp.concatenate([shifts[1], shifts[2]], axis=-1).reshape(layers, -1),
    )
    return Weights(project, asking, _feed_forward(blocks))


def _feed_forward(blocks: Block) -> FeedForward:
    layers = len(blocks.mixing)
    norm, widening, narrowing = blocks.before_widening, blocks.widening, blocks.narrowing
    mixing = blocks.mixing.reshape(layers, HEADS, SIZE, WIDTH)
    return FeedForward(
        jnp.concatenate([jnp.zeros_like(mixing), mixing], axis=2).reshape(layers, -1, WIDTH),
        norm.scale[:, :, None] * widening.weight,
        widening.bias + jnp.einsum("lw,lwn->ln", norm.shift, widening.weight),
        narrowing.weight,
        narrowing.bias,
    )


def _with_zeros(array: Array, axis: int) -> Array:
    """Twice as long along an axis, zeros last."""
    return jnp.concatenate([array, jnp.zeros_like(array)], axis=axis)


def narrowed(weights: Weights) -> Weights:
    """Matrices in few bits, biases as they are."""

    def of(part: Any) -> Any:
        if part is None:
            return None
        fields = part._asdict().items()
        return type(part)(*(v if "bias" in k else v.astype(NARROW) for k, v in fields))

    return Weights(*map(of, weights))
