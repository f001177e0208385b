"""Sinusoids of distances as products of something at one end and something at the other.

Over a few hundred positions the slowest of the 32 frequencies hardly turn: all their sines and
cosines together have a numerical rank of 32, not 64, and scores are that much cheaper.
"""

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from switchpoint.neural.positions import frequencies

_LEAST = 16
_TOLERANCE = 1e-7


class Waves(NamedTuple):
    """Factors of sinusoids: cos(w j) is `of_cos[w] @ at_key[j]`, and likewise the sines."""

    sin: np.ndarray
    """(positions, frequencies)"""
    cos: np.ndarray
    of_sin: np.ndarray
    """(frequencies, columns)"""
    of_cos: np.ndarray
    at_key: np.ndarray
    """(positions, columns)"""

    def at_query(self) -> Float[Array, "positions sinusoids columns"]:
        """The sinusoids of i - j, sines first, are `at_query()[i] @ at_key[j]`.

        sin w(i-j) = sin wi cos wj - cos wi sin wj, and cos w(i-j) = cos wi cos wj + sin wi sin wj.
        """
        # The compiler shall not make a constant of it: it may be large.
        sin, cos = lax.optimization_barrier((self.sin[..., None], self.cos[..., None]))
        parts = [
            sin * self.of_cos - cos * self.of_sin,
            cos * self.of_cos + sin * self.of_sin,
        ]
        return jnp.concatenate(parts, axis=1)


@cache
def waves(time: int, width: int) -> Waves:
    """Those of `width` / 2 frequencies and positions before `time`.

    The number of columns is a power of two.
    """
    angles = np.arange(time)[:, None] * frequencies(width)
    sin, cos = np.sin(angles), np.cos(angles)
    left, sizes, right = np.linalg.svd(np.concatenate([cos, sin], axis=1), full_matrices=False)
    rank = int(np.sum(sizes > _TOLERANCE * sizes[0]))
    columns = max(_LEAST, 1 << (rank - 1).bit_length())
    at_key, back = np.zeros((time, columns)), np.zeros((width, columns))
    at_key[:, :rank] = left[:, :rank] * np.sqrt(time)
    back[:, :rank] = right[:rank].T * sizes[:rank] / np.sqrt(time)
    of_cos, of_sin = np.split(back, 2)
    return Waves(*(part.astype(np.float32) for part in (sin, cos, of_sin, of_cos, at_key)))
