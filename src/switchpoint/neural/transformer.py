"""The Transformer: it attends to every token so far, or to the last few."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.attention import attend
from switchpoint.neural.dense import Dense, fan_in_normal
from switchpoint.neural.network import Network
from switchpoint.neural.positions import POSITIONS, RelativePositions, alibi_slopes, sinusoids

WIDTH = 64
"""The width of a token inside the network, the paper's."""
HEADS = 8
"""How many heads share the width, the paper's number."""

_SIZE = WIDTH // HEADS
_WIDENING = 4


class TransformerMemory(eqx.Module):
    """The keys and values of the last tokens, newest last; places that wait are in front."""

    keys: Float[Array, "layers batch room heads size"]
    """As the layers make them, positions not yet joined to them."""
    values: Float[Array, "layers batch room heads size"]
    count: Int[Array, ""]
    """How many tokens were read, remembered or not."""


class _Sight(eqx.Module):
    """What the queries of all layers have in common: which keys they see, and how far away."""

    first: Int[Array, ""]
    context: int | None = eqx.field(static=True)
    slopes: Float[Array, " heads"] | None
    waves: Float[Array, "keys waves"]


class LayerNorm(eqx.Module):
    """x with mean 0 and variance 1, then scaled and shifted."""

    scale: Float[Array, "*layers width"]
    shift: Float[Array, "*layers width"]

    def __init__(self) -> None:
        self.scale = jnp.ones(WIDTH)
        self.shift = jnp.zeros(WIDTH)

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        return centred * lax.rsqrt(variance + 1e-5) * self.scale + self.shift


class Block(eqx.Module):
    """One layer: attention and a feed-forward network, each added to what it is given."""

    before_attention: LayerNorm
    projections: Float[Array, "*layers width three_widths"]
    """To queries, keys and values."""
    relative: RelativePositions | None
    mixing: Float[Array, "*layers width width"]
    before_widening: LayerNorm
    widening: Dense
    narrowing: Dense

    def __init__(self, layers: int, positions: str, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 5)
        shrink = (2 * layers) ** -0.5  # as many things are added up: their sum stays in bounds
        self.before_attention = LayerNorm()
        self.projections = fan_in_normal(keys[0], WIDTH, 3 * WIDTH)
        self.relative = (
            RelativePositions(HEADS, _SIZE, WIDTH, keys[1]) if positions == "relative" else None
        )
        self.mixing = fan_in_normal(keys[2], WIDTH, WIDTH) * shrink
        self.before_widening = LayerNorm()
        self.widening = Dense(WIDTH, _WIDENING * WIDTH, keys[3])
        narrowing = Dense(_WIDENING * WIDTH, WIDTH, keys[4])
        self.narrowing = jax.tree.map(lambda leaf: leaf * shrink, narrowing)

    def __call__(
        self,
        x: Float[Array, "batch time width"],
        keys: Float[Array, "batch room heads size"],
        values: Float[Array, "batch room heads size"],
        sight: _Sight,
    ) -> tuple[
        Float[Array, "batch time width"],
        tuple[Float[Array, "batch room heads size"], Float[Array, "batch room heads size"]],
    ]:
        """What the layer makes of x, and the last of the keys and values, those of x added."""
        batch, time, _ = x.shape
        projected = self.before_attention(x) @ self.projections
        query, key, value = jnp.moveaxis(projected.reshape(batch, time, 3, HEADS, _SIZE), 2, 0)
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
        sight: _Sight,
    ) -> Float[Array, "batch time heads size"]:
        if self.relative is not None:
            query, key = self.relative.lengthened(query, key, sight.waves)
        return attend(
            query, key, value, first=sight.first, context=sight.context, slopes=sight.slopes
        )


class Transformer(Network[TransformerMemory]):
    """Layers of attention over the tokens so far, with layer norm before each block.

    `positions` is one of `sincos` (added to the tokens), `alibi` (a penalty for distance) and
    `relative` (Transformer-XL's). With a `context`, a token attends to itself and to the
    `context` - 1 tokens before it, in every layer.
    """

    alphabet_size: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)
    positions: str = eqx.field(static=True)
    context: int | None = eqx.field(static=True)
    embedding: Float[Array, "tokens width"]
    blocks: Block
    """All layers in one: each array has them along its first axis."""
    before_output: LayerNorm
    output: Dense

    def __init__(
        self,
        alphabet: int,
        *,
        key: PRNGKeyArray,
        layers: int = 16,
        positions: str = "relative",
        context: int | None = None,
    ) -> None:
        if positions not in POSITIONS:
            raise ValueError(f"positions must be one of {', '.join(POSITIONS)}, got {positions!r}")
        self.alphabet_size = _checks.positive_int("alphabet", alphabet)
        self.layers = _checks.positive_int("layers", layers)
        self.positions = positions
        self.context = None if context is None else _checks.positive_int("context", context)
        keys = jax.random.split(key, 3)
        self.embedding = jax.random.truncated_normal(keys[0], -2, 2, (self.alphabet + 1, WIDTH))
        self.blocks = jax.vmap(lambda key: Block(self.layers, positions, key))(
            jax.random.split(keys[1], self.layers)
        )
        self.before_output = LayerNorm()
        self.output = Dense(WIDTH, self.alphabet, keys[2])

    def memory(self, batch: int, room: int) -> TransformerMemory:
        """An empty memory of the last `room` tokens: older ones are forgotten.

        With a `context` there is never room for more than it lets a token see. Room 0 serves
        sequences that are read at once.
        """
        shape = (self.layers, batch, self._useful(room), HEADS, _SIZE)
        empty = jnp.zeros(shape, self.embedding.dtype)
        return TransformerMemory(empty, empty, jnp.zeros((), jnp.int32))

    def read(
        self, memory: TransformerMemory, tokens: Int[Array, "batch time"]
    ) -> tuple[TransformerMemory, Float[Array, "batch time alphabet"]]:
        time, room = tokens.shape[1], memory.keys.shape[2]
        x = self.embedding[tokens]
        times = jnp.arange(-room, time, dtype=jnp.int32)  # counted from the first of the tokens
        if self.positions == "sincos":
            x = x + sinusoids(memory.count + times[room:], WIDTH)
        sight = _Sight(
            first=room - memory.count,
            context=self.context,
            slopes=alibi_slopes(HEADS) if self.positions == "alibi" else None,
            waves=sinusoids(times, WIDTH),
        )
        x, (keys, values) = lax.scan(
            lambda x, layer: layer[0](x, *layer[1:], sight),
            x,
            (self.blocks, memory.keys, memory.values),
        )
        logits = self.output(self.before_output(x))
        return TransformerMemory(keys, values, memory.count + time), logits

    def with_room(self, memory: TransformerMemory) -> TransformerMemory:
        """The same memory, with twice the room when it has just become full.

        Not inside `jit`, where shapes are fixed; nor where tokens were forgotten already, whose
        places would seem to be filled.
        """
        room = memory.keys.shape[2]
        if isinstance(memory.count, jax.core.Tracer) or memory.count != room:
            return memory
        more = self._useful(max(1, 2 * room)) - room
        keys, values = (
            jnp.pad(kept, ((0, 0), (0, 0), (more, 0), (0, 0), (0, 0)))
            for kept in (memory.keys, memory.values)
        )
        return TransformerMemory(keys, values, memory.count)

    def _useful(self, room: int) -> int:
        return room if self.context is None else min(room, self.context - 1)
