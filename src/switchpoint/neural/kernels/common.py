"""Shared by all kernels: calls, number formats, buffers and products."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from switchpoint.neural.kernels.backend import on_gpu

FP16 = jnp.float16
"""For activations and weights: as precise as TF32, in half the memory."""
BF16 = jnp.bfloat16
"""For gradients, which may be too small for float16."""

Shape = tuple[tuple[int, ...], Any]
"""The shape and the type of an output."""


def call(
    kernel: Callable[..., None],
    name: str,
    grid: tuple[int, ...],
    inputs: Sequence[Any],
    buffers: Sequence[Any] = (),
    outputs: Sequence[Shape] = (),
    warps: int = 4,
    stages: int = 2,
) -> list[Any]:
    """Run `kernel`; return the buffers, which it updates in place, and its outputs.

    The kernel receives references to all inputs, buffers and outputs, in this order; inputs and
    buffers may be trees of arrays.
    """
    flat_inputs, inputs_tree = jax.tree.flatten(tuple(inputs))
    flat_buffers, buffers_tree = jax.tree.flatten(tuple(buffers))
    first, count = len(flat_inputs), len(flat_buffers)

    def on_trees(*references: Any) -> None:
        # A buffer appears twice, as an input and as an output.
        results = references[first + count :]
        kernel(
            *jax.tree.unflatten(inputs_tree, references[:first]),
            *jax.tree.unflatten(buffers_tree, results[:count]),
            *results[count:],
        )

    shapes = [(buffer.shape, buffer.dtype) for buffer in flat_buffers] + list(outputs)
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
    )(*flat_inputs, *flat_buffers)
    return [*jax.tree.unflatten(buffers_tree, results[:count]), *results[count:]]


def _anywhere() -> pl.BlockSpec:
    return pl.BlockSpec(memory_space=pl.ANY)


def empty(like: Array, shape: tuple[int, ...], dtype: Any, name: str) -> Array:
    """An uninitialised buffer, one for each member of the ensemble that `like` belongs to.

    Each needs a distinct name: XLA merges identical allocations into one, and then copies it.
    """
    return call(lambda *_: None, f"allocate_{name}", (1,), (like,), outputs=[(shape, dtype)])[0]


def ring_buffer(like: Array, initial: Array, length: int, dtype: Any) -> Array:
    """A buffer for `length` steps, uninitialised except for the last slot, which holds `initial`.

    Step t reads slot t - 1 and writes slot t. The slot before the first is the last one, which is
    overwritten when its initial content is no longer needed. There is one buffer for each member
    of the ensemble that `like` belongs to, even if all have the same initial content: a shared one
    would be copied for each.
    """
    kernel = partial(_copy_to, length - 1)
    outputs = [((length, *initial.shape), dtype)]
    return call(kernel, "ring_buffer", (len(initial),), (like, initial), outputs=outputs)[0]


def _copy_to(slot: int, like: Any, initial: Any, buffer: Any) -> None:
    del like
    row = pl.program_id(0)
    width = initial.shape[1]
    size = largest_divisor(width, 256)
    for start in range(0, width, size):
        columns = pl.ds(start, size)
        buffer[slot, row, columns] = initial[row, columns].astype(buffer.dtype)


def dot(left: Any, right: Any) -> Any:
    """The product of two tiles of 16-bit numbers, accumulated in float32."""
    return jnp.dot(left, right, preferred_element_type=jnp.float32)


def weight_gradient(
    inputs: Float[Array, "*rows inputs"], d_outputs: Float[Array, "*rows outputs"]
) -> Float[Array, "inputs outputs"]:
    """The gradient of the weights of a linear map, summed over all rows, by XLA."""
    left, right = (each.reshape(-1, each.shape[-1]) for each in (inputs, d_outputs))
    return jnp.dot(left.T, right, preferred_element_type=jnp.float32)


def max_abs(values: Float[Array, "..."]) -> Float[Array, ""]:
    """The largest absolute value, at least the smallest normal number.

    Backpropagation is linear: gradients divided by this fit into float16.
    """
    return jnp.maximum(jnp.max(jnp.abs(values)), jnp.finfo(jnp.float32).tiny)


def largest_divisor(size: int, most: int) -> int:
    """The largest divisor of `size` among `most`, a power of two, and its halves."""
    while size % most:
        most //= 2
    return most
