"""The last kernels of a layer: heads are mixed, then the feed-forward network, and back."""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.kernels.arithmetic import dot, product
from switchpoint.neural.kernels.call import NARROW, call
from switchpoint.neural.kernels.rows import Layer, given, normalised, normalised_backward

ROWS, UNITS, WARPS, STAGES = 64, 64, 4, 2


class FeedForward(NamedTuple):
    """The weights, of all layers; layer norm's own are folded into them."""

    mixing: Float[Array, "layers heads_pair width"]
    widening: Float[Array, "layers width wide"]
    wide_bias: Float[Array, "layers wide"]
    narrowing: Float[Array, "layers wide width"]
    bias: Float[Array, "layers width"]


def forward(
    layer: Layer,
    first: Float[Array, "rows width"],
    tokens: Float[Array, "layers rows width"],
    means: Float[Array, "layers rows heads_pair"],
    weights: FeedForward,
    time: int,
) -> Float[Array, "layers rows width"]:
    """`tokens`, with what this layer makes of its own."""
    size = min(ROWS, time)
    return call(
        partial(_forward, size=size),
        "feed_forward",
        (len(first) // size,),
        (layer, first, means, *weights),
        (tokens,),
        warps=WARPS,
        stages=STAGES,
    )[0]


def _forward(
    layer: Layer,
    first: Any,
    means: Any,
    mixing: Any,
    widening: Any,
    wide_bias: Any,
    narrowing: Any,
    bias: Any,
    tokens: Any,
    *,
    size: int,
) -> None:
    index, place = layer.number[0], layer.place[0]
    rows = pl.ds(pl.program_id(0) * size, size)
    mixed = given(layer, first, tokens, rows) + dot(means[place, rows, :], mixing[index])
    normal = normalised(mixed)[0].astype(NARROW)

    def add(part: Any, total: Any) -> Any:
        units = pl.ds(part * UNITS, UNITS)
        wide = dot(normal, widening[index, :, units]) + wide_bias[index, units][None, :]
        active = jnp.maximum(wide, 0).astype(NARROW)
        return total + dot(active, narrowing[index, units, :])

    start = mixed + bias[index, :][None, :]
    tokens[place, rows, :] = lax.fori_loop(0, widening.shape[-1] // UNITS, add, start)


def backward(
    layer: Layer,
    first: Float[Array, "rows width"],
    tokens: Float[Array, "layers rows width"],
    means: Float[Array, "layers rows heads_pair"],
    weights: FeedForward,
    d_tokens: Float[Array, "rows width"],
    time: int,
) -> tuple[Float[Array, "rows width"], Float[Array, "rows heads_pair"], FeedForward]:
    """The derivatives of the tokens before the feed-forward network, of the means, of the weights.

    `d_tokens` is of what the layer makes.
    """
    rows, width = d_tokens.shape
    size = min(ROWS, time)
    grid = rows // size
    wide = weights.widening.shape[-1]
    d_mixed, d_means, normal, active, d_wide, slope, total, d_bias, d_wide_bias = call(
        partial(_backward, size=size),
        "feed_forward_backward",
        (grid,),
        (layer, first, tokens, means, *weights[:-1], d_tokens),
        made=[
            ((rows, width), jnp.float32),
            ((rows, means.shape[-1]), NARROW),
            ((rows, width), NARROW),
            ((rows, wide), NARROW),
            ((rows, wide), NARROW),
            ((rows, width), NARROW),
            ((rows, width), NARROW),
            ((grid, width), jnp.float32),
            ((grid, wide), jnp.float32),
        ],
        warps=WARPS,
        stages=STAGES,
    )
    mean = lax.dynamic_index_in_dim(means, layer.place[0], keepdims=False)
    return d_mixed, d_means, FeedForward(
        product(mean, total),
        product(normal, d_wide),
        d_wide_bias.sum(0),
        product(active, slope),
        d_bias.sum(0),
    )  # fmt: skip


def _backward(
    layer: Layer,
    first: Any,
    tokens: Any,
    means: Any,
    mixing: Any,
    widening: Any,
    wide_bias: Any,
    narrowing: Any,
    d_tokens: Any,
    d_mixed: Any,
    d_means: Any,
    normals: Any,
    actives: Any,
    d_wides: Any,
    slopes: Any,
    totals: Any,
    d_bias: Any,
    d_wide_bias: Any,
    *,
    size: int,
) -> None:
    index, block = layer.number[0], pl.program_id(0)
    rows = pl.ds(block * size, size)
    mean = means[layer.place[0], rows, :]
    mixed = given(layer, first, tokens, rows) + dot(mean, mixing[index])
    exact, scale = normalised(mixed)
    normal = exact.astype(NARROW)
    normals[rows, :] = normal
    slope = d_tokens[rows, :]
    d_bias[block, :] = jnp.sum(slope, axis=0)
    narrow = slope.astype(NARROW)
    slopes[rows, :] = narrow

    def add(part: Any, d_normal: Any) -> Any:
        units = pl.ds(part * UNITS, UNITS)
        wide = dot(normal, widening[index, :, units]) + wide_bias[index, units][None, :]
        actives[rows, units] = jnp.maximum(wide, 0).astype(NARROW)
        d_active = dot(narrow, narrowing[index, units, :].T)
        d_wide = jnp.where(wide > 0, d_active, 0.0)
        d_wide_bias[block, units] = jnp.sum(d_wide, axis=0)
        short = d_wide.astype(NARROW)
        d_wides[rows, units] = short
        return d_normal + dot(short, widening[index, :, units].T)

    zero = jnp.zeros((size, first.shape[1]), jnp.float32)
    d_normal = lax.fori_loop(0, widening.shape[-1] // UNITS, add, zero)
    total = slope + normalised_backward(exact, scale, d_normal)
    d_mixed[rows, :] = total
    narrow = total.astype(NARROW)
    totals[rows, :] = narrow
    d_means[rows, :] = dot(narrow, mixing[index].T).astype(NARROW)
