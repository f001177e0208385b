"""Batches of any shape, in pieces of a bounded size."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

Result = TypeVar("Result")


def flat_batch(
    symbols: Int[Array, "*batch time"],
) -> tuple[Int[Array, "flat time"], tuple[int, ...]]:
    """Symbols with one batch axis, and the batch shape they had."""
    return symbols.reshape(-1, symbols.shape[-1]), symbols.shape[:-1]


def in_chunks(
    function: Callable[[Int[Array, "chunk time"]], Result],
    rows: Int[Array, "flat time"],
    numbers_per_symbol: int = 1,
) -> Result:
    """`function` of a bounded number of rows at a time, its results put together again.

    Keeps the work of a CPU inside its caches, and the memory bounded, whatever the batch.
    `numbers_per_symbol` is about how many numbers the function has to hold for each.
    """
    count, time = rows.shape
    elements = (2**18 if jax.default_backend() == "cpu" else 2**24) // numbers_per_symbol
    chunks = -(-count // max(1, elements // time))
    if chunks <= 1:
        return function(rows)
    size = -(-count // chunks)
    padded = jnp.pad(rows, ((0, chunks * size - count), (0, 0)))
    results = lax.map(function, padded.reshape(chunks, size, time))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], results)
