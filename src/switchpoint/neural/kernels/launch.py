"""What all step kernels share: how they are cut, launched along time, and given their buffers.

A recurrence is one launch per step. The buffers hold all of time, and a step reads and writes its
own place in them, so that nothing is copied between steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Int

from switchpoint.neural.kernels.arithmetic import largest_divisor
from switchpoint.neural.kernels.call import call

_UNROLL = 8


@dataclass(frozen=True)
class Tiles:
    """What one program of a kernel computes: some units for some sequences."""

    rows: int
    units: int
    inner: int
    """How many terms of a sum are added at a time."""
    warps: int
    stages: int

    def fitting(self, rows: int, units: int, inner: int) -> "Tiles":
        """The same for sizes that may be smaller; every tile divides what it cuts."""
        return Tiles(
            largest_divisor(rows, self.rows),
            largest_divisor(units, self.units),
            largest_divisor(inner, self.inner),
            self.warps,
            self.stages,
        )


def run_steps(
    kernel: Callable[..., None],
    tiles: Tiles,
    grid: tuple[int, int],
    constants: Sequence[Any],
    buffers: Sequence[Any],
    times: Int[Array, " time"],
    name: str,
) -> tuple[Any, ...]:
    """The buffers after a launch of `kernel` for each of `times`, in this order.

    The kernel gets the time, the constants, and the buffers, which it changes in place. Each of
    them may be a tree of arrays.
    """

    def step(buffers: tuple[Any, ...], time: Int[Array, ""]) -> tuple[tuple[Any, ...], None]:
        read = (time[None], *constants)
        found = call(kernel, name, grid, read, buffers, warps=tiles.warps, stages=tiles.stages)
        return tuple(found), None

    return lax.scan(step, tuple(buffers), times, unroll=_UNROLL)[0]


def begun(first: Array, length: int, dtype: Any) -> Array:
    """A buffer for `length` times that holds `first` at the last of them, and else nothing yet.

    Step t reads the place before its own and writes its own; the place before the first is the
    last, which is written when nobody needs its first content any more.
    """
    kernel = partial(_copy_to, length - 1)
    made = [((length, *first.shape), dtype)]
    return call(kernel, "begin", (first.shape[0],), (first,), made=made)[0]


def _copy_to(place: int, first: Any, buffer: Any) -> None:
    row = pl.program_id(0)
    width = first.shape[1]
    size = largest_divisor(width, 256)
    for start in range(0, width, size):
        columns = pl.ds(start, size)
        buffer[place, row, columns] = first[row, columns].astype(buffer.dtype)
