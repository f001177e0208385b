"""What one program of a step kernel computes."""

from typing import Any, NamedTuple

from jax.experimental import pallas as pl

from switchpoint.neural.kernels.launch import Tiles


class Part(NamedTuple):
    """Of step `t`: some units for some sequences."""

    t: Any
    previous: Any
    """The place of the step before; that before the first is the last."""
    last: Any
    """Whether no step follows."""
    rows: Any
    own: Any
    """The units."""
    tile: Any
    """Which of the programs for these rows this is: each has its own units."""
    tiles: Tiles


def part_of(time: Any, count: int, tiles: Tiles) -> Part:
    """The part of this program, where there are `count` steps."""
    t, tile = time[0], pl.program_id(1)
    return Part(
        t,
        (t + count - 1) % count,
        t == count - 1,
        pl.ds(pl.program_id(0) * tiles.rows, tiles.rows),
        pl.ds(tile * tiles.units, tiles.units),
        tile,
        tiles,
    )
