"""The kernels of a layer that act on each token separately, forward and backward.

They are the first and the last of a layer: layer norm with the projections to queries, keys and
values; and the projection of the attention's output, layer norm and the MLP.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from switchpoint.neural.kernels.common import FP16, call, dot, largest_divisor, weight_gradient

ROWS = 64
"""The number of tokens per program."""
UNITS = 64
"""The number of hidden units of the MLP at a time."""
SPLIT = 2048
"""The number of tokens over which a program sums gradients of weights."""


class Layer(NamedTuple):
    """The layer that a kernel computes; each field is an array of one number."""

    number: Int[Array, "1"]
    """The index of its weights."""
    slot: Int[Array, "1"]
    """The slot of its activations."""
    previous: Int[Array, "1"]
    """The slot of the activations of the layer before."""


class Activations(NamedTuple):
    """The activations that the backward pass needs, of all layers or of the last alone."""

    tokens: Float[Array, "layers rows width"]
    """The outputs of the layers."""
    query: Float[Array, "layers rows heads_columns"]
    kv: Float[Array, "layers rows heads_columns"]
    rel_query: Float[Array, "layers rows heads_rank"] | None
    attn_out: Float[Array, "layers rows heads_columns"]
    lse: Float[Array, "layers heads rows"]
    """The log-sum-exp of the scores of each query."""


class QKVWeights(NamedTuple):
    """The projections of all layers, with layer norm's scale and shift folded in."""

    query: Float[Array, "layers width heads_columns"]
    query_bias: Float[Array, "layers heads_columns"]
    kv: Float[Array, "layers width heads_columns"]
    kv_bias: Float[Array, "layers heads_columns"]


class MLPWeights(NamedTuple):
    """The output projections and MLPs of all layers, layer norm's scale and shift folded in."""

    out_proj: Float[Array, "layers heads_columns width"]
    mlp_in: Float[Array, "layers width wide"]
    mlp_in_bias: Float[Array, "layers wide"]
    mlp_out: Float[Array, "layers wide width"]
    mlp_out_bias: Float[Array, "layers width"]


def layer_input(layer: Layer, embedded: Any, tokens: Any, rows: Any) -> Any:
    """The input of a layer: the embedded tokens, or the output of the layer before."""
    previous = tokens[layer.previous[0], rows, :]
    return jnp.where(layer.number[0] == 0, embedded[rows, :], previous)


def layer_norm(x: Any) -> tuple[Any, Any]:
    """Rows with mean 0 and variance 1, and the factors that scaled them."""
    centred = x - _mean(x)
    scale = lax.rsqrt(_mean(centred * centred) + 1e-5)
    return centred * scale, scale


def layer_norm_backward(normal: Any, scale: Any, d_normal: Any) -> Any:
    """The gradient of the rows from the gradient of the normalised ones."""
    return scale * (d_normal - _mean(d_normal) - normal * _mean(d_normal * normal))


def _mean(x: Any) -> Any:
    return (jnp.sum(x, axis=1) / x.shape[1])[:, None]


def qkv_forward(
    layer: Layer,
    embedded: Float[Array, "rows width"],
    saved: Activations,
    weights: QKVWeights,
    time: int,
) -> Activations:
    """The activations with this layer's queries, keys and values."""
    size = min(ROWS, time)

    def kernel(
        layer: Layer, embedded: Any, tokens: Any, weights: QKVWeights, query: Any, kv: Any
    ) -> None:
        index, slot = layer.number[0], layer.slot[0]
        rows = pl.ds(pl.program_id(0) * size, size)
        normal = layer_norm(layer_input(layer, embedded, tokens, rows))[0].astype(FP16)
        projected = dot(normal, weights.query[index]) + weights.query_bias[index, :][None, :]
        query[slot, rows, :] = projected.astype(FP16)
        projected = dot(normal, weights.kv[index]) + weights.kv_bias[index, :][None, :]
        kv[slot, rows, :] = projected.astype(FP16)

    inputs, buffers = (layer, embedded, saved.tokens, weights), (saved.query, saved.kv)
    query, kv = call(kernel, "qkv", (len(embedded) // size,), inputs, buffers)
    return saved._replace(query=query, kv=kv)


def qkv_backward(
    layer: Layer,
    embedded: Float[Array, "rows width"],
    saved: Activations,
    weights: QKVWeights,
    d_residual: Float[Array, "rows width"],
    d_query: Float[Array, "rows heads_columns"],
    d_kv: Float[Array, "rows heads_columns"],
    time: int,
) -> tuple[Float[Array, "rows width"], QKVWeights]:
    """The gradients of the layer's input and of the weights.

    `d_residual` is the gradient through the residual connection around the attention.
    """
    rows, width = embedded.shape
    columns = d_query.shape[1]
    size = min(ROWS, time)
    grid = rows // size

    def kernel(
        layer: Layer,
        embedded: Any,
        tokens: Any,
        matrices: tuple[Any, Any],
        d_residual: Any,
        gradients: tuple[Any, Any],
        d_input: Any,
        normals: Any,
        *d_biases: Any,
    ) -> None:
        block, index = pl.program_id(0), layer.number[0]
        rows = pl.ds(block * size, size)
        exact, scale = layer_norm(layer_input(layer, embedded, tokens, rows))
        normals[rows, :] = exact.astype(FP16)
        d_normals = []
        for matrix, gradient, d_bias in zip(matrices, gradients, d_biases, strict=True):
            d_projected = gradient[rows, :]
            d_bias[block, :] = jnp.sum(d_projected.astype(jnp.float32), axis=0)
            d_normals.append(dot(d_projected, matrix[index].T))
        d_normal = d_normals[0] + d_normals[1]
        d_input[rows, :] = d_residual[rows, :] + layer_norm_backward(exact, scale, d_normal)

    matrices = (weights.query, weights.kv)
    d_input, normal, d_query_bias, d_kv_bias = call(
        kernel,
        "qkv_backward",
        (grid,),
        (layer, embedded, saved.tokens, matrices, d_residual, (d_query, d_kv)),
        outputs=[((rows, width), jnp.float32), ((rows, width), FP16)]
        + [((grid, columns), jnp.float32)] * 2,
    )
    return d_input, QKVWeights(
        weight_gradient(normal, d_query),
        d_query_bias.sum(0),
        weight_gradient(normal, d_kv),
        d_kv_bias.sum(0),
    )


def mlp_forward(
    layer: Layer,
    embedded: Float[Array, "rows width"],
    saved: Activations,
    weights: MLPWeights,
    time: int,
) -> Activations:
    """The activations with this layer's output."""
    size = min(ROWS, time)

    def kernel(
        layer: Layer, embedded: Any, attn_out: Any, weights: MLPWeights, tokens: Any
    ) -> None:
        index, slot = layer.number[0], layer.slot[0]
        rows = pl.ds(pl.program_id(0) * size, size)
        residual = layer_input(layer, embedded, tokens, rows)
        residual += dot(attn_out[slot, rows, :], weights.out_proj[index])
        normal = layer_norm(residual)[0].astype(FP16)

        def add(part: Any, total: Any) -> Any:
            units = pl.ds(part * UNITS, UNITS)
            wide = dot(normal, weights.mlp_in[index, :, units])
            wide += weights.mlp_in_bias[index, units][None, :]
            active = jnp.maximum(wide, 0).astype(FP16)
            return total + dot(active, weights.mlp_out[index, units, :])

        start = residual + weights.mlp_out_bias[index, :][None, :]
        parts = weights.mlp_in.shape[-1] // UNITS
        tokens[slot, rows, :] = lax.fori_loop(0, parts, add, start)

    inputs = (layer, embedded, saved.attn_out, weights)
    (tokens,) = call(kernel, "mlp", (len(embedded) // size,), inputs, (saved.tokens,))
    return saved._replace(tokens=tokens)


def mlp_backward(
    layer: Layer,
    embedded: Float[Array, "rows width"],
    saved: Activations,
    weights: MLPWeights,
    d_tokens: Float[Array, "rows width"],
    time: int,
) -> tuple[Float[Array, "rows width"], Float[Array, "rows heads_columns"], MLPWeights]:
    """The gradients of the residual stream before the MLP, of the attention, of the weights.

    `d_tokens` is the gradient of the layer's output.
    """
    rows, width = d_tokens.shape
    size = min(ROWS, time)
    grid = rows // size

    def kernel(
        layer: Layer,
        embedded: Any,
        tokens: Any,
        attn_out: Any,
        weights: tuple[Any, Any, Any, Any],
        d_tokens: Any,
        *outputs: Any,
    ) -> None:
        d_residual, d_attn_out, normals, d_narrows, totals, d_bias = outputs
        index, block = layer.number[0], pl.program_id(0)
        rows = pl.ds(block * size, size)
        out_proj, mlp_in, mlp_in_bias, mlp_out = weights
        attended = attn_out[layer.slot[0], rows, :]
        residual = layer_input(layer, embedded, tokens, rows) + dot(attended, out_proj[index])
        exact, scale = layer_norm(residual)
        normal = exact.astype(FP16)
        normals[rows, :] = normal
        gradient = d_tokens[rows, :]
        d_bias[block, :] = jnp.sum(gradient, axis=0)
        narrow = gradient.astype(FP16)
        d_narrows[rows, :] = narrow

        def add(part: Any, d_normal: Any) -> Any:
            units = pl.ds(part * UNITS, UNITS)
            wide = dot(normal, mlp_in[index, :, units]) + mlp_in_bias[index, units][None, :]
            d_wide = jnp.where(wide > 0, dot(narrow, mlp_out[index, units, :].T), 0.0)
            return d_normal + dot(d_wide.astype(FP16), mlp_in[index, :, units].T)

        zero = jnp.zeros((size, embedded.shape[1]), jnp.float32)
        d_normal = lax.fori_loop(0, mlp_in.shape[-1] // UNITS, add, zero)
        # Loaded anew, which costs less than to keep it in registers meanwhile.
        total = d_tokens[rows, :] + layer_norm_backward(exact, scale, d_normal)
        d_residual[rows, :] = total
        narrow = total.astype(FP16)
        totals[rows, :] = narrow
        d_attn_out[rows, :] = dot(narrow, out_proj[index].T).astype(FP16)

    halves = [saved.attn_out.shape[-1], width, width, width]  # in float16
    d_residual, d_attn_out, normal, d_narrow, total, d_bias = call(
        kernel,
        "mlp_backward",
        (grid,),
        (layer, embedded, saved.tokens, saved.attn_out, weights[:-1], d_tokens),
        outputs=[
            ((rows, width), jnp.float32),
            *(((rows, columns), FP16) for columns in halves),
            ((grid, width), jnp.float32),
        ],
    )
    attended = lax.dynamic_index_in_dim(saved.attn_out, layer.slot[0], keepdims=False)
    d_out_proj = weight_gradient(attended, total)
    d_mlp_in, d_in_bias, d_mlp_out = _mlp_weight_gradients(layer, weights, normal, d_narrow, size)
    gradients = MLPWeights(d_out_proj, d_mlp_in, d_in_bias, d_mlp_out, d_bias.sum(0))
    return d_residual, d_attn_out, gradients


def _mlp_weight_gradients(
    layer: Layer,
    weights: MLPWeights,
    normal: Float[Array, "rows width"],
    d_output: Float[Array, "rows width"],
    size: int,
) -> list[Array]:
    """The gradients of `mlp_in`, of its bias, and of `mlp_out`.

    A program recomputes some hidden units for some rows and sums their gradients: to store all
    units for a product by XLA would be most of the memory traffic.
    """
    (rows, width), wide = normal.shape, weights.mlp_in.shape[-1]
    split = largest_divisor(rows, SPLIT)

    def kernel(
        layer: Layer, weights: tuple[Any, Any, Any], normal: Any, d_output: Any, *outputs: Any
    ) -> None:
        index, part = layer.number[0], pl.program_id(1)
        units = pl.ds(pl.program_id(0) * UNITS, UNITS)
        mlp_in, mlp_in_bias, mlp_out = weights
        inwards, outwards = mlp_in[index, :, units], mlp_out[index, units, :].T
        bias = mlp_in_bias[index, units][None, :]

        def add(block: Any, totals: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            d_in, d_bias, d_out = totals
            rows = pl.ds(part * split + block * size, size)
            normals, d_outputs = normal[rows, :], d_output[rows, :]
            wide = dot(normals, inwards) + bias
            d_wide = jnp.where(wide > 0, dot(d_outputs, outwards), 0.0)
            active = jnp.maximum(wide, 0).astype(FP16)
            return (
                d_in + dot(normals.T, d_wide.astype(FP16)),
                d_bias + d_wide,
                d_out + dot(active.T, d_outputs),
            )

        shapes = (width, UNITS), (size, UNITS), (UNITS, width)
        zeros = tuple(jnp.zeros(shape, jnp.float32) for shape in shapes)
        d_in, d_bias, d_out = lax.fori_loop(0, split // size, add, zeros)
        outputs[0][part, :, units] = d_in
        outputs[1][part, units] = jnp.sum(d_bias, axis=0)
        outputs[2][part, units, :] = d_out

    splits = rows // split
    shapes = (splits, width, wide), (splits, wide), (splits, wide, width)
    partial_sums = call(
        kernel,
        "mlp_weight_gradients",
        (wide // UNITS, splits),
        (layer, weights[1:4], normal, d_output),
        outputs=[(shape, jnp.float32) for shape in shapes],
    )
    return [each.sum(0) for each in partial_sums]
