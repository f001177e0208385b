"""Sums and sizes that all kernels have in common."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float


def dot(left: Any, right: Any) -> Any:
    """The product of two tiles of narrow numbers, summed up in float32."""
    return jnp.dot(left, right, preferred_element_type=jnp.float32)


def product(
    left: Float[Array, "*rows left"], right: Float[Array, "*rows right"]
) -> Float[Array, "left right"]:
    """The sum over all rows of outer products, by XLA."""
    flat_left, flat_right = (each.reshape(-1, each.shape[-1]) for each in (left, right))
    return jnp.dot(flat_left.T, flat_right, preferred_element_type=jnp.float32)


def largest(values: Float[Array, "..."]) -> Float[Array, ""]:
    """The size of the largest of them, or the least number that can be divided by.

    Derivatives are proportional to those they come from: divided by it they fit in few bits.
    """
    return jnp.maximum(jnp.max(jnp.abs(values)), jnp.finfo(jnp.float32).tiny)


def largest_divisor(size: int, most: int) -> int:
    """The largest divisor of `size` among `most`, a power of two, and its halves."""
    while size % most:
        most //= 2
    return most
