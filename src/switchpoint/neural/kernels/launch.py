"""What all step kernels share: how they are cut, launched along time, and given their buffers.

A recurrence is one launch per step. The buffers hold all of time, and a step reads and writes its
own place in them, so that nothing is copied between steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Int

from switchpoint.neural.kernels.choice import on_gpu

NARROW = jnp.float16
"""For outputs and gates: as fine as TF32 and half as long; they are not large."""
WIDE = jnp.bfloat16
"""For gradients, which may be very small."""

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
            _largest_divisor(rows, self.rows),
            _largest_divisor(units, self.units),
            _largest_divisor(inner, self.inner),
            self.warps,
            self.stages,
        )


def _largest_divisor(size: int, most: int) -> int:
    while size % most:
        most //= 2
    return most


def run_steps(
    kernel: Callable[..., None],
    tiles: Tiles,
    grid: tuple[int, int],
    constants: Sequence[Array],
    buffers: Sequence[Array],
    times: Int[Array, " time"],
    name: str,
) -> tuple[Array, ...]:
    """The buffers after a launch of `kernel` for each of `times`, in this order.

    The kernel gets the time, the constants, and the buffers, which it changes in place.
    """
    first = 1 + len(constants)
    call = pl.pallas_call(
        partial(_with_buffers_once, kernel, first, len(buffers)),
        out_shape=[jax.ShapeDtypeStruct(buffer.shape, buffer.dtype) for buffer in buffers],
        grid=grid,
        in_specs=[_anywhere() for _ in range(first + len(buffers))],
        out_specs=[_anywhere() for _ in buffers],
        input_output_aliases={first + i: i for i in range(len(buffers))},
        compiler_params=plgpu.CompilerParams(num_warps=tiles.warps, num_stages=tiles.stages),
        interpret=not on_gpu(),
        name=name,
    )

    def step(buffers: tuple[Array, ...], time: Int[Array, ""]) -> tuple[tuple[Array, ...], None]:
        return tuple(call(time[None], *constants, *buffers)), None

    return lax.scan(step, tuple(buffers), times, unroll=_UNROLL)[0]


def begun(first: Array, length: int, dtype: Any) -> Array:
    """A buffer for `length` times that holds `first` at the last of them, and else nothing yet.

    Step t reads the place before its own and writes its own; the place before the first is the
    last, which is written when nobody needs its first content any more.
    """
    return pl.pallas_call(
        partial(_copy_to, length - 1),
        out_shape=jax.ShapeDtypeStruct((length, *first.shape), dtype),
        grid=(first.shape[0],),
        in_specs=[_anywhere()],
        out_specs=_anywhere(),
        interpret=not on_gpu(),
        name="begin",
    )(first)


def unwritten(like: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """A buffer whose content is yet to be written, for each member that `like` belongs to."""
    return pl.pallas_call(
        lambda *_: None,
        out_shape=jax.ShapeDtypeStruct(shape, dtype),
        grid=(1,),
        in_specs=[_anywhere()],
        out_specs=_anywhere(),
        interpret=not on_gpu(),
        name="allocate",
    )(like)


def _with_buffers_once(
    kernel: Callable[..., None], first: int, count: int, *references: Any
) -> None:
    """Call `kernel` with each buffer as the output that it is also the input of."""
    kernel(*references[:first], *references[first + count :])


def _copy_to(place: int, first: Any, buffer: Any) -> None:
    row = pl.program_id(0)
    buffer[place, row] = first[row].astype(buffer.dtype)


def _anywhere() -> pl.BlockSpec:
    return pl.BlockSpec(memory_space=pl.ANY)
