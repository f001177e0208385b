"""One layer of a Transformer."""

from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.attention import POSITIONS, RelativePositions, attend, rotated
from switchpoint.neural.dense import Dense, fan_in_normal

WIDTH = 64
"""The width of a token inside the network, as in the paper; the only one with kernels."""
HEADS = 8
"""The number of heads, as in the paper; the only one with kernels."""
SIZE = WIDTH // HEADS
"""The width of a head, as in the paper."""

_MLP_RATIO = 4


def check_sizes(width: int, heads: int, positions: str) -> None:
    """Raise a `ValueError` unless heads divide the width and the positions fit into it."""
    _checks.positive_int("width", width)
    _checks.positive_int("heads", heads)
    _checks.one_of("positions", positions, POSITIONS)
    if width % heads:
        raise ValueError(f"width must be divisible by the {heads} heads, got {width}")
    if width % 2 and positions != "alibi":
        raise ValueError(
            f"width must be even for positions {positions!r}, which are pairs of a sine and a "
            f"cosine, got {width}"
        )
    if width // heads % 2 and positions == "rotary":
        raise ValueError(
            "width must be an even number for each head with positions 'rotary', which turn pairs "
            f"of numbers, got {width} for {heads} heads"
        )


def has_kernels(width: int, heads: int, positions: str) -> bool:
    """Whether there are GPU kernels for layers of these sizes, with these positions."""
    return (width, heads) == (WIDTH, HEADS) and positions != "rotary"


class AttentionContext(eqx.Module):
    """Inputs of attention besides queries, keys and values, the same for all layers."""

    first: Int[Array, ""]
    """The index of the first key that is not empty."""
    context: int | None = eqx.field(static=True)
    slopes: Float[Array, " heads"] | None
    waves: Float[Array, "keys waves"]
    """The sinusoids of the distances 0, 1, ... between queries and keys."""
    turns: Float[Array, "time size"] | None
    """The sinusoids of the positions of the tokens, by which rotary positions turn."""


class LayerNorm(eqx.Module):
    """x with mean 0 and variance 1, then scaled and shifted."""

    scale: Float[Array, "*layers width"]
    shift: Float[Array, "*layers width"]

    def __init__(self, width: int) -> None:
        self.scale = jnp.ones(width)
        self.shift = jnp.zeros(width)

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        return centred * lax.rsqrt(variance + 1e-5) * self.scale + self.shift


class Block(eqx.Module):
    """One layer: attention and an MLP, each with a residual connection and layer norm before it."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"qkv": 3, "out_proj": 1}

    ln1: LayerNorm
    qkv: Float[Array, "*layers width three_widths"]
    relative: RelativePositions | None
    out_proj: Float[Array, "*layers width width"]
    ln2: LayerNorm
    mlp_in: Dense
    mlp_out: Dense

    def __init__(
        self, layers: int, width: int, heads: int, positions: str, key: PRNGKeyArray
    ) -> None:
        keys = jax.random.split(key, 5)
        shrink = (2 * layers) ** -0.5  # keeps the sum of all residual branches bounded
        self.ln1 = LayerNorm(width)
        self.qkv = fan_in_normal(keys[0], width, 3 * width)
        self.relative = None
        if positions == "relative":
            self.relative = RelativePositions(heads, width // heads, width, keys[1])
        self.out_proj = fan_in_normal(keys[2], width, width) * shrink
        self.ln2 = LayerNorm(width)
        self.mlp_in = Dense(width, _MLP_RATIO * width, keys[3])
        mlp_out = Dense(_MLP_RATIO * width, width, keys[4])
        self.mlp_out = jax.tree.map(lambda leaf: leaf * shrink, mlp_out)

    def __call__(
        self,
        x: Float[Array, "batch time width"],
        keys: Float[Array, "batch capacity heads size"],
        values: Float[Array, "batch capacity heads size"],
        context: AttentionContext,
    ) -> tuple[Float[Array, "batch time width"], tuple[Array, Array]]:
        """The output of the layer, and the cached keys and values with those of x appended."""
        batch, time, _ = x.shape
        projected = (self.ln1(x) @ self.qkv).reshape(batch, time, 3, *keys.shape[2:])
        query, key, value = jnp.moveaxis(projected, 2, 0)
        if context.turns is not None:
            query, key = rotated(query, context.turns), rotated(key, context.turns)
        key = jnp.concatenate([keys, key], axis=1)
        value = jnp.concatenate([values, value], axis=1)
        relative = None
        if self.relative is not None:
            relative = self.relative.scores(query, context.waves)
            query = query + self.relative.content_bias
        attended = attend(
            query,
            key,
            value,
            first=context.first,
            context=context.context,
            slopes=context.slopes,
            relative=relative,
        )
        x = x + attended.reshape(x.shape) @ self.out_proj
        x = x + self.mlp_out(jax.nn.relu(self.mlp_in(self.ln2(x))))
        return x, (key[:, time:], value[:, time:])
