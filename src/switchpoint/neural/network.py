"""The contract of a network: tokens in, logits of the next symbol out, memory in between."""

import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from switchpoint import _checks
from switchpoint._batching import flat_batch, in_chunks
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.predictor import Predictor, check_capacity, check_state

Memory = TypeVar("Memory")


class Stream(eqx.Module, Generic[Memory]):
    """One stream of symbols as a network knows it."""

    memory: Memory
    """What the network remembers, with a batch axis of one."""
    log_probs: Float[Array, " alphabet"]
    """What it says of the next symbol."""
    grows: bool = eqx.field(static=True, default=False)
    """Whether a longer stream needs a larger memory."""


class Network(Predictor[Stream[Memory]], Generic[Memory]):
    """A predictor with learned weights: every leaf is an array, every option a static field.

    It reads tokens: first the start token, whose number is `alphabet`, then the symbols. After
    each it gives the logits of the next symbol, so the first prediction is learned as well.
    A subclass says how to `read`, and all else follows.
    """

    alphabet_size: eqx.AbstractVar[int]

    muon_matrices: ClassVar[Mapping[str, int]] = {}
    """Which leaves are weight matrices, for Muon, and how many lie side by side in each.

    Such as {"weight": 4} for the gates of an LSTM; 0 leaves a matrix to Adam, like all leaves that
    are not named. Every module inside a network may declare its own in this way, and a network may
    declare those of modules that do not: {"output.weight": 1} where `output` is a layer of
    Equinox.
    """

    @property
    def alphabet(self) -> int:
        return self.alphabet_size

    @property
    def memory_limit(self) -> int | None:
        """The most tokens that the memory ever has room for; None where it grows without end."""
        return 0

    @abstractmethod
    def memory(self, batch: int, room: int) -> Memory:
        """What `batch` sequences are remembered by before the start token.

        `room` is how many tokens there may be before the last `read`; networks whose memory
        has a fixed size have no use for it.
        """

    @abstractmethod
    def read(
        self, memory: Memory, tokens: Int[Array, "batch time"]
    ) -> tuple[Memory, Float[Array, "batch time alphabet"]]:
        """The memory after these tokens, and the logits of the symbol after each of them."""

    def with_room(self, memory: Memory) -> Memory:
        """The same memory, with room for one more token at least."""
        return memory

    def with_backend(self, backend: str) -> "Network[Memory]":
        """The same network, computed by another backend: `auto`, `fused` or `plain`.

        `fused` is for networks with kernels for GPUs, whose backend is a static field, so that
        `jit` compiles each backend by itself. Networks without kernels stay as they are.
        """
        check_backend(backend)
        return self

    def logits(self, symbols: Int[Array, "batch time"]) -> Float[Array, "batch time alphabet"]:
        """The logits of x_t given x_<t, for every t."""
        return self.read(self.memory(len(symbols), 0), tokens_before(symbols, self.alphabet))[1]

    def init(self, length: int | None = None) -> Stream[Memory]:
        room = _FIRST_ROOM if length is None else _checks.positive_int("length", length)
        limit = self.memory_limit
        return self._started(room if limit is None else limit, length is None and limit is None)

    def predict(self, state: Stream[Memory]) -> Float[Array, " alphabet"]:
        return state.log_probs

    def update(self, state: Stream[Memory], symbol: Any) -> Stream[Memory]:
        symbol = _checks.symbol(symbol, self.alphabet)
        check_state("predictions", state.log_probs.shape, (self.alphabet,))
        if isinstance(state.log_probs, jax.core.Tracer):
            check_capacity(state.grows)
        return self._updated(self.with_room(state.memory), jnp.asarray(symbol), state.grows)

    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        return self._log_probs(_checks.symbols(symbols, self.alphabet))

    @functools.partial(jax.jit, static_argnames=("room", "grows"))
    def _started(self, room: int, grows: bool) -> Stream[Memory]:
        return self._next(self.memory(1, room), jnp.asarray(self.alphabet), grows)

    @functools.partial(jax.jit, static_argnames="grows")
    def _updated(self, memory: Memory, symbol: Int[Array, ""], grows: bool) -> Stream[Memory]:
        return self._next(memory, symbol, grows)

    def _next(self, memory: Memory, token: Int[Array, ""], grows: bool) -> Stream[Memory]:
        memory, logits = self.read(memory, token.reshape(1, 1))
        return Stream(memory, jax.nn.log_softmax(logits[0, 0]), grows)

    def log_probs_of_known(
        self, symbols: Int[Array, "*batch time"]
    ) -> Float[Array, "*batch time symbol"]:
        """`log_probs` for use inside `jit`, of symbols that need no check."""
        flat, batch = flat_batch(symbols)
        logits = in_chunks(self.logits, flat, _NUMBERS_PER_SYMBOL)
        return jax.nn.log_softmax(logits).reshape(*batch, *logits.shape[1:])

    @jax.jit
    def _log_probs(self, symbols: Int[Array, "*batch time"]) -> Float[Array, "*batch time symbol"]:
        return self.log_probs_of_known(symbols)


def tokens_before(symbols: Int[Array, "batch time"], start: int) -> Int[Array, "batch time"]:
    """What has just been read when each symbol is to be predicted: `start`, x_0, x_1, ..."""
    first = jnp.full_like(symbols[:, :1], start)
    return jnp.concatenate([first, symbols[:, :-1]], axis=1)


_NUMBERS_PER_SYMBOL = 2**5  # of a network, a few kilobytes; the chunks are as large as helps
_FIRST_ROOM = 64  # a stream outside `jit` gets more as it needs it
