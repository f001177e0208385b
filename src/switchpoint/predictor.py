"""The protocol that every predictor answers, exact or learned."""

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Float

State = TypeVar("State")


class Predictor(eqx.Module, Generic[State]):
    """A distribution of the next symbol given the symbols so far.

    One symbol at a time:

        state = predictor.init()
        predictor.predict(state)              # ln P(x_0 = k)
        state = predictor.update(state, 1)    # x_0 was 1
        predictor.predict(state)              # ln P(x_1 = k | x_0 = 1)

    A whole sequence, or a batch, at once: `predictor.log_probs(symbols)`. Both agree.
    """

    @property
    @abstractmethod
    def alphabet(self) -> int:
        """How many symbols there are: 0..alphabet-1."""

    @abstractmethod
    def init(self) -> State:
        """The state before the first symbol."""

    @abstractmethod
    def predict(self, state: State) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t) for the next symbol x_t."""

    @abstractmethod
    def update(self, state: State, symbol: Any) -> State:
        """The state after one more symbol."""

    @abstractmethod
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        """ln P(x_t = k | x_<t) for every t, t = 0 included; symbols are (..., time)."""
