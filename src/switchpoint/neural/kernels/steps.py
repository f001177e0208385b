"""What the step kernels of all cells share: one launch per time step, cut into tiles.

The buffers hold all time steps, and a step reads and writes its own slot in them, so that nothing
is copied between steps.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Int

from switchpoint.neural.kernels.common import call, dot, largest_divisor

_UNROLL = 8


class Tiles(NamedTuple):
    """What one program of a kernel computes: some units for some sequences."""

    rows: int
    units: int
    inner: int
    """How many terms of a product are added at a time."""
    warps: int
    stages: int

    def fitting(self, rows: int, units: int, inner: int) -> "Tiles":
        """The same for sizes that may be smaller; each tile size divides the whole size."""
        return self._replace(
            rows=largest_divisor(rows, self.rows),
            units=largest_divisor(units, self.units),
            inner=largest_divisor(inner, self.inner),
        )


class TileContext(NamedTuple):
    """Where a program is: some units for some sequences, at step `t`."""

    t: Any
    previous: Any
    """The slot of the step before; that before the first is the last."""
    last: Any
    """Whether this is the last step."""
    rows: Any
    units: Any
    tile: Any
    """The number of this program among those for these rows; each has its own units."""
    inner: int


def _tile_context(time: Any, count: int, tiles: Tiles) -> TileContext:
    """The context of this program, where there are `count` steps."""
    t, tile = time[0], pl.program_id(1)
    return TileContext(
        t,
        (t + count - 1) % count,
        t == count - 1,
        pl.ds(pl.program_id(0) * tiles.rows, tiles.rows),
        pl.ds(tile * tiles.units, tiles.units),
        tile,
        tiles.inner,
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

    The kernel gets its context, the constants, and the buffers, which it updates in place. Each of
    these may be a tree of arrays.
    """

    def in_context(time: Any, *references: Any) -> None:
        kernel(_tile_context(time, len(times), tiles), *references)

    def step(buffers: tuple[Any, ...], time: Int[Array, ""]) -> tuple[tuple[Any, ...], None]:
        inputs = (time[None], *constants)
        results = call(in_context, name, grid, inputs, buffers, (), tiles.warps, tiles.stages)
        return tuple(results), None

    return lax.scan(step, tuple(buffers), times, unroll=_UNROLL)[0]


def table_rows(table: Any, token: Any, columns: Any) -> Any:
    """The table's row of each token, in these columns."""
    rows = table[0, columns][None, :]
    for k in range(1, table.shape[0]):
        rows = jnp.where(token[:, None] == k, table[k, columns][None, :], rows)
    return rows


def add_products(
    context: TileContext, totals: list[Any], left: Any, slot: Any, matrix: Any, columns: list[Any]
) -> list[Any]:
    """The totals, plus the product of a slot of `left` with these columns of the matrix."""
    inner = context.inner

    def add(k: Any, totals: list[Any]) -> list[Any]:
        terms = pl.ds(k * inner, inner)
        factor = left[slot, context.rows, terms]
        return [
            total + dot(factor, matrix[terms, column])
            for total, column in zip(totals, columns, strict=True)
        ]

    return lax.fori_loop(0, left.shape[-1] // inner, add, totals)
