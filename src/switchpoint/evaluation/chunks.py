"""Test sequences a chunk at a time: the first n are the same, however many there are."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax

from switchpoint.sources import Draw, Source

CHUNK = 250
"""How many sequences are drawn at a time, where nothing else is said."""


@dataclass(frozen=True)
class Chunk:
    """Some of the sequences of an evaluation."""

    draw: Draw
    """As many sequences as any other chunk has, so that one compilation serves all.

    Where there is but one chunk, as many as are wanted.
    """
    start: int
    """The number of the first sequence, from 0."""
    wanted: int
    """How many sequences of the draw count: all but in the last chunk."""


def chunks(source: Source, length: int, sequences: int, seed: int, size: int) -> Iterator[Chunk]:
    """`sequences` sequences of `source`, `size` at a time.

    Chunk i is drawn whole with the key fold_in(key(seed), i), and the last is cut after the
    draw. Another size draws other sequences.
    """
    key = jax.random.key(seed)
    for index, start in enumerate(range(0, sequences, size)):
        draw = source.sample(jax.random.fold_in(key, index), size, length)
        if sequences < size:  # long sequences may be few, and a chunk of them much work
            draw = jax.tree.map(lambda leaf: leaf[:sequences], draw)
        yield Chunk(draw, start, min(size, sequences - start))
