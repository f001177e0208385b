"""Random keys by purpose, and uniform numbers fine enough for small probabilities."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


def uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform numbers strictly within (0, 1), such that P(u < p) is p to within 2^-32.

    `jax.random.uniform` has steps of 2^-23 in float32, which would bias an event of
    probability 1e-6 by several per cent.
    """
    bits = jax.random.bits(key, shape, jnp.uint32).astype(float)
    return jnp.minimum((bits + 0.5) * 2.0**-32, 1 - float(np.finfo(bits.dtype).epsneg))


def key_for(seed: int, purpose: str) -> PRNGKeyArray:
    """A separate key for each purpose, so that training data never appear in a test."""
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(purpose.encode()))


def constants_of_fast_draws(leaf: object) -> bool:
    """Whether a parameter has a value that a specialised program samples faster.

    A fair coin is one random bit, and Beta(1/2, 1/2) has a closed form. Samplers keep these values
    static and trace all others, so that no other value recompiles.
    """
    return isinstance(leaf, float) and leaf in (0.0, 0.5, 1.0)
