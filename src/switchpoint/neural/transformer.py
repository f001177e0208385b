"""The Transformer: it attends to every token so far, or to the last few."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.blocks import HEADS, WIDTH, Block, LayerNorm, Sight, check_width
from switchpoint.neural.dense import Dense
from switchpoint.neural.kernels.backend import Backend, copy_with_backend, is_fused
from switchpoint.neural.kernels.layers import fused_layers
from switchpoint.neural.network import Network
from switchpoint.neural.positions import POSITIONS, alibi_slopes, sinusoids


class TransformerMemory(eqx.Module):
    """The keys and values of the last tokens, newest last; places that wait are in front."""

    keys: Float[Array, "layers batch room heads size"]
    """As the layers make them, positions not yet joined to them."""
    values: Float[Array, "layers batch room heads size"]
    count: Int[Array, ""]
    """How many tokens were read, remembered or not."""


class Transformer(Network[TransformerMemory]):
    """Layers of attention over the tokens so far, with layer norm before each block.

    `positions` is one of `sincos` (added to the tokens), `alibi` (a penalty for distance) and
    `relative` (Transformer-XL's). With a `context`, a token attends to itself and to the
    `context` - 1 tokens before it, in every layer. `heads` share the `width` of a token.
    """

    alphabet_size: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    positions: str = eqx.field(static=True)
    context: int | None = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    """What computes; see `with_backend`."""
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
        width: int = WIDTH,
        heads: int = HEADS,
    ) -> None:
        if positions not in POSITIONS:
            raise ValueError(f"positions must be one of {', '.join(POSITIONS)}, got {positions!r}")
        self.alphabet_size = _checks.positive_int("alphabet", alphabet)
        self.layers = _checks.positive_int("layers", layers)
        self.width = _checks.positive_int("width", width)
        self.heads = _checks.positive_int("heads", heads)
        check_width(self.width, self.heads, positions)
        self.positions = positions
        self.backend = "auto"
        self.context = None if context is None else _checks.positive_int("context", context)
        keys = jax.random.split(key, 3)
        self.embedding = jax.random.truncated_normal(
            keys[0], -2, 2, (self.alphabet + 1, self.width)
        )
        self.blocks = jax.vmap(
            lambda key: Block(self.layers, self.width, self.heads, positions, key)
        )(jax.random.split(keys[1], self.layers))
        self.before_output = LayerNorm(self.width)
        self.output = Dense(self.width, self.alphabet, keys[2])

    def with_backend(self, backend: str) -> "Transformer":
        return copy_with_backend(self, backend)

    @property
    def memory_limit(self) -> int | None:
        return None if self.context is None else self.context - 1

    def memory(self, batch: int, room: int) -> TransformerMemory:
        """An empty memory of the last `room` tokens: older ones are forgotten.

        With a `context` there is never room for more than it lets a token see. Room 0 serves
        sequences that are read at once.
        """
        size = self.width // self.heads
        shape = (self.layers, batch, self._useful(room), self.heads, size)
        empty = jnp.zeros(shape, self.embedding.dtype)
        return TransformerMemory(empty, empty, jnp.zeros((), jnp.int32))

    def read(
        self, memory: TransformerMemory, tokens: Int[Array, "batch time"]
    ) -> tuple[TransformerMemory, Float[Array, "batch time alphabet"]]:
        time, room = tokens.shape[1], memory.keys.shape[2]
        # A product, since its derivative is a product too, not a scatter.
        hot = jax.nn.one_hot(tokens, self.alphabet + 1)
        x = jnp.dot(hot, self.embedding, precision=lax.Precision.HIGHEST)
        times = jnp.arange(-room, time, dtype=jnp.int32)  # counted from the first of the tokens
        if self.positions == "sincos":
            x = x + sinusoids(memory.count + times[room:], self.width)
        has_kernels = room == 0 and (self.width, self.heads) == (WIDTH, HEADS)
        if has_kernels and is_fused(self.backend):
            x = fused_layers(self.blocks, x, self.positions, self.context)
            memory = TransformerMemory(memory.keys, memory.values, memory.count + time)
            return memory, self.output(self.before_output(x))
        sight = Sight(
            first=room - memory.count,
            context=self.context,
            slopes=alibi_slopes(self.heads) if self.positions == "alibi" else None,
            waves=sinusoids(times, self.width),
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
