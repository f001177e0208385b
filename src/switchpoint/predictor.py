"""The interface of every predictor, exact or learned."""

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

State = TypeVar("State")


def check_capacity(grows: bool) -> None:
    """Raise a `ValueError` if a state that would have to grow is updated inside `jit`."""
    if grows:
        raise ValueError(
            "inside jit a state cannot grow: start with init(length=n), where n is the maximal "
            "number of symbols in the stream"
        )


def check_state(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise a `ValueError` if a state was made by another predictor."""
    if found != expected:
        raise ValueError(
            f"state must be one that this predictor's init() or update() returned: its {name} "
            f"have shape {found}, not {expected}"
        )


class Predictor(eqx.Module, Generic[State]):
    """Predicts the distribution of the next symbol given the symbols so far.

    One symbol at a time, with `predict` for ln P(x_t = k | x_<t):

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> predictor = sp.KT()
        >>> state = predictor.init()
        >>> np.exp(predictor.predict(state)).round(2).tolist()
        [0.5, 0.5]
        >>> state = predictor.update(state, 1)  # x_0 was 1
        >>> np.exp(predictor.predict(state)).round(2).tolist()
        [0.25, 0.75]

    For whole sequences or batches, `predictor.log_probs(symbols)`. Both forms agree, and so does
    `state, log_probs = predictor.extend(state, symbols)`, which goes on from a state with a chunk.
    `switchpoint.Stream(predictor)` keeps the state on the host, and is the fastest way to go on
    with one symbol at a time.
    """

    @property
    @abstractmethod
    def alphabet(self) -> int:
        """The number of symbols, which are 0..alphabet-1."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of an observation: () or (columns,)."""
        return ()

    @abstractmethod
    def init(self, length: int | None = None) -> State:
        """The state before the first symbol of a stream.

        `length` is the maximal number of symbols in the stream. Outside `jit` it is optional, since
        states grow as needed. Inside `jit` arrays cannot grow, so predictors whose state depends
        on the length require it.
        """

    @abstractmethod
    def predict(self, state: State) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t) for the next symbol x_t."""

    @abstractmethod
    def update(self, state: State, symbol: Any) -> State:
        """The state after one more symbol."""

    def extend(self, state: State, values: Any) -> tuple[State, Float[Array, "time *alphabet"]]:
        """The state after a chunk, and ln P(x_t = k | x_<t) for each x_t in it.

        Where there is no alphabet, ln p(x_t | x_<t), which is 0 if x_t is missing. A sequence that
        is cut anywhere gives what the whole gives. For a batch of states, `jax.vmap` it. By
        default a loop of `update` in one compiled program, so that a state that would have to
        grow needs `init(length=n)`.
        """
        return _extend(self, state, jnp.asarray(values))

    @abstractmethod
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        """ln P(x_t = k | x_<t) for every t, t = 0 included; symbols are (..., time)."""


@jax.jit
def _extend(predictor: Predictor[Any], state: Any, values: Array) -> tuple[Any, Array]:
    def step(state: Any, x: Array) -> tuple[Any, Array]:
        prediction = predictor.predict(state)
        if hasattr(prediction, "log_density"):
            prediction = jnp.where(jnp.isnan(x).all(), 0.0, prediction.log_density(x))
        return predictor.update(state, x), prediction

    return jax.lax.scan(step, state, values)
