"""Batches of any shape, processed in chunks of bounded size."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

_VECTOR = 16  # single precision numbers, of the widest instructions of a CPU

Rows = TypeVar("Rows")
Result = TypeVar("Result")


def in_chunks(
    function: Callable[[Rows], Result], rows: Rows, numbers_per_symbol: int = 1
) -> Result:
    """`function` applied to a bounded number of rows at a time, with the results concatenated.

    This keeps the working set within a CPU's caches and bounds memory for any batch. Rows are an
    array of (rows, time), or a pytree that has one among its leaves. `numbers_per_symbol` is
    roughly how many numbers the function stores per symbol.
    """
    leaves: list[Any] = jax.tree.leaves(rows)
    time = max((leaf.shape[1] for leaf in leaves if leaf.ndim > 1), default=1)
    elements = (2**18 if jax.default_backend() == "cpu" else 2**24) // numbers_per_symbol
    return map_chunks(function, rows, elements // time)


def map_chunks(function: Callable[[Any], Result], arrays: Any, size: int) -> Result:
    """`function` applied to about `size` rows of the arrays at a time, in a loop.

    Rows of zeros fill up the last chunk; `function` must not mix rows.
    """
    count = len(jax.tree.leaves(arrays)[0])
    chunks = -(-count // max(1, size))
    if chunks <= 1:
        return function(arrays)
    rows = -(-count // chunks)
    if rows >= 4 * _VECTOR:  # no rest in the inner loops, which would take as long as vectors
        rows = -(-rows // _VECTOR) * _VECTOR
        chunks = -(-count // rows)

    def split(leaf: Array) -> Array:
        padded = jnp.pad(leaf, ((0, chunks * rows - count), *[(0, 0)] * (leaf.ndim - 1)))
        return padded.reshape(chunks, rows, *leaf.shape[1:])

    results = lax.map(function, jax.tree.map(split, arrays))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], results)
