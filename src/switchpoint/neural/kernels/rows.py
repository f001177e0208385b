"""What kernels that take some rows of tokens have in common."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int


class Layer(NamedTuple):
    """Which layer a kernel is for; each is an array of one number."""

    number: Int[Array, "1"]
    """Where its weights are."""
    place: Int[Array, "1"]
    """Where what it makes is to be."""
    before: Int[Array, "1"]
    """Where what the layer before made is."""


def given(layer: Layer, first: Any, tokens: Any, rows: Any) -> Any:
    """What a layer is given: `first`, or what the layer before it made."""
    before = tokens[layer.before[0], rows, :]
    return jnp.where(layer.number[0] == 0, first[rows, :], before)


def normalised(x: Any) -> tuple[Any, Any]:
    """Rows with mean 0 and variance 1, and what they were multiplied by."""
    centred = x - _mean(x)
    scale = lax.rsqrt(_mean(centred * centred) + 1e-5)
    return centred * scale, scale


def normalised_backward(normal: Any, scale: Any, slope: Any) -> Any:
    """The derivative of the rows from the derivative of the normalised ones."""
    return scale * (slope - _mean(slope) - normal * _mean(slope * normal))


def _mean(x: Any) -> Any:
    return (jnp.sum(x, axis=1) / x.shape[1])[:, None]
