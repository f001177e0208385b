"""All layers of a Transformer on GPU kernels: the same function as the plain path."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.neural.blocks import HEADS, SIZE, WIDTH, Block
from switchpoint.neural.kernels import attention, relative_positions, token_wise
from switchpoint.neural.kernels.attention import BLOCKS, HEAD, AttentionSpec
from switchpoint.neural.kernels.common import FP16, empty, max_abs
from switchpoint.neural.kernels.relative_positions import RelPosWeights, lowrank_sinusoids
from switchpoint.neural.kernels.token_wise import Activations, Layer, MLPWeights, QKVWeights


class Weights(NamedTuple):
    """The weights of each kind of kernel, for all layers."""

    qkv: QKVWeights
    rel_pos: RelPosWeights | None
    mlp: MLPWeights


def fused_layers(
    blocks: Block, x: Float[Array, "batch time width"], positions: str, context: int | None
) -> Float[Array, "batch time width"]:
    """The output of the last layer; each token attends to all so far, or to a context of them."""
    batch, time, width = x.shape
    padded = _padded(time)
    spec = AttentionSpec(
        time=padded,
        context=context,
        rank=lowrank_sinusoids(padded, WIDTH).at_key.shape[1] if positions == "relative" else 0,
        alibi=positions == "alibi",
    )
    rows = jnp.pad(x, ((0, 0), (0, padded - time), (0, 0))).reshape(-1, width)
    output = _layers(spec, weight_layout(blocks, spec), rows)
    return output.reshape(batch, padded, width)[:, :time]


def _padded(time: int) -> int:
    """A length divisible by the block sizes; padding comes last, where no token attends to it."""
    block = max(BLOCKS)
    if time > block:
        return -(-time // block) * block
    return max(16, 1 << (time - 1).bit_length())


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _layers(
    spec: AttentionSpec, weights: Weights, embedded: Float[Array, "rows width"]
) -> Float[Array, "rows width"]:
    return _run(spec, weights, embedded, slots=1).tokens[-1]


def _forward(
    spec: AttentionSpec, weights: Weights, embedded: Float[Array, "rows width"]
) -> tuple[Float[Array, "rows width"], Any]:
    saved = _run(spec, weights, embedded, slots=len(weights.mlp.out_proj))
    return saved.tokens[-1], (weights, embedded, saved)


def _run(
    spec: AttentionSpec, weights: Weights, embedded: Float[Array, "rows width"], slots: int
) -> Activations:
    """The activations of all layers, or of the last alone if there is one slot."""
    qkv, rel_pos, mlp = to_fp16(weights)
    rel_key = _rel_key(spec)

    def step(saved: Activations, layer: Layer) -> tuple[Activations, None]:
        saved = token_wise.qkv_forward(layer, embedded, saved, qkv, spec.time)
        if rel_pos is not None:
            saved = relative_positions.forward(layer, saved, rel_pos, spec)
        saved = attention.forward(layer, saved, rel_key, spec)
        return token_wise.mlp_forward(layer, embedded, saved, mlp, spec.time), None

    layers = _layers_in(jnp.arange(len(mlp.out_proj), dtype=jnp.int32), slots)
    return lax.scan(step, _empty_activations(slots, embedded, spec), layers)[0]


def _backward(
    spec: AttentionSpec, residuals: Any, d_last: Float[Array, "rows width"]
) -> tuple[Weights, Float[Array, "rows width"]]:
    weights, embedded, saved = residuals
    qkv, rel_pos, mlp = to_fp16(weights)
    rel_key = _rel_key(spec)
    scale = max_abs(d_last)

    def step(d_tokens: Any, layer: Layer) -> tuple[Any, Weights]:
        d_tokens, d_attn_out, d_mlp = token_wise.mlp_backward(
            layer, embedded, saved, mlp, d_tokens, spec.time
        )
        d_kv, d_query, *d_rel_query = attention.backward(layer, saved, rel_key, d_attn_out, spec)
        d_rel_pos = None
        if rel_pos is not None:
            d_query, d_rel_pos = relative_positions.backward(
                layer, saved.query, rel_pos, d_query, d_rel_query[0], spec
            )
        d_tokens, d_qkv = token_wise.qkv_backward(
            layer, embedded, saved, qkv, d_tokens, d_query, d_kv, spec.time
        )
        return d_tokens, Weights(d_qkv, d_rel_pos, d_mlp)

    count = len(mlp.out_proj)
    layers = _layers_in(jnp.arange(count - 1, -1, -1, dtype=jnp.int32), count)
    d_embedded, d_weights = lax.scan(step, d_last / scale, layers)
    return jax.tree.map(lambda leaf: leaf[::-1] * scale, d_weights), d_embedded * scale


_layers.defvjp(_forward, _backward)


def _rel_key(spec: AttentionSpec) -> Float[Array, "time rank"] | None:
    return jnp.asarray(lowrank_sinusoids(spec.time, WIDTH).at_key, FP16) if spec.rank else None


def _layers_in(indices: Int[Array, " layers"], slots: int) -> Layer:
    """These layers, with this number of slots for their activations."""
    previous = jnp.maximum(indices - 1, 0)
    return Layer(*(each[:, None] for each in (indices, indices % slots, previous % slots)))


def _empty_activations(
    slots: int, embedded: Float[Array, "rows width"], spec: AttentionSpec
) -> Activations:
    rows, width = embedded.shape

    def buffer(name: str, columns: int, dtype: Any = FP16) -> Array:
        return empty(embedded, (slots, rows, columns), dtype, name)

    return Activations(
        tokens=buffer("tokens", width, jnp.float32),
        query=buffer("query", HEADS * HEAD),
        kv=buffer("kv", HEADS * HEAD),
        rel_query=buffer("rel_query", HEADS * spec.rank) if spec.rank else None,
        attn_out=buffer("attn_out", HEADS * HEAD),
        lse=empty(embedded, (slots, HEADS, rows), jnp.float32, "lse"),
    )


def weight_layout(blocks: Block, spec: AttentionSpec) -> Weights:
    """The weights of all layers in the layout of the kernels, in differentiable plain JAX.

    A head's queries, keys and values have 8 columns, and tiles have 16: see `attention` for how
    they are combined. Layer norm's scale and shift are folded into the weights that follow, and
    scores are in units of log 2.
    """
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
    """The array padded with zeros to twice its length along an axis."""
    return jnp.concatenate([array, jnp.zeros_like(array)], axis=axis)


def to_fp16(weights: Weights) -> Weights:
    """Matrices in float16, biases as they are."""

    def cast(part: Any) -> Any:
        if part is None:
            return None
        fields = part._asdict().items()
        return type(part)(*(v if "bias" in k else v.astype(FP16) for k, v in fields))

    return Weights(*map(cast, weights))
