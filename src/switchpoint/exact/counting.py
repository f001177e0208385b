"""Counts that never overflow: the length of a stream, and the symbols in it."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from switchpoint.priors.ptw import trailing_zeros

_WRAP = 2**31  # one more than the largest int32


class Clock(eqx.Module):
    """The number of symbols seen, up to 2^62; `int(clock)` is its value."""

    low: Int[Array, "*streams"]
    """The last 31 bits."""
    high: Int[Array, "*streams"]

    @classmethod
    def start(cls) -> "Clock":
        """Zero symbols."""
        return cls(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def next(self) -> "Clock":
        """One more symbol."""
        low = (self.low + 1) & (_WRAP - 1)
        return Clock(low, self.high + (low == 0))

    def plus(self, more: Int[Array, "*times"]) -> "Clock":
        """The clock after each of these numbers of symbols, below 2^31."""
        low = self.low + more  # negative after an overflow
        return Clock(low & (_WRAP - 1), self.high + (low < 0))

    def trailing_zeros(self) -> Int[Array, "*times"]:
        """The number of trailing zero bits of the count, which must not be 0."""
        return jnp.where(self.low > 0, trailing_zeros(self.low), 31 + trailing_zeros(self.high))

    def bit(self, index: Int[Array, "*indices"]) -> Bool[Array, "*indices"]:
        """Whether binary digits of the count are 1; the last is number 0."""
        digits = jnp.where(index < 31, self.low, self.high)
        return (digits >> jnp.where(index < 31, index, index - 31)) & 1 == 1

    def since(self, start: Int[Array, "..."]) -> Int[Array, "..."]:
        """The number of symbols since a start, given by its last 31 bits."""
        return (self.low - start) & (_WRAP - 1)

    def __int__(self) -> int:
        return int(self.high) * _WRAP + int(self.low)


def select_symbol(symbol: Int[Array, "..."], values: Sequence[Shaped[Array, "..."]]) -> Array:
    """values[symbol], elementwise; faster than a gather where there are few values."""
    selected = values[0]
    for k, value in enumerate(values[1:], start=1):
        selected = jnp.where(symbol == k, value, selected)
    return selected
