"""The weights of a Transformer's layers in the layout of the kernels.

A head's queries, keys and values have 8 columns, and tiles have 16: see `attention` for how they
are combined. Layer norm's scale and shift are folded into the weights that follow them, and scores
come out in units of log 2. All of it is plain JAX, which knows the gradients.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from switchpoint.neural.blocks import HEADS, SIZE, WIDTH, Block
from switchpoint.neural.kernels.attention import AttentionSpec
from switchpoint.neural.kernels.common import FP16
from switchpoint.neural.kernels.relative_positions import RelPosWeights, lowrank_sinusoids
from switchpoint.neural.kernels.token_wise import MLPWeights, QKVWeights


class Weights(NamedTuple):
    """Those of each kind of kernel, for all layers."""

    qkv: QKVWeights
    rel_pos: RelPosWeights | None
    mlp: MLPWeights


def weight_layout(blocks: Block, spec: AttentionSpec) -> Weights:
    """The weights of all layers as the kernels multiply them."""
    unit = SIZE**-0.5 * math.log2(math.e)
    layers = len(blocks.out_proj)
    norm = blocks.ln1
    split = blocks.qkv.reshape(layers, WIDTH, 3, HEADS, SIZE)
    query, key, value = jnp.moveaxis(norm.scale[:, :, None, None, None] * split, 2, 0)
    shifts = jnp.einsum("lw,lwthn->tlhn", norm.shift, split)
    query_bias, rel_pos = shifts[0], None
    if blocks.relative is not None:
        query_bias = query_bias + blocks.relative.content_bias
        differs = blocks.relative.position_bias - blocks.relative.content_bias
        at_query = lowrank_sinusoids(spec.time, WIDTH).at_query()
        matrix = jnp.einsum("lhws,twc->lthsc", blocks.relative.projection, at_query)
        rel_pos = RelPosWeights(_with_zeros(differs * unit, -1), _with_zeros(matrix, -2))
    qkv = QKVWeights(
        _with_zeros(query * unit, -1).reshape(layers, WIDTH, -1),
        _with_zeros(query_bias * unit, -1).reshape(layers, -1),
        jnp.concatenate([key, value], axis=-1).reshape(layers, WIDTH, -1),
        jnp.concatenate([shifts[1], shifts[2]], axis=-1).reshape(layers, -1),
    )
    return Weights(qkv, rel_pos, _mlp(blocks))


def _mlp(blocks: Block) -> MLPWeights:
    layers = len(blocks.out_proj)
    norm, mlp_in, mlp_out = blocks.ln2, blocks.mlp_in, blocks.mlp_out
    out_proj = blocks.out_proj.reshape(layers, HEADS, SIZE, WIDTH)
    return MLPWeights(
        jnp.concatenate([jnp.zeros_like(out_proj), out_proj], axis=2).reshape(layers, -1, WIDTH),
        norm.scale[:, :, None] * mlp_in.weight,
        mlp_in.bias + jnp.einsum("lw,lwn->ln", norm.shift, mlp_in.weight),
        mlp_out.weight,
        mlp_out.bias,
    )


def _with_zeros(array: Array, axis: int) -> Array:
    """Twice as long along an axis, padded with zeros."""
    return jnp.concatenate([array, jnp.zeros_like(array)], axis=axis)


def to_fp16(weights: Weights) -> Weights:
    """Matrices in float16, biases as they are."""

    def cast(part: Any) -> Any:
        if part is None:
            return None
        fields = part._asdict().items()
        return type(part)(*(v if "bias" in k else v.astype(FP16) for k, v in fields))

    return Weights(*map(cast, weights))
