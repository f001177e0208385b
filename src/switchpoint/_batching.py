"""Batches of any shape, processed in chunks of bounded size."""

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
    """Symbols with a single batch axis, and their original batch shape."""
    return symbols.reshape(-1, symbols.shape[-1]), symbols.shape[:-1]


def in_chunks(
    function: Callable[[Int[Array, "chunk time"]], Result],
    rows: Int[Array, "flat time"],
    numbers_per_symbol: int = 1,
) -> Result:
    """`function` applied to a bounded number of rows at a time, with the results concatenated.

    This keeps the working set within a CPU's caches and bounds memory for any batch.
    `numbers_per_symbol` is roughly how many numbers the function stores per symbol.
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
