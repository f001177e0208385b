"""The linear recurrent unit: layers of complex linear recurrences, run by a parallel scan."""

import math
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint.neural.blocks import LayerNorm
from switchpoint.neural.dense import Dense, fan_in_normal
from switchpoint.neural.model import Model, Option, Recipe
from switchpoint.neural.scans import linear_recurrence
from switchpoint.neural.state_space import StateSpaceNetwork

_DECAYS = (0.4, 0.999)
"""The least and the largest |lambda| of a new network: time constants of 1 to 1,000 tokens."""
_LARGEST_PHASE = math.pi / 10


class LRULayer(eqx.Module):
    """Layer norm, a complex linear recurrence, and a gate, around a residual connection.

    With u = norm(x), for each layer

        h_t = lambda h_(t-1) + sqrt(1 - |lambda|^2) B u_t,    lambda = exp(-exp(nu) + i exp(theta)),
        y_t = Re(C h_t) + D u_t,    x + a sigmoid(b),    (a, b) = W gelu(y_t).

    |lambda| < 1 for every value of nu, so no weights make the recurrence unstable, and the root
    gives all states the same variance at first.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {"drive": 2, "observe": 1, "gate.weight": 2}

    norm: LayerNorm
    log_rate: Float[Array, "*layers state"]
    """nu"""
    log_phase: Float[Array, "*layers state"]
    """theta"""
    drive: Float[Array, "*layers width two_states"]
    """The real part of B, then the imaginary one."""
    observe: Float[Array, "*layers two_states width"]
    """The real part of C, then minus the imaginary one."""
    skip: Float[Array, "*layers width"]
    """D"""
    gate: Dense

    def __init__(self, width: int, state_size: int, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 5)
        low, high = (bound**2 for bound in _DECAYS)
        squares = jax.random.uniform(keys[0], (state_size,), minval=low, maxval=high)
        self.norm = LayerNorm(width)
        self.log_rate = jnp.log(-0.5 * jnp.log(squares))
        phases = jax.random.uniform(keys[1], (state_size,), minval=1e-3, maxval=_LARGEST_PHASE)
        self.log_phase = jnp.log(phases)
        self.drive = fan_in_normal(keys[2], width, 2 * state_size) * math.sqrt(0.5)
        self.observe = fan_in_normal(keys[3], 2 * state_size, width)
        self.skip = jnp.ones(width)
        self.gate = Dense(width, 2 * width, keys[4])

    def __call__(
        self, x: Float[Array, "batch time width"], first: Float[Array, "batch 2 state"]
    ) -> tuple[Float[Array, "batch time width"], Float[Array, "batch 2 state"]]:
        """The output of the layer, and the state after the last token."""
        normal = self.norm(x)
        rate = jnp.exp(self.log_rate)
        decay = jnp.exp(lax.complex(-rate, jnp.exp(self.log_phase)))
        real, imaginary = jnp.split(jnp.swapaxes(normal, 0, 1) @ self.drive, 2, axis=-1)
        drive = lax.complex(real, imaginary) * jnp.sqrt(-jnp.expm1(-2 * rate))
        decays = jnp.broadcast_to(decay, (len(drive), 1, len(decay)))
        states = linear_recurrence(decays, drive, lax.complex(first[:, 0], first[:, 1]))
        parts = jnp.concatenate([states.real, states.imag], axis=-1)
        outputs = jnp.swapaxes(parts @ self.observe, 0, 1) + self.skip * normal
        value, gate = jnp.split(self.gate(jax.nn.gelu(outputs)), 2, axis=-1)
        last = jnp.stack([states[-1].real, states[-1].imag], axis=1)
        return x + value * jax.nn.sigmoid(gate), last


class LRU(StateSpaceNetwork):
    """Linear recurrent units (Orvieto et al., 2023).

    The memory is `state_size` complex numbers for each layer, as their real and imaginary parts. A
    sequence is one associative scan, whose steps are O(log time) deep; reading it in parts, or one
    token at a time, gives the same up to rounding.

    >>> import jax
    >>> import switchpoint as sp
    >>> network = sp.neural.LRU(2, width=8, state_size=4, key=jax.random.key(0))
    >>> network.states([0, 1, 1]).shape  # time, layers, real and imaginary, state
    (3, 2, 2, 4)
    """

    models: ClassVar[Mapping[str, Model]] = {
        "lru": Model(
            {
                "layers": Option(2, "the number of layers"),
                "width": Option(64, "the size of a token"),
                "state_size": Option(64, "the number of complex numbers in the state of a layer"),
            },
            Recipe(1e-2, 8_000, batch=32),
        )
    }
    block = LRULayer

    def memory(self, batch: int, capacity: int) -> Float[Array, "layers batch 2 state"]:
        del capacity
        return jnp.zeros((self.layers, batch, 2, self.state_size))
