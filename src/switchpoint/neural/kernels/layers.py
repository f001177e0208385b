"""All layers of a Transformer by kernels: the same function as the plain path."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.neural.blocks import HEADS, WIDTH, Block
from switchpoint.neural.kernels import attention, feed_forward, places, projection
from switchpoint.neural.kernels.arithmetic import largest
from switchpoint.neural.kernels.attention import PAIR, Scope
from switchpoint.neural.kernels.call import NARROW, unwritten
from switchpoint.neural.kernels.packing import Weights, narrowed, packed
from switchpoint.neural.kernels.rows import Layer
from switchpoint.neural.kernels.waves import waves


class _Made(NamedTuple):
    """What layers make, and the backward pass needs."""

    tokens: Float[Array, "layers rows width"]
    query: Float[Array, "layers rows heads_pair"]
    pair: Float[Array, "layers rows heads_pair"]
    where: Float[Array, "layers rows heads_waves"] | None
    means: Float[Array, "layers rows heads_pair"]
    sizes: Float[Array, "layers heads rows"]


def fused_layers(
    blocks: Block, x: Float[Array, "batch time width"], positions: str, context: int | None
) -> Float[Array, "batch time width"]:
    """What the layers make of x, each of which sees the tokens so far, or a context of them."""
    batch, time, width = x.shape
    padded = _padded(time)
    scope = Scope(
        time=padded,
        context=context,
        waves=waves(padded, WIDTH).at_key.shape[1] if positions == "relative" else 0,
        alibi=positions == "alibi",
    )
    rows = jnp.pad(x, ((0, 0), (0, padded - time), (0, 0))).reshape(-1, width)
    made = _layers(scope, packed(blocks, scope), rows)
    return made.reshape(batch, padded, width)[:, :time]


def _padded(time: int) -> int:
    """A length that can be cut: later tokens, which nobody sees, are added."""
    if time > attention.LONGEST:
        return -(-time // attention.LONGEST) * attention.LONGEST
    return max(16, 1 << (time - 1).bit_length())


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _layers(
    scope: Scope, weights: Weights, first: Float[Array, "rows width"]
) -> Float[Array, "rows width"]:
    return _run(scope, weights, first, kept=1).tokens[-1]


def _forward(
    scope: Scope, weights: Weights, first: Float[Array, "rows width"]
) -> tuple[Float[Array, "rows width"], Any]:
    made = _run(scope, weights, first, kept=len(weights.feed.mixing))
    return made.tokens[-1], (weights, first, made)


def _run(scope: Scope, weights: Weights, first: Float[Array, "rows width"], kept: int) -> _Made:
    """What the last `kept` layers make: all of them, or one, in the place of those before it."""
    project, asking, feed = narrowed(weights)
    basis = _basis(scope)

    def step(made: _Made, layer: Layer) -> tuple[_Made, None]:
        tokens, query, pair, where, means, sizes = made
        query, pair = projection.forward(layer, first, tokens, project, query, pair, scope.time)
        if asking is not None:
            assert where is not None
            where = places.forward(layer, query, asking, where, scope)
        means, sizes = attention.forward(layer, query, pair, where, basis, means, sizes, scope)
        tokens = feed_forward.forward(layer, first, tokens, means, feed, scope.time)
        return _Made(tokens, query, pair, where, means, sizes), None

    layers = _layers_in(jnp.arange(len(feed.mixing), dtype=jnp.int32), kept)
    return lax.scan(step, _to_be_made(kept, first, scope), layers)[0]


def _backward(
    scope: Scope, residuals: Any, d_last: Float[Array, "rows width"]
) -> tuple[Weights, Float[Array, "rows width"]]:
    weights, first, made = residuals
    project, asking, feed = narrowed(weights)
    basis = _basis(scope)
    size = largest(d_last)

    def step(d_tokens: Any, layer: Layer) -> tuple[Any, Weights]:
        tokens, query, pair, where, means, sizes = made
        d_tokens, d_means, d_feed = feed_forward.backward(
            layer, first, tokens, means, feed, d_tokens, scope.time
        )
        slopes = attention.backward(layer, query, pair, where, basis, means, sizes, d_means, scope)
        d_pair, d_query, d_asking = slopes[0], slopes[1], None
        if asking is not None:
            d_query, d_asking = places.backward(layer, query, asking, d_query, slopes[2], scope)
        d_tokens, d_project = projection.backward(
            layer, first, tokens, project, d_tokens, d_query, d_pair, scope.time
        )
        return d_tokens, Weights(d_project, d_asking, d_feed)

    count = len(feed.mixing)
    layers = _layers_in(jnp.arange(count - 1, -1, -1, dtype=jnp.int32), count)
    d_first, d_weights = lax.scan(step, d_last / size, layers)
    return jax.tree.map(lambda leaf: leaf[::-1] * size, d_weights), d_first * size


_layers.defvjp(_forward, _backward)


def _basis(scope: Scope) -> Float[Array, "time waves"] | None:
    return jnp.asarray(waves(scope.time, WIDTH).at_key, NARROW) if scope.waves else None


def _layers_in(indices: Int[Array, " layers"], places: int) -> Layer:
    """These layers, where so many places are for what they make."""
    before = jnp.maximum(indices - 1, 0)
    return Layer(*(each[:, None] for each in (indices, indices % places, before % places)))


def _to_be_made(layers: int, first: Float[Array, "rows width"], scope: Scope) -> _Made:
    """The place for what the layers make."""
    rows, width = first.shape

    def place(name: str, columns: int, dtype: Any = NARROW) -> Array:
        return unwritten(first, (layers, rows, columns), dtype, name)

    return _Made(
        tokens=place("tokens", width, jnp.float32),
        query=place("query", HEADS * PAIR),
        pair=place("pair", HEADS * PAIR),
        where=place("where", HEADS * scope.waves) if scope.waves else None,
        means=place("means", HEADS * PAIR),
        sizes=unwritten(first, (layers, HEADS, rows), jnp.float32, "sizes"),
    )
