"""Partition Tree Weighting of a whole sequence, for any family of segments.

As in `tree.py`, one level after another. The statistics of a node of height v before t are those of
its half, if t is in the left one, and otherwise those of the left half merged with the right one's
before t: one merge per (time, level). Missing observations pad the time to a power of two.
"""

import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from switchpoint._prefix_sums import sum_before_within
from switchpoint.exact.blocks import Sequences, initial_statistics
from switchpoint.exact.tree import TreeLevel, stop_log_odds
from switchpoint.priors import PTW
from switchpoint.priors.ptw import levels_within
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics, lift, log_density, no_statistics


class FamilyLevel(TreeLevel):
    """A level of the tree over observations of any family."""

    height: int = eqx.field(static=True)
    log_odds: Float[Array, "batch time"]
    log_odds_step: Float[Array, "batch time"]
    log_density: Float[Array, "batch time"]
    """ln p(x_t | the observations of t's node before t)."""
    probs: Float[Array, "batch time alphabet"] | None
    """P(x_t = k | the symbols of t's node before t), if asked for."""
    before: Statistics
    """The statistics of t's node before t, without the prior: (batch, time)."""
    totals: Statistics
    """The statistics of each node: (batch, nodes)."""


def family_levels(
    prior: PTW, segment: Segment, sequences: Sequences, with_probs: bool = False
) -> Iterator[FamilyLevel]:
    """The levels of the tree from height 0 to the root."""
    flat, time, *event = sequences.values.shape
    levels = levels_within(prior.depth, time)
    padding = [(0, 0), (0, 2**levels - time), *((0, 0),) * len(event)]
    values = jnp.pad(sequences.values, padding, constant_values=jnp.nan)
    fresh = initial_statistics(segment, sequences.offset)

    def whole(before: Statistics, values: Array) -> tuple[Array, Array | None]:
        """The prediction of a segment, given the statistics of its observations: (batch, ...)."""

        def of_one(fresh: Statistics, before: Statistics, x: Array) -> tuple[Any, Any]:
            statistics = segment.merge(fresh, before)
            predictive: Any = segment.predictive(statistics) if with_probs else None
            probs = predictive.probs if with_probs else None
            return log_density(segment, statistics, x), probs

        function = jax.vmap(of_one, in_axes=(None, 0, 0))
        if values.ndim - len(event) > 2:  # nodes and times
            function = jax.vmap(function, in_axes=(None, 0, 0))
        return jax.vmap(function)(fresh, before, values)

    merge = jax.vmap(jax.vmap(segment.merge))  # over sequences and nodes
    merge_first = jax.vmap(  # one with many
        jax.vmap(jax.vmap(segment.merge, in_axes=(None, 0)))
    )
    before = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (flat, 2**levels, *leaf.shape)), no_statistics(segment)
    )
    totals = jax.vmap(jax.vmap(functools.partial(lift, segment)))(values)
    densities, chances = whole(before, values)
    mixture, probs = densities, chances
    nothing = jnp.zeros((flat, 2**levels))
    yield FamilyLevel(0, nothing, nothing, mixture, probs, before, totals)
    for height, odds in enumerate(stop_log_odds(prior, levels), start=1):
        half = 2 ** (height - 1)

        def halves(tree: Any, size: int = half) -> tuple[Any, Any]:
            cut = jax.tree.map(lambda leaf: leaf.reshape(flat, -1, 2, size, *leaf.shape[2:]), tree)
            return tuple(jax.tree.map(lambda leaf, i=i: leaf[:, :, i], cut) for i in (0, 1))

        def joined(left: Any, right: Any) -> Any:
            return jax.tree.map(
                lambda one, other: jnp.stack([one, other], axis=2).reshape(
                    flat, 2**levels, *one.shape[3:]
                ),
                left,
                right,
            )

        pairs = jax.tree.map(lambda leaf: leaf.reshape(flat, -1, 2, *leaf.shape[2:]), totals)
        left, right = (jax.tree.map(lambda leaf, i=i: leaf[:, :, i], pairs) for i in (0, 1))
        first, second = halves(before)
        second = merge_first(left, second)
        before, totals = joined(first, second), merge(left, right)
        later = whole(second, halves(values)[1])
        densities, chances = (
            joined(halves(old)[0], new)
            for old, new in zip((densities, chances), later, strict=True)
        )
        step = densities - mixture
        log_odds = odds + sum_before_within(step, 2 * half)
        mixture = jnp.logaddexp(
            densities + jax.nn.log_sigmoid(log_odds), mixture + jax.nn.log_sigmoid(-log_odds)
        )
        if with_probs:
            probs = probs + jax.nn.sigmoid(log_odds)[..., None] * (chances - probs)
        yield FamilyLevel(height, log_odds, step, mixture, probs, before, totals)
