"""Counting without end: the length of a stream, and the symbols in it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int

from switchpoint.priors.ptw import trailing_zeros

_WRAP = 2**31  # where an int32 ends
_LARGEST_COUNT = 2**30


class Clock(eqx.Module):
    """How many symbols were seen: up to 2^62, which `int(clock)` gives."""

    low: Int[Array, "*streams"]
    """The last 31 bits."""
    high: Int[Array, "*streams"]

    @classmethod
    def start(cls) -> "Clock":
        """Before the first symbol."""
        return cls(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def next(self) -> "Clock":
        """After one more symbol."""
        low = (self.low + 1) & (_WRAP - 1)
        return Clock(low, self.high + (low == 0))

    def trailing_zeros(self) -> Int[Array, ""]:
        """How many zero bits end the number of symbols, which must not be 0."""
        return jnp.where(self.low > 0, trailing_zeros(self.low), 31 + trailing_zeros(self.high))

    def since(self, start: Int[Array, "..."]) -> Int[Array, "..."]:
        """Symbols since a start, whose last 31 bits these are."""
        return (self.low - start) & (_WRAP - 1)

    def __int__(self) -> int:
        return int(self.high) * _WRAP + int(self.low)


def count_symbol(
    counts: Int[Array, "*rows alphabet"], symbol: Int[ArrayLike, ""]
) -> Int[Array, "*rows alphabet"]:
    """Counts with one more of `symbol`; rows that grow too large for an int32 are halved."""
    counts = counts.at[..., symbol].add(1)
    full = counts[..., symbol] >= _LARGEST_COUNT
    return jnp.where(full[..., None], counts // 2, counts)
