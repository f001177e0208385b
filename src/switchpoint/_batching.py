"""Batches of any shape, processed in chunks of bounded size."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Shaped

Rows = TypeVar("Rows")
Result = TypeVar("Result")


def flat_batch(
    values: Shaped[Array, "*batch time"],
) -> tuple[Shaped[Array, "flat time"], tuple[int, ...]]:
    """Sequences with a single batch axis, and their original batch shape."""
    return values.reshape(-1, values.shape[-1]), values.shape[:-1]


def in_chunks(
    function: Callable[[Rows], Result], rows: Rows, numbers_per_symbol: int = 1
) -> Result:
    """`function` applied to a bounded number of rows at a time, with the results concatenated.

    This keeps the working set within a CPU's caches and bounds memory for any batch. Rows are an
    array of (rows, time), or a pytree that has one among its leaves. `numbers_per_symbol` is
    roughly how many numbers the function stores per symbol.
    """
    leaves: list[Any] = jax.tree.leaves(rows)
    count, time = max((leaf.shape[:2] for leaf in leaves if leaf.ndim > 1), default=(0, 1))
    elements = (2**18 if jax.default_backend() == "cpu" else 2**24) // numbers_per_symbol
    chunks = -(-count // max(1, elements // time))
    if chunks <= 1:
        return function(rows)
    size = -(-count // chunks)

    def cut(leaf: Array) -> Array:
        padded = jnp.pad(leaf, ((0, chunks * size - count), *((0, 0),) * (leaf.ndim - 1)))
        return padded.reshape(chunks, size, *leaf.shape[1:])

    results = lax.map(function, jax.tree.map(cut, rows))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], results)
