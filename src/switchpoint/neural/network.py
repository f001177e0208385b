"""The contract of a network: tokens in, logits of the next symbol out, memory in between."""

import copy
import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from switchpoint import _checks
from switchpoint._batching import flat_batch, in_chunks
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.predictor import Predictor, check_capacity, check_state

Memory = TypeVar("Memory")

_NUMBERS_PER_SYMBOL = 2**5  # what a network holds is more; this bounds chunks where it helps
_INITIAL_CAPACITY = 64  # of a stream outside `jit`, which grows as needed


class StreamState(eqx.Module, Generic[Memory]):
    """The state of a network on one stream of symbols."""

    memory: Memory
    """The network's memory, with a batch axis of one."""
    log_probs: Float[Array, " alphabet"]
    """The prediction of the next symbol."""
    grows: bool = eqx.field(static=True, default=False)
    """Whether a longer stream needs a larger memory."""


class Network(Predictor[StreamState[Memory]], Generic[Memory]):
    """A predictor with learned weights: every leaf is an array, every option a static field.

    It reads tokens: first the start token, whose number is `alphabet`, then the symbols. After
    each token it outputs the logits of the next symbol, so the first prediction is learned too.
    A subclass implements `memory` and `read`; everything else follows.
    """

    alphabet_size: eqx.AbstractVar[int]

    muon_matrices: ClassVar[Mapping[str, int]] = {}
    """The weight matrices among the leaves, and how many lie side by side in each, for Muon.

    For example {"weight": 4} for the gates of an LSTM. A count of 0 leaves a matrix to Adam, as
    are all leaves not named here. Every module inside a network may declare its own matrices, and
    a network may declare those of modules that do not: {"output.weight": 1} where `output` is an
    Equinox layer.
    """

    @property
    def alphabet(self) -> int:
        return self.alphabet_size

    @property
    def memory_limit(self) -> int | None:
        """The largest useful capacity, in tokens; None where memory grows with the stream."""
        return 0

    @abstractmethod
    def memory(self, batch: int, capacity: int) -> Memory:
        """The memory of `batch` sequences before the start token.

        `capacity` is the number of tokens it must hold before the last `read`; networks whose
        memory has a fixed size ignore it.
        """

    @abstractmethod
    def read(
        self, memory: Memory, tokens: Int[Array, "batch time"]
    ) -> tuple[Memory, Float[Array, "batch time alphabet"]]:
        """The memory after these tokens, and the logits of the symbol after each of them."""

    def grow(self, memory: Memory) -> Memory:
        """The same memory, with capacity for at least one more token."""
        return memory

    def with_backend(self, backend: str) -> "Network[Memory]":
        """The same network on another backend: `auto`, `fused` or `plain`.

        `fused` uses GPU kernels if the network has any. Such networks have a static field
        `backend`, so `jit` compiles once for each; others are returned unchanged.
        """
        check_backend(backend)
        if not hasattr(self, "backend"):
            return self
        network = copy.copy(self)
        object.__setattr__(network, "backend", backend)  # modules are frozen
        return network

    def logits(self, symbols: Int[Array, "batch time"]) -> Float[Array, "batch time alphabet"]:
        """The logits of x_t given x_<t, for every t."""
        return self.read(self.memory(len(symbols), 0), tokens_before(symbols, self.alphabet))[1]

    def init(self, length: int | None = None) -> StreamState[Memory]:
        capacity = _INITIAL_CAPACITY if length is None else _checks.positive_int("length", length)
        limit = self.memory_limit
        memory = self.memory(1, capacity if limit is None else limit)
        return self._next(memory, np.int32(self.alphabet), length is None and limit is None)

    def predict(self, state: StreamState[Memory]) -> Float[Array, " alphabet"]:
        return state.log_probs

    def update(self, state: StreamState[Memory], symbol: Any) -> StreamState[Memory]:
        symbol = _checks.symbol(symbol, self.alphabet)
        check_state("predictions", state.log_probs.shape, (self.alphabet,))
        if isinstance(state.log_probs, jax.core.Tracer):
            check_capacity(state.grows)
        return self._next(self.grow(state.memory), symbol, state.grows)

    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        return self.log_probs_unchecked(_checks.symbols(symbols, self.alphabet))

    @jax.jit
    def log_probs_unchecked(
        self, symbols: Int[Array, "*batch time"]
    ) -> Float[Array, "*batch time alphabet"]:
        """`log_probs` of symbols known to be valid."""
        flat, batch = flat_batch(symbols)
        logits = in_chunks(self.logits, flat, _NUMBERS_PER_SYMBOL)
        return jax.nn.log_softmax(logits).reshape(*batch, *logits.shape[1:])

    @functools.partial(jax.jit, static_argnames="grows")
    def _next(self, memory: Memory, token: Any, grows: bool) -> StreamState[Memory]:
        memory, logits = self.read(memory, jnp.reshape(token, (1, 1)))
        return StreamState(memory, jax.nn.log_softmax(logits[0, 0]), grows)


def tokens_before(symbols: Int[Array, "batch time"], start: int) -> Int[Array, "batch time"]:
    """The token read just before each symbol is predicted: `start`, x_0, x_1, ..."""
    first = jnp.full_like(symbols[:, :1], start)
    return jnp.concatenate([first, symbols[:, :-1]], axis=1)
