"""The interface of networks: tokens in, logits of the next symbol out, memory in between."""

import copy
import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from switchpoint import _checks
from switchpoint._batching import in_chunks
from switchpoint._labels import keeps_labels
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.neural.model import Model
from switchpoint.predictor import Predictor, check_capacity, check_state

Memory = TypeVar("Memory")

_NUMBERS_PER_SYMBOL = 2**5  # bounds the size of chunks; a network needs more
_INITIAL_CAPACITY = 64  # tokens of a stream outside `jit`, which grows as needed


class StreamState(eqx.Module, Generic[Memory]):
    """The state of a network on one stream of symbols."""

    memory: Memory
    """The network's memory, with a batch axis of one."""
    prediction: Float[Array, " outputs"]
    """The log probabilities of the next symbol, or the parameters of the next value's density."""
    grows: bool = eqx.field(static=True, default=False)
    """Whether a longer stream needs a larger memory."""


class Network(Predictor[StreamState[Memory]], Generic[Memory]):
    """A predictor with learned weights: every leaf is an array, every option a static field.

    It reads tokens: first the start token, whose number is `alphabet`, then the symbols. After
    each token it outputs the logits of the next symbol, so the first prediction is learned too.
    A subclass implements `memory` and `read`; everything else follows. See `DensityNetwork` for
    real values, whose tokens are vectors.

    >>> import equinox as eqx
    >>> import jax.numpy as jnp
    >>> import switchpoint as sp
    >>> class Bigram(sp.neural.Network):
    ...     alphabet_size: int = eqx.field(static=True)
    ...     table: jnp.ndarray  # (alphabet + 1, alphabet): the logits after each token
    ...
    ...     def memory(self, batch, capacity):
    ...         return ()
    ...
    ...     def read(self, memory, tokens):
    ...         return memory, self.table[tokens]
    >>> Bigram(2, jnp.zeros((3, 2))).log_probs([0, 1, 1]).shape
    (3, 2)
    """

    alphabet_size: eqx.AbstractVar[int | None]

    models: ClassVar[Mapping[str, Model]] = {}
    """The names of the class for commands, configurations and files.

    A class in `switchpoint.neural.networks` with a name is complete: the options and the recipe of
    the name are those of `switchpoint train`.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {}
    """The weight matrices among the leaves, and the number side by side in each, for Muon.

    For example {"weight": 4} for the gates of an LSTM. A count of 0 leaves a matrix to Adam, as
    are all leaves not named here. Every module inside a network may declare its own matrices, and
    a network may declare those of modules that do not: {"output.weight": 1} where `output` is an
    Equinox layer.
    """

    @property
    def alphabet(self) -> Any:
        """The number of symbols, which are 0..alphabet-1; None for real values."""
        return self.alphabet_size

    @property
    def outputs(self) -> int:
        """The number of logits after each token."""
        return self.alphabet

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

    def grow(self, memory: Memory, tokens: int = 1) -> Memory:
        """The same memory, with capacity for at least this many more tokens."""
        del tokens
        return memory

    def with_backend(self, backend: str) -> "Network[Memory]":
        """The same network on another backend: `auto`, `fused` or `plain`.

        `fused` uses GPU kernels if the network has any. Such networks have a static field
        `backend`, so `jit` compiles once for each; other networks are returned unchanged.
        """
        check_backend(backend)
        if not hasattr(self, "backend"):
            return self
        network = copy.copy(self)
        object.__setattr__(network, "backend", backend)  # modules are frozen
        return network

    def start_token(self) -> Any:
        """The token before the first observation."""
        return np.int32(self.alphabet)

    def to_tokens(self, values: Any) -> Any:
        """The tokens of observations; symbols are their own tokens."""
        return values

    def tokens_before(self, values: Shaped[Array, "batch time *event"]) -> Array:
        """The token read just before each observation is predicted: the start, x_0, x_1, ..."""
        return self._with_start(self.to_tokens(values))[:, :-1]

    def logits(self, values: Shaped[Array, "batch time *event"]) -> Float[Array, "batch time _"]:
        """The logits of x_t given x_<t, for every t."""
        return self._read(self.memory(len(values), 0), self.tokens_before(values))[1]

    def states(self, values: Any) -> Any:
        """The state after each observation: the network's memory of x_0..x_t.

        For every t it is the memory of `update`'s state after x_t. Leaves have the axes (*batch,
        time) in front, followed by

        - (hidden,) for an RNN or GRU, and for an LSTM in each of `output` and `cell`;
        - (layers, 2, state) for an LRU, and for Mamba in `state` (layers, channels, state);
        - (depth, width) for a `stack`, top first, beside the `inner` state of its cell;
        - (order,) and () for a Markov and a memoryless network: the last symbols, the position.

        The memory of a Transformer is the keys and values of all tokens, so its state is the
        residual stream instead: (*batch, time, layers + 1, width), the embedding of x_t and then
        the output of each layer. All are computed by the plain backend.
        """
        checked = self._checked(values)
        shape = checked.shape[: checked.ndim - len(self.event_shape)]
        states = self._states(checked.reshape(-1, shape[-1], *self.event_shape))
        return jax.tree.map(lambda leaf: leaf.reshape(*shape[:-1], *leaf.shape[1:]), states)

    def read_states(self, tokens: Shaped[Array, "batch time *features"]) -> Any:
        """The state after each token of whole sequences, by default the memory.

        Leaves are (batch, time, ...), wherever the axis of the batch is in the memory.
        """
        network = self.with_backend("plain")
        capacity = tokens.shape[1] if self.memory_limit is None else self.memory_limit

        def step(memory: Memory, token: Shaped[Array, "batch *features"]) -> tuple[Memory, Memory]:
            memory, _ = network._read(memory, token[:, None])
            return memory, memory

        def batch_first(one: Any, two: Any, leaf: Shaped[Array, "time ..."]) -> Array:
            axes = [
                i
                for i, sizes in enumerate(zip(one.shape, two.shape, strict=True))
                if len(set(sizes)) > 1
            ]
            if not axes:  # shared by all sequences
                return jnp.broadcast_to(leaf, (len(tokens), *leaf.shape))
            return jnp.moveaxis(leaf, axes[0] + 1, 0)

        one, two = (jax.eval_shape(lambda n=n: network.memory(n, capacity)) for n in (1, 2))
        first = network.memory(len(tokens), capacity)
        _, states = jax.lax.scan(step, first, jnp.swapaxes(tokens, 0, 1))
        return jax.tree.map(batch_first, one, two, states)

    def observed(self, outputs: Float[Array, "*batch alphabet"], values: Any) -> Array:
        """The log probability, or the log density, of each observation, by the outputs for it."""
        # A product, because its derivative is no scatter.
        hot = jax.nn.one_hot(values, outputs.shape[-1])
        return jnp.sum(hot * jax.nn.log_softmax(outputs), axis=-1)

    def init(self, length: int | None = None) -> StreamState[Memory]:
        capacity = _INITIAL_CAPACITY if length is None else _checks.positive_int("length", length)
        limit = self.memory_limit
        memory = self.memory(1, capacity if limit is None else limit)
        return self._next(memory, self.start_token(), length is None and limit is None)

    def predict(self, state: StreamState[Memory]) -> Any:
        return state.prediction

    def update(self, state: StreamState[Memory], value: Any) -> StreamState[Memory]:
        token = self.to_tokens(self._checked_one(value))
        if self.alphabet is not None:
            check_state("predictions", state.prediction.shape, (self.alphabet,))
        if isinstance(state.prediction, jax.core.Tracer):
            check_capacity(state.grows)
        return self._next(self.grow(state.memory), token, state.grows)

    @keeps_labels("log_density")
    def extend(
        self, state: StreamState[Memory], values: Any
    ) -> tuple[StreamState[Memory], Float[Array, "time *alphabet"]]:
        checked = self._checked(values)
        if checked.ndim != 1 + len(self.event_shape):
            raise ValueError(
                f"values must be a chunk of one stream, got shape {tuple(checked.shape)}: for a "
                "batch of states, use jax.vmap(predictor.extend)"
            )
        if isinstance(state.prediction, jax.core.Tracer):
            check_capacity(state.grows)
        memory = self.grow(state.memory, len(checked))
        return self._extend(memory, state.prediction, checked, state.grows)

    @functools.partial(jax.jit, static_argnames="grows")
    def _extend(
        self, memory: Memory, first: Float[Array, " outputs"], values: Array, grows: bool
    ) -> tuple[StreamState[Memory], Float[Array, "time *alphabet"]]:
        memory, logits = self._read(memory, self.to_tokens(values)[None])
        outputs = jnp.concatenate([first[None], logits[0, :-1]])
        state = StreamState(memory, self._prediction(logits[0, -1]), grows)
        if self.alphabet is not None:
            return state, jax.nn.log_softmax(outputs)
        return state, self.observed(outputs, values)

    @keeps_labels("log_density")
    def log_density(self, values: Any) -> Float[Array, "*batch time"]:
        """ln p(x_t | x_<t) for every t, t = 0 included; for symbols ln P(x_t | x_<t)."""
        return self.log_density_unchecked(self._checked(values))

    @jax.jit
    def log_density_unchecked(self, values: Shaped[Array, "..."]) -> Float[Array, "*batch time"]:
        """`log_density` of values known to be valid."""
        *batch, time = values.shape[: values.ndim - len(self.event_shape)]
        flat = values.reshape(-1, time, *self.event_shape)
        log_density = in_chunks(
            lambda rows: self.observed(self.logits(rows), rows), flat, _NUMBERS_PER_SYMBOL
        )
        return log_density.reshape(*batch, time)

    @keeps_labels("log_probs")
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        return self.log_probs_unchecked(_checks.symbols(symbols, self.alphabet))

    @jax.jit
    def log_probs_unchecked(
        self, symbols: Int[Array, "*batch time"]
    ) -> Float[Array, "*batch time alphabet"]:
        """`log_probs` of symbols known to be valid."""
        flat = symbols.reshape(-1, symbols.shape[-1])
        logits = in_chunks(self.logits, flat, _NUMBERS_PER_SYMBOL)
        return jax.nn.log_softmax(logits).reshape(*symbols.shape, -1)

    @functools.partial(jax.jit, static_argnames="grows")
    def _next(self, memory: Memory, token: Any, grows: bool) -> StreamState[Memory]:
        memory, logits = self._read(memory, jnp.asarray(token)[None, None])
        return StreamState(memory, self._prediction(logits[0, 0]), grows)

    @jax.jit
    def _states(self, values: Shaped[Array, "flat time *event"]) -> Any:
        states = self.read_states(self._with_start(self.to_tokens(values)))
        return jax.tree.map(lambda leaf: leaf[:, 1:], states)

    def _with_start(self, tokens: Shaped[Array, "batch time *features"]) -> Array:
        first = jnp.broadcast_to(jnp.asarray(self.start_token(), tokens.dtype), tokens[:, :1].shape)
        return jnp.concatenate([first, tokens], axis=1)

    def _read(self, memory: Memory, tokens: Shaped[Array, "batch time *features"]) -> Any:
        """`read`, with its results checked, since users write subclasses."""
        results = self.read(memory, tokens)
        expected = (*tokens.shape[:2], self.outputs)
        shape = jnp.shape(results[1]) if isinstance(results, tuple) and len(results) == 2 else None
        if shape != expected:
            raise ValueError(
                f"{type(self).__name__}.read must return the memory and logits of shape (batch, "
                f"time, outputs), {expected} here, got "
                f"{_checks.shown(results) if shape is None else f'logits of shape {shape}'}"
            )
        return results

    def _prediction(self, outputs: Float[Array, " outputs"]) -> Float[Array, " outputs"]:
        return jax.nn.log_softmax(outputs)

    def _checked(self, values: Any) -> Array:
        return _checks.symbols(values, self.alphabet)

    def _checked_one(self, value: Any) -> Any:
        return _checks.symbol(value, self.alphabet)


def encoded(tokens: Any, kinds: int) -> Float[Array, "*batch inputs"]:
    """Tokens as vectors: one-hot, unless they are vectors already."""
    # With a product, not a lookup, the derivative is a product too rather than a scatter.
    return jax.nn.one_hot(tokens, kinds) if jnp.issubdtype(tokens.dtype, jnp.integer) else tokens
