"""Picking the value of the symbol that occurred."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped


def choose(symbol: Int[Array, "..."], values: Sequence[Shaped[Array, "..."]]) -> Array:
    """values[symbol], elementwise: quicker than a gather where there are few values."""
    chosen = values[0]
    for letter, value in enumerate(values[1:], start=1):
        chosen = jnp.where(symbol == letter, value, chosen)
    return chosen
