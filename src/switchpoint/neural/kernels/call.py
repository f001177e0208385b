"""How a kernel is called: all arrays where they are, some made new and some changed in place."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array

from switchpoint.neural.kernels.backend import on_gpu

NARROW = jnp.float16
"""As fine as TF32 and half as long, for numbers that are not large."""
WIDE = jnp.bfloat16
"""For gradients, which may be very small."""

Shape = tuple[tuple[int, ...], Any]
"""Of an array that is made: its shape and type."""


def call(
    kernel: Callable[..., None],
    name: str,
    grid: tuple[int, ...],
    read: Sequence[Any],
    changed: Sequence[Any] = (),
    made: Sequence[Shape] = (),
    warps: int = 4,
    stages: int = 2,
) -> list[Any]:
    """What `kernel` makes of the arrays: those that it changes in place, then those it makes new.

    It gets references to all of `read`, `changed` and `made`, in this order. What is read or
    changed may be trees of arrays.
    """
    inputs, inputs_tree = jax.tree.flatten(tuple(read))
    buffers, buffers_tree = jax.tree.flatten(tuple(changed))
    first, count = len(inputs), len(buffers)

    def on_trees(*references: Any) -> None:
        # What is changed comes twice, as an input and as an output.
        outputs = references[first + count :]
        kernel(
            *jax.tree.unflatten(inputs_tree, references[:first]),
            *jax.tree.unflatten(buffers_tree, outputs[:count]),
            *outputs[count:],
        )

    shapes = [(buffer.shape, buffer.dtype) for buffer in buffers] + list(made)
    results = pl.pallas_call(
        on_trees,
        out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes],
        grid=grid,
        in_specs=[_anywhere() for _ in range(first + count)],
        out_specs=[_anywhere() for _ in shapes],
        input_output_aliases={first + i: i for i in range(count)},
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=not on_gpu(),
        name=name,
    )(*inputs, *buffers)
    return [*jax.tree.unflatten(buffers_tree, results[:count]), *results[count:]]


def unwritten(like: Array, shape: tuple[int, ...], dtype: Any, name: str) -> Array:
    """A buffer whose content is yet to be written, for each member that `like` belongs to.

    Its name is its own: of two that are made alike, XLA would make one, and copy it.
    """
    return call(lambda *_: None, f"allocate_{name}", (1,), (like,), made=[(shape, dtype)])[0]


def _anywhere() -> pl.BlockSpec:
    return pl.BlockSpec(memory_space=pl.ANY)
