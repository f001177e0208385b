"""The forward recursion for large alphabets.

A step needs the count of one symbol only, the one that occurred. So a block of steps is carried
out with these alone, and what the block says of all symbols is one product of matrices after it:

    P(x_t = k | x_<t) = sum_s scale_t(s) (count of k since s, before t + pseudo-count of k)

where scale_t(s) = w_t(s) / (symbols since s + all pseudo-counts), and counts are taken from the
block's beginning, so that no large ones are subtracted from each other.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.priors import Prior
from switchpoint.segments import Segment

MOST_LETTERS = 8
"""The largest alphabet whose counts are better carried side by side."""

_BLOCK = 32  # steps


class Forward(eqx.Module):
    """What the recursion says before and after each symbol."""

    probs: Float[Array, "*batch time alphabet"]
    """P(x_t = k | x_<t)."""

    start_mass: Float[Array, "*batch time"]
    """P(a segment starts at t | x_<t)."""

    run_length_mean: Float[Array, "*batch time"]
    """E[symbols in the current segment, x_t included | x_<=t]."""


class _Carry(eqx.Module):
    weights: Float[Array, " starts"]
    start_mass: Float[Array, ""]


def many_letters(prior: Prior, segment: Segment, row: Int[Array, " time"]) -> Forward:
    """The recursion over one sequence."""
    (time,) = row.shape
    blocks = -(-time // _BLOCK)
    hot = jax.nn.one_hot(jnp.pad(row, (0, blocks * _BLOCK - time)), segment.alphabet)
    before = jnp.cumsum(hot, axis=0) - hot  # how often each symbol occurred before t
    pseudo = jnp.asarray(segment.pseudo_counts)

    def block(carry: _Carry, index: Int[Array, ""]) -> tuple[_Carry, tuple[Array, Array, Array]]:
        starts = jnp.arange(len(carry.weights), dtype=jnp.int32)
        times = index * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
        own = lax.dynamic_slice_in_dim(hot, times[0], _BLOCK)
        within = jnp.cumsum(own, axis=0) - own  # since the block's beginning
        since = before[times[0]] - before[: len(starts)]  # until then; starts after it are below 0
        of_own = _product(own, since.T)

        def step(
            carry: _Carry, now: tuple[Array, ...]
        ) -> tuple[_Carry, tuple[Array, Array, Array]]:
            time, counts, offset = now
            weights = carry.weights.at[time].set(carry.start_mass)
            run = jnp.maximum(time - starts, 0)
            scale = weights / (run + pseudo.sum())
            joint = scale * (counts + offset)
            seen = joint / joint.sum()
            after = _Carry(
                seen * prior.survival_after(starts, run + 1),
                jnp.sum(seen * prior.hazard_after(starts, run + 1)),
            )
            return after, (scale, carry.start_mass, jnp.sum(seen * (run + 1)))

        offsets = jnp.sum(own * (within + pseudo), axis=-1)
        carry, (scales, mass, run_length) = lax.scan(step, carry, (times, of_own, offsets))
        probs = _product(scales, since) + scales.sum(-1, keepdims=True) * (within + pseudo)
        return carry, (probs / probs.sum(-1, keepdims=True), mass, run_length)

    carry = _Carry(jnp.zeros(0), jnp.ones(()))
    pieces = max(1, min(8, blocks // 16))
    said = []
    for first, last in itertools.pairwise(blocks * piece // pieces for piece in range(pieces + 1)):
        # Only so many starts are there in this piece.
        room = last * _BLOCK - len(carry.weights)
        carry = _Carry(jnp.pad(carry.weights, (0, room)), carry.start_mass)
        carry, piece = lax.scan(block, carry, jnp.arange(first, last, dtype=jnp.int32))
        said.append(piece)
    whole = [jnp.concatenate(parts) for parts in zip(*said, strict=True)]
    return Forward(*(part.reshape(-1, *part.shape[2:])[:time] for part in whole))


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
