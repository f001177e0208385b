"""The Transformer: it attends to every token so far, or to the last few."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from switchpoint import _checks
from switchpoint._settings import PositiveInt
from switchpoint.neural.attention import POSITIONS, alibi_slopes, sinusoids
from switchpoint.neural.blocks import (
    HEADS,
    WIDTH,
    AttentionContext,
    Block,
    LayerNorm,
    check_sizes,
    has_kernels,
)
from switchpoint.neural.dense import Dense
from switchpoint.neural.kernels.backend import Backend, is_fused
from switchpoint.neural.model import Model, Option, Recipe
from switchpoint.neural.network import Network, encoded


class TransformerMemory(eqx.Module):
    """A cache of the keys and values of the last tokens, newest last, empty slots first."""

    keys: Float[Array, "layers batch capacity heads size"]
    """Turned by their positions if these are rotary, otherwise without position terms."""
    values: Float[Array, "layers batch capacity heads size"]
    count: Int[Array, ""]
    """The number of tokens read, whether still in the cache or not."""


class Transformer(Network[TransformerMemory]):
    """Layers of attention over the tokens so far, with layer norm before each block.

    `positions` is one of `sincos` (added to the tokens), `alibi` (a penalty on distance),
    `relative` (as in Transformer-XL) and `rotary` (queries and keys turn with their position).
    With a `context`, a token attends to itself and to the `context` - 1 tokens before it, in every
    layer. `heads` must divide `width`.

    Its memory is the past keys and values: in every layer, a token after t others costs
    O(width (width + t)), and a sequence of n symbols O(n width (width + n)). After Vaswani et al.
    (2017).

    >>> import jax
    >>> import switchpoint as sp
    >>> sizes = {"layers": 1, "width": 8, "heads": 2}
    >>> network = sp.neural.Transformer(2, key=jax.random.key(0), **sizes)
    >>> network.log_probs([0, 1, 1]).shape
    (3, 2)
    """

    models: ClassVar[Mapping[str, Model]] = {
        "transformer": Model(
            {
                "layers": Option(16, "the number of layers"),
                "positions": Option(
                    "relative",
                    f"the encoding of positions: {', '.join(POSITIONS)}",
                    Literal[POSITIONS],
                ),
                "context": Option(
                    None,
                    "the number of past tokens that it sees; by default, all",
                    PositiveInt | None,
                ),
                "width": Option(WIDTH, "the size of a token, divided among the heads"),
                "heads": Option(HEADS, "the number of attention heads in a layer"),
            },
            Recipe(3e-3, 16_000, batch=32, warmup=500, b2=0.99),
            check=lambda _, options: check_sizes(
                options["width"], options["heads"], options["positions"]
            ),
        )
    }
    muon_matrices: ClassVar[Mapping[str, int]] = {"embedding": 0}  # a lookup table

    alphabet_size: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    positions: str = eqx.field(static=True)
    context: int | None = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    """See `with_backend`."""
    embedding: Float[Array, "tokens width"]
    blocks: Block
    """All layers in one: each array stacks them along its first axis."""
    final_norm: LayerNorm
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
        inputs: int | None = None,
    ) -> None:
        self.alphabet_size = _checks.positive_int("alphabet", alphabet)
        self.layers = _checks.positive_int("layers", layers)
        check_sizes(width, heads, positions)
        self.width, self.heads, self.positions = width, heads, positions
        self.backend = "auto"
        self.context = None if context is None else _checks.positive_int("context", context)
        keys = jax.random.split(key, 3)
        self.embedding = jax.random.truncated_normal(
            keys[0], -2, 2, (inputs or self.alphabet + 1, self.width)
        )
        self.blocks = jax.vmap(
            lambda key: Block(self.layers, self.width, self.heads, positions, key)
        )(jax.random.split(keys[1], self.layers))
        self.final_norm = LayerNorm(self.width)
        self.output = Dense(self.width, self.alphabet, keys[2])

    @property
    def memory_limit(self) -> int | None:
        return None if self.context is None else self.context - 1

    def memory(self, batch: int, capacity: int) -> TransformerMemory:
        """An empty cache of the last `capacity` tokens; older ones are dropped.

        With a `context`, no more than its tokens are kept. Capacity 0 suffices for sequences read
        in one call.
        """
        size = self.width // self.heads
        shape = (self.layers, batch, self._useful(capacity), self.heads, size)
        empty = jnp.zeros(shape, self.embedding.dtype)
        return TransformerMemory(empty, empty, jnp.zeros((), jnp.int32))

    def read(
        self, memory: TransformerMemory, tokens: Shaped[Array, "batch time *features"]
    ) -> tuple[TransformerMemory, Float[Array, "batch time alphabet"]]:
        capacity = memory.keys.shape[2]
        x = self._embed(memory, tokens)
        kernels_fit = capacity == 0 and has_kernels(self.width, self.heads, self.positions)
        if kernels_fit and is_fused(self.backend):
            # Imported here: Pallas is slow to import, and only GPUs need it.
            from switchpoint.neural.kernels.layers import fused_layers

            x = fused_layers(self.blocks, x, self.positions, self.context)
            cache = (memory.keys, memory.values)
        else:
            x, (cache, _) = self._layers(memory, x)
        logits = self.output(self.final_norm(x))
        return TransformerMemory(*cache, memory.count + tokens.shape[1]), logits

    def read_states(
        self, tokens: Shaped[Array, "batch time *features"]
    ) -> Float[Array, "batch time layers_and_embedding width"]:
        memory = self.memory(len(tokens), 0)
        x = self._embed(memory, tokens)
        _, (_, after) = self._layers(memory, x, keep=True)
        return jnp.moveaxis(jnp.concatenate([x[None], after]), 0, 2)

    def grow(self, memory: TransformerMemory, tokens: int = 1) -> TransformerMemory:
        """The same memory, with twice the capacity, or more, if these tokens would not fit.

        Unchanged inside `jit`, where shapes are fixed, and once tokens have been dropped, since
        new empty slots would be taken for them.
        """
        capacity = memory.keys.shape[2]
        if isinstance(memory.count, jax.core.Tracer) or memory.count > capacity:
            return memory
        wanted = capacity
        while wanted < int(memory.count) + tokens:
            wanted = max(1, 2 * wanted)
        more = self._useful(wanted) - capacity
        if not more:
            return memory
        keys, values = (
            jnp.pad(cached, ((0, 0), (0, 0), (more, 0), (0, 0), (0, 0)))
            for cached in (memory.keys, memory.values)
        )
        return TransformerMemory(keys, values, memory.count)

    def _embed(
        self, memory: TransformerMemory, tokens: Shaped[Array, "batch time *features"]
    ) -> Float[Array, "batch time width"]:
        vectors = encoded(tokens, self.alphabet + 1)
        x = jnp.dot(vectors, self.embedding, precision=lax.Precision.HIGHEST)
        if self.positions == "sincos":
            x = x + sinusoids(_times(memory, x), self.width)
        return x

    def _layers(
        self, memory: TransformerMemory, x: Float[Array, "batch time width"], keep: bool = False
    ) -> tuple[Float[Array, "batch time width"], Any]:
        """The output of the last layer; the cache, and with `keep` the output of every layer."""
        capacity, size = memory.keys.shape[2], self.width // self.heads
        rotary = self.positions == "rotary"
        context = AttentionContext(
            first=capacity - memory.count,
            context=self.context,
            slopes=alibi_slopes(self.heads) if self.positions == "alibi" else None,
            waves=sinusoids(jnp.arange(capacity + x.shape[1], dtype=jnp.int32), self.width),
            turns=sinusoids(_times(memory, x), size) if rotary else None,
        )

        def layer(x: Float[Array, "batch time width"], now: tuple[Block, Array, Array]) -> Any:
            block, keys, values = now
            x, cache = block(x, keys, values, context)
            return x, (cache, x if keep else None)

        return lax.scan(layer, x, (self.blocks, memory.keys, memory.values))

    def _useful(self, capacity: int) -> int:
        return capacity if self.context is None else min(capacity, self.context - 1)


def _times(memory: TransformerMemory, x: Float[Array, "batch time width"]) -> Int[Array, " time"]:
    """The positions of new tokens in their sequence."""
    return memory.count + jnp.arange(x.shape[1], dtype=jnp.int32)
