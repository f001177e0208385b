"""Shared by the step kernels of all cells: one launch per time step, divided into tiles.

The buffers hold all time steps, and a step reads and writes its own slot, so nothing is copied
between steps.
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
    """The tile that one program computes: some units for some sequences."""

    rows: int
    units: int
    inner: int
    """The number of terms of a product that are added at a time."""
    warps: int
    stages: int

    def fitting(self, rows: int, units: int, inner: int) -> "Tiles":
        """The tiles for sizes that may be smaller; each divides the whole size."""
        return self._replace(
            rows=largest_divisor(rows, self.rows),
            units=largest_divisor(units, self.units),
            inner=largest_divisor(inner, self.inner),
        )


class TileContext(NamedTuple):
    """The position of a program: some units for some sequences, at step `t`."""

    t: Any
    previous: Any
    """The slot of the step before; for the first step, the last slot."""
    last: Any
    """Whether this is the last step."""
    rows: Any
    units: Any
    tile: Any
    """The number of this program among those for these rows, which compute other units."""
    inner: int


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

    The kernel receives its context, the constants, and the buffers, which it updates in place; all
    of these may be trees of arrays.
    """

    def in_context(time: Any, *references: Any) -> None:
        t, count, tile = time[0], len(times), pl.program_id(1)
        context = TileContext(
            t,
            (t + count - 1) % count,
            t == count - 1,
            pl.ds(pl.program_id(0) * tiles.rows, tiles.rows),
            pl.ds(tile * tiles.units, tiles.units),
            tile,
            tiles.inner,
        )
        kernel(context, *references)

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
