"""The weights of all hypotheses over one block of times.

Segments that started before a block interact only through normalisation, which can wait until its
end. So their joint probabilities with the observations, up to each time of the block, are one
vector operation. The recursion from one time to the next is over the starts within the block, with
sums over all earlier ones. Weights are logarithms, so an observation that is impossible under every
hypothesis but one in float32 leaves the right one.
"""

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.exact.hypotheses import (
    Filtered,
    highest,
    put_block,
    spread,
    sums_over_starts,
)
from switchpoint.priors import Prior

_LOWEST = -1e37  # a logarithm that stands for 0 in differences


class Weights(NamedTuple):
    """The hypotheses' weights before a time."""

    log_weights: Float[Array, "rows lanes flat"]
    """Of the segments that started earlier."""
    log_start: Float[Array, " flat"]
    """Of the one that starts now."""


class Endings(NamedTuple):
    """The law of the end of each segment, right after each time of a block."""

    hazard: Float[Array, "*block starts"]
    log_survival: Float[Array, "*block starts"]
    run: Int[Array, "*block starts"] | None
    """The length of the segment so far, if requested."""

    @classmethod
    def of(
        cls,
        prior: Prior,
        starts: Int[Array, "*starts"],
        runs: Int[Array, "block *starts"],
        with_runs: bool,
    ) -> "Endings":
        starts = jnp.broadcast_to(starts, runs.shape)
        hazard, log_survival = (
            jnp.broadcast_to(jnp.asarray(law(starts, runs), float), runs.shape)
            for law in (prior.hazard_after, prior.log_survival_after)
        )
        return cls(hazard, log_survival, runs if with_runs else None)

    @property
    def factors(self) -> tuple[Any, ...]:
        """The factors of the sums over hypotheses."""
        return (1.0, self.hazard) if self.run is None else (1.0, self.hazard, self.run)


class EarlierStarts(NamedTuple):
    """The starts s before a block b, all together, at each of its times t.

    Sums over P(start s, x_b..x_t | x_<b), relative to the largest of these at the same time.
    """

    sums: tuple[Float[Array, "block flat"], ...]
    """Without a factor, with the hazard, and with the run length if requested."""
    shift: Float[Array, "block flat"]
    """By how much the logarithm of the largest one has changed since the time before."""
    probs: Float[Array, "block flat alphabet"] | None
    """P(x_t = k) under P(start s, x_b..x_(t-1), no switch since), relative to that before t."""
    last: Float[Array, "rows lanes flat"]
    """ln P(start s, x_b.., no switch since) of each, at the end of the block."""


def earlier_by_steps(
    log_weights: Float[Array, "rows lanes flat"],
    endings: Endings,
    logs: Float[Array, "block rows lanes flat"],
    probs: Float[Array, "block rows lanes flat alphabet"] | None = None,
) -> EarlierStarts:
    """From the log density of each observation, given the start."""

    def step(log_weights: Array, now: tuple[Endings, Array, Any]) -> tuple[Array, Any]:
        ending, log_density, probs = now
        joint = log_weights + log_density
        top = _top(joint)
        joint = joint - spread(top)
        sums = sums_over_starts(jnp.exp(joint), ending.factors)
        mixed = None if probs is None else _mixture(jnp.exp(log_weights), probs)
        return joint + ending.log_survival[..., None], (sums, top, mixed)

    last, (sums, shift, mixed) = lax.scan(step, log_weights, (endings, logs, probs))
    return EarlierStarts(sums, shift, mixed, last)


def earlier_at_once(
    log_weights: Float[Array, "rows lanes flat"],
    endings: Endings,
    logs: Float[Array, "block rows lanes flat"],
    probs: Float[Array, "block rows lanes flat alphabet"] | None = None,
) -> EarlierStarts:
    """From the log density of all observations of the block up to each time, given the start."""

    def add(total: Array, log_survival: Array) -> tuple[Array, Array]:
        return total + log_survival, total

    nothing = jnp.zeros_like(endings.log_survival[0])
    _, survived = lax.scan(add, nothing, endings.log_survival)
    joint = log_weights + survived[..., None] + logs
    top = _top(joint)
    joint = joint - spread(top)
    after = joint + endings.log_survival[..., None]
    mixed = None
    if probs is not None:
        before = jnp.concatenate([log_weights[None], after[:-1]])
        mixed = _mixture(jnp.exp(before), probs)
    sums = sums_over_starts(jnp.exp(joint), endings.factors)
    return EarlierStarts(sums, jnp.diff(top, axis=0, prepend=0), mixed, after[-1])


def _top(joint: Float[Array, "... rows lanes flat"]) -> Float[Array, "... flat"]:
    """The largest joint logarithm; a scale, on which no result depends."""
    return lax.stop_gradient(jnp.maximum(highest(joint), _LOWEST))


def _mixture(
    weights: Float[Array, "... rows lanes flat"], probs: Float[Array, "... alphabet"]
) -> Float[Array, "... flat alphabet"]:
    """The sum of the starts' probabilities, by their weights."""
    return jnp.sum(weights[..., None] * probs, (-4, -3))


class InBlockStarts(NamedTuple):
    """The hypotheses that start within a block."""

    starts: Int[Array, " lanes"]
    """As the prior takes them."""
    log_density: Float[Array, "block lanes flat"]
    probs: Float[Array, "block lanes flat alphabet"] | None


_Carry: TypeAlias = tuple[Array, Array, Array]


def filter_block(
    prior: Prior,
    log_start: Float[Array, " flat"],
    earlier: EarlierStarts,
    in_block: InBlockStarts,
    row: Int[Array, ""],
) -> tuple[Weights, Filtered]:
    """The weights after a block, whose starts are this row of hypotheses."""
    block, lanes, flat = in_block.log_density.shape
    indices = jnp.arange(block, dtype=jnp.int32)
    runs = jnp.maximum(indices[:, None] - jnp.arange(lanes, dtype=jnp.int32), 0) + 1
    endings = Endings.of(prior, in_block.starts, runs, with_runs=len(earlier.sums) > 2)

    def step(carry: _Carry, now: Any) -> tuple[_Carry, Filtered]:
        # The probabilities of earlier starts are relative to `scale`.
        log_weights, log_start, scale = carry
        index, ending, logs, in_block_probs, sums, shift, earlier_probs = now
        starts_now = (jnp.arange(lanes) == index)[:, None]
        log_weights = jnp.where(starts_now, log_start, log_weights)
        joint = log_weights + logs
        level = scale + shift
        top = jnp.maximum(joint.max(0), level)
        parts, others = jnp.exp(joint - top), jnp.exp(level - top)
        total, ends, *length = (
            jnp.sum(parts * jnp.reshape(factor, (-1, 1)), 0) + others * each
            for factor, each in zip(ending.factors, sums, strict=True)
        )
        evidence = top + jnp.log(total)
        after = joint - evidence + ending.log_survival[:, None]
        mixed = None
        if in_block_probs is not None:
            mixed = jnp.sum(jnp.exp(log_weights)[..., None] * in_block_probs, 0)
            mixed = mixed + jnp.exp(scale)[:, None] * earlier_probs
            mixed = mixed / mixed.sum(-1, keepdims=True)
        runs = length[0] / total if length else None
        carry = after, safe_log(ends / total), level - evidence
        return carry, Filtered(evidence, log_start, runs, mixed)

    carry: _Carry = (jnp.full((lanes, flat), -jnp.inf), log_start, jnp.zeros(flat))
    now = (
        indices,
        endings,
        in_block.log_density,
        in_block.probs,
        earlier.sums,
        earlier.shift,
        earlier.probs,
    )
    (in_block_weights, log_start, scale), filtered = lax.scan(step, carry, now)
    later = earlier.last + spread(scale)
    return Weights(put_block(later, in_block_weights, row), log_start), filtered


def safe_log(probability: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln p, with derivative 0 where p is 0."""
    there = probability > 0
    return jnp.where(there, jnp.log(jnp.where(there, probability, 1.0)), -jnp.inf)
