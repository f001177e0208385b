"""Sinusoids of distances as products of something at one end and something at the other.

Over a few hundred positions the slowest of the 32 frequencies hardly turn: all their sines and
cosines together have a numerical rank of 32, not 64, and scores are that much cheaper.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from switchpoint.neural.positions import frequencies

_LEAST = 16
_TOLERANCE = 1e-7


class Waves(NamedTuple):
    """The sinusoids of i - j, sines first, are `at_query[i] @ at_key[j]`."""

    at_query: np.ndarray
    """(positions, sinusoids, columns)"""
    at_key: np.ndarray
    """(positions, columns)"""


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
    at_key = np.zeros((time, columns))
    at_key[:, :rank] = left[:, :rank] * np.sqrt(time)
    back = np.zeros((width, columns))
    back[:, :rank] = (right[:rank].T * sizes[:rank]) / np.sqrt(time)
    of_cos, of_sin = np.split(back, 2)
    sin, cos = sin[..., None], cos[..., None]
    # sin w(i-j) = sin wi cos wj - cos wi sin wj, and cos w(i-j) = cos wi cos wj + sin wi sin wj
    at_query = np.concatenate([sin * of_cos - cos * of_sin, cos * of_cos + sin * of_sin], axis=1)
    return Waves(at_query.astype(np.float32), at_key.astype(np.float32))
