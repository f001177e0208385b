"""A selective state-space network: linear recurrences whose coefficients depend on the token."""

import math
from collections.abc import Mapping
from functools import partial
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

_EXPANSION = 2
_TAPS = 4
_STEPS = (1e-3, 0.1)
"""The least and the largest step of a new network, log-uniform in between."""
_AT_ONCE = 16
"""Tokens whose states exist at a time."""


class MambaMemory(eqx.Module):
    """The last inputs of the convolutions, and the states of the recurrences."""

    tail: Float[Array, "*layers batch before channels"]
    state: Float[Array, "*layers batch channels state"]


class MambaLayer(eqx.Module):
    """Layer norm, a short convolution, a selective recurrence and a gate, with a residual.

    With (u, z) = norm(x) W, v = silu(conv(u)), and for each channel with its own v_t and step d_t

        h_t = exp(-d_t a) h_(t-1) + d_t v_t B_t,    y_t = C_t . h_t + D v_t,    a > 0,
        x + (y silu(z)) W_out,

    where the step d_t = softplus(...) and the vectors B_t and C_t are linear in v_t: the layer
    selects what it keeps. Every factor exp(-d a) is below 1, so the recurrence is stable.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {
        "project": 2,
        "out_proj": 1,
        **dict.fromkeys(("conv.weight", "select", "step.weight", "log_rate"), 0),  # narrow
    }

    norm: LayerNorm
    project: Float[Array, "*layers width two_channels"]
    conv: Dense
    """Its weight has a row of every channel for each tap, the newest last."""
    select: Float[Array, "*layers channels rank_and_states"]
    """To the low-rank step, to B, and to C."""
    step: Dense
    log_rate: Float[Array, "*layers channels state"]
    """ln a"""
    skip: Float[Array, "*layers channels"]
    """D"""
    out_proj: Float[Array, "*layers channels width"]

    def __init__(self, width: int, state_size: int, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 6)
        channels, rank = _EXPANSION * width, max(1, width // 16)
        low, high = map(math.log, _STEPS)
        steps = jnp.exp(jax.random.uniform(keys[4], (channels,), minval=low, maxval=high))
        self.norm = LayerNorm(width)
        self.project = fan_in_normal(keys[0], width, 2 * channels)
        self.conv = Dense(_TAPS, channels, keys[1])
        self.select = fan_in_normal(keys[2], channels, rank + 2 * state_size)
        step = Dense(rank, channels, keys[3])
        self.step = eqx.tree_at(lambda dense: dense.bias, step, jnp.log(jnp.expm1(steps)))
        rates = jnp.arange(1, state_size + 1, dtype=float)
        self.log_rate = jnp.broadcast_to(jnp.log(rates), (channels, state_size))
        self.skip = jnp.ones(channels)
        self.out_proj = fan_in_normal(keys[5], channels, width)

    def __call__(
        self, x: Float[Array, "batch time width"], memory: MambaMemory
    ) -> tuple[Float[Array, "batch time width"], MambaMemory]:
        """The output of the layer, and its memory after the last token."""
        time, size = x.shape[1], memory.state.shape[-1]
        inputs, gate = jnp.split(self.norm(x) @ self.project, 2, axis=-1)
        seen = jnp.concatenate([memory.tail, inputs], axis=1)
        taps = sum(seen[:, k : k + time] * self.conv.weight[k] for k in range(_TAPS))
        values = jax.nn.silu(taps + self.conv.bias)
        rank = self.select.shape[-1] - 2 * size
        low_rank, into, out_of = jnp.split(values @ self.select, [rank, rank + size], axis=-1)
        steps = jax.nn.softplus(self.step(low_rank))
        outputs, state = self._recurrence((steps, values, into, out_of), memory.state)
        outputs = (outputs + self.skip * values) * jax.nn.silu(gate)
        return x + outputs @ self.out_proj, MambaMemory(seen[:, time:], state)

    def _recurrence(
        self, inputs: tuple[Array, ...], state: Float[Array, "batch channels state"]
    ) -> tuple[Float[Array, "batch time channels"], Float[Array, "batch channels state"]]:
        """C_t . h_t for every t, and the last state, a few tokens at a time.

        The states of all tokens would be many times the size of the inputs: the backward pass
        computes them again. Tokens that fill up the last part have steps of 0: they change nothing.
        """
        time = inputs[0].shape[1]
        count = -(-time // _AT_ONCE)
        size = -(-time // count)

        def in_parts(array: Float[Array, "batch time _"]) -> Float[Array, "part size batch _"]:
            padded = jnp.pad(array, ((0, 0), (0, count * size - time), (0, 0)))
            return jnp.swapaxes(padded, 0, 1).reshape(count, size, len(array), -1)

        @partial(jax.checkpoint, prevent_cse=False)  # a loop needs no barrier
        def part(state: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            steps, values, into, out_of = now
            decay = jnp.exp(-steps[..., None] * jnp.exp(self.log_rate))
            drive = (steps * values)[..., None] * into[..., None, :]
            states = linear_recurrence(decay, drive, state)
            return states[-1], jnp.einsum("tbcs,tbs->tbc", states, out_of)

        state, outputs = lax.scan(part, state, tuple(map(in_parts, inputs)))
        outputs = outputs.reshape(count * size, *outputs.shape[2:])[:time]
        return jnp.swapaxes(outputs, 0, 1), state


class Mamba(StateSpaceNetwork):
    """Selective state spaces (Gu and Dao, 2023), with a diagonal matrix of real decays.

    The memory of a layer is `state_size` numbers for each of 2 `width` channels, and the last three
    inputs of a convolution. Reading a sequence in parts, or one token at a time, gives the same as
    reading it whole up to rounding.

    >>> import jax
    >>> import switchpoint as sp
    >>> network = sp.neural.Mamba(2, width=8, state_size=4, key=jax.random.key(0))
    >>> network.states([0, 1, 1]).state.shape  # time, layers, channels, state
    (3, 2, 16, 4)
    """

    models: ClassVar[Mapping[str, Model]] = {
        "mamba": Model(
            {
                "layers": Option(2, "the number of layers"),
                "width": Option(64, "the size of a token"),
                "state_size": Option(8, "the size of the state of each channel"),
            },
            Recipe(3e-3, 8_000, batch=32),
        )
    }
    block = MambaLayer

    def memory(self, batch: int, capacity: int) -> MambaMemory:
        del capacity
        channels = _EXPANSION * self.width
        return MambaMemory(
            jnp.zeros((self.layers, batch, _TAPS - 1, channels)),
            jnp.zeros((self.layers, batch, channels, self.state_size)),
        )
