"""Batches of any shape, processed in chunks of bounded size."""

from collections.abc import Callable
from typing import Any, TypeVar

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
    elements = (2**18 if jax.default_backend() == "cpu" else 2**24) // numbers_per_symbol
    return map_chunks(function, rows, elements // rows.shape[1])


def map_chunks(function: Callable[[Any], Result], arrays: Any, size: int) -> Result:
    """`function` applied to at most `size` rows of the arrays at a time, in a loop.

    Rows of zeros fill up the last chunk; `function` must not mix rows.
    """
    count = len(jax.tree.leaves(arrays)[0])
    chunks = -(-count // max(1, size))
    if chunks <= 1:
        return function(arrays)
    rows = -(-count // chunks)

    def split(leaf: Array) -> Array:
        padded = jnp.pad(leaf, ((0, chunks * rows - count), *[(0, 0)] * (leaf.ndim - 1)))
        return padded.reshape(chunks, rows, *leaf.shape[1:])

    results = lax.map(function, jax.tree.map(split, arrays))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], results)
