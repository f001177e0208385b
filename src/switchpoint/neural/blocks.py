"""One layer of a Transformer."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint.neural.attention import attend
from switchpoint.neural.dense import Dense, fan_in_normal
from switchpoint.neural.positions import RelativePositions

WIDTH = 64
"""The width of a token inside the network, the paper's; the kernels have no other."""
HEADS = 8
"""How many heads share the width, the paper's number; the kernels have no other."""
SIZE = WIDTH // HEADS
"""The width of a head, the paper's."""

_WIDENING = 4


def check_width(width: int, heads: int, positions: str) -> None:
    """Raise a `ValueError` where heads cannot share the width, or sinusoids cannot fill it."""
    if width % heads:
        raise ValueError(f"width must be divisible by the {heads} heads, got {width}")
    if width % 2 and positions != "alibi":
        raise ValueError(
            f"width must be even for positions {positions!r}, which are pairs of a sine and a "
            f"cosine, got {width}"
        )


class Sight(eqx.Module):
    """What the queries of all layers have in common: which keys they see, and how far away."""

    first: Int[Array, ""]
    context: int | None = eqx.field(static=True)
    slopes: Float[Array, " heads"] | None
    waves: Float[Array, "keys waves"]


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
    """One layer: attention and a feed-forward network, each added to what it is given."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"projections": 3, "mixing": 1}

    before_attention: LayerNorm
    projections: Float[Array, "*layers width three_widths"]
    """To queries, keys and values."""
    relative: RelativePositions | None
    mixing: Float[Array, "*layers width width"]
    before_widening: LayerNorm
    widening: Dense
    narrowing: Dense

    def __init__(
        self, layers: int, width: int, heads: int, positions: str, key: PRNGKeyArray
    ) -> None:
        keys = jax.random.split(key, 5)
        shrink = (2 * layers) ** -0.5  # as many things are added up: their sum stays in bounds
        self.before_attention = LayerNorm(width)
        self.projections = fan_in_normal(keys[0], width, 3 * width)
        self.relative = None
        if positions == "relative":
            self.relative = RelativePositions(heads, width // heads, width, keys[1])
        self.mixing = fan_in_normal(keys[2], width, width) * shrink
        self.before_widening = LayerNorm(width)
        self.widening = Dense(width, _WIDENING * width, keys[3])
        narrowing = Dense(_WIDENING * width, width, keys[4])
        self.narrowing = jax.tree.map(lambda leaf: leaf * shrink, narrowing)

    def __call__(
        self,
        x: Float[Array, "batch time width"],
        keys: Float[Array, "batch room heads size"],
        values: Float[Array, "batch room heads size"],
        sight: Sight,
    ) -> tuple[
        Float[Array, "batch time width"],
        tuple[Float[Array, "batch room heads size"], Float[Array, "batch room heads size"]],
    ]:
        """What the layer makes of x, and the last of the keys and values, those of x added."""
        batch, time, _ = x.shape
        projected = self.before_attention(x) @ self.projections
        parts = projected.reshape(batch, time, 3, *keys.shape[2:])
        query, key, value = jnp.moveaxis(parts, 2, 0)
        key = jnp.concatenate([keys, key], axis=1)
        value = jnp.concatenate([values, value], axis=1)
        means = self._attended(query, key, value, sight)
        x = x + means.reshape(x.shape) @ self.mixing
        x = x + self.narrowing(jax.nn.relu(self.widening(self.before_widening(x))))
        return x, (key[:, time:], value[:, time:])

    # The long queries and keys are made again for the gradient: they are nine times as long.
    @partial(jax.checkpoint, prevent_cse=False)
    def _attended(
        self,
        query: Float[Array, "batch time heads size"],
        key: Float[Array, "batch seen heads size"],
        value: Float[Array, "batch seen heads size"],
        sight: Sight,
    ) -> Float[Array, "batch time heads size"]:
        if self.relative is not None:
            query, key = self.relative.lengthened(query, key, sight.waves)
        return attend(
            query, key, value, first=sight.first, context=sight.context, slopes=sight.slopes
        )
