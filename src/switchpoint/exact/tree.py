"""Partition Tree Weighting of whole sequences, one level of the tree at a time.

The behaviour of a PTW source inside a node of the tree depends on that node alone. So from the
leaves up, a node of 2^v observations predicts with the mixture

    p_v(x_t) = a(t) M(x_t | the node's x before t) + (1 - a(t)) p_{v-1}(x_t)

where M is the predictive distribution of a segment, and a(t) the posterior probability that the
node does not split. Its log-odds start at ln (1-p)/p and grow by ln M(x_t) - ln p_{v-1}(x_t): a sum
of small terms, never a difference of large log marginals. All times are computed together, one
level after another: O(n depth). Time is padded to a power of two.

Symbols without gaps are predicted from differences of prefix sums of their counts. For any other
data the statistics of a node before t are those of its half, if t is in the left one, and otherwise
those of the left half merged with the right one's before t: one merge per (time, level).
"""

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from switchpoint._prefix_sums import sum_before, sum_before_within
from switchpoint.exact.counting import select_symbol
from switchpoint.exact.counts import SMALL_ALPHABET
from switchpoint.exact.hypotheses import Sequences
from switchpoint.priors import PTW
from switchpoint.priors.log_odds import log_one_minus_exp
from switchpoint.priors.ptw import levels_within
from switchpoint.segments import Dirichlet, Segment
from switchpoint.segments.base import Statistics, lift, log_density
from switchpoint.segments.dirichlet import as_dirichlet

_PerSymbol: TypeAlias = tuple[Float[Array, "*alphabet flat time"], ...]
"""One array per symbol of a small alphabet, which runs fastest, or one array of all symbols of a
large one, which compiles fastest."""


class TreeLevel(eqx.Module):
    """One level of the tree: nodes of 2^height observations, seen from every time t.

    Padded observations change nothing.
    """

    height: int = eqx.field(static=True)

    log_odds: Float[Array, "flat time"]
    """ln P(t's node does not split | its x_<t) / P(it splits | its x_<t)."""

    log_odds_step: Float[Array, "flat time"]
    """The increment of the log-odds due to x_t."""

    log_density: Float[Array, "flat time"]
    """ln p_v(x_t)."""

    probs: Float[Array, "flat time alphabet"] | None
    """p_v(k) for each symbol k, if requested."""

    before: Statistics = None
    """The statistics of t's node before t, without the prior, unless counted: (flat, time)."""

    totals: Statistics = None
    """The statistics of each node, unless counted: (flat, nodes)."""

    def final_log_odds(self) -> Float[Array, "flat nodes"]:
        """ln P(node does not split | all its x) / P(it splits | all its x)."""
        after = self.log_odds + self.log_odds_step
        return after.reshape(len(after), -1, 2**self.height)[..., -1]


def tree_levels(
    prior: PTW, segment: Segment, sequences: Sequences, with_probs: bool = False
) -> Iterator[TreeLevel]:
    """The levels of the tree from height 0 to the root."""
    if sequences.counted_by(segment):
        return _symbol_levels(prior, as_dirichlet(segment), sequences.values)
    return _family_levels(prior, segment, sequences, with_probs)


def stop_log_odds(prior: PTW, levels: int) -> Float[Array, " levels"]:
    """The prior log-odds that a node does not split, for heights 1..levels.

    If the tree is deeper than the sequence, the levels above have one node each, whose split
    cannot be observed: the highest node here stands for all of them.
    """
    heights = np.array([*[1.0] * (levels - 1), prior.depth - levels + 1][:levels])
    log_splits = jnp.asarray(heights, float) * prior.log_split
    return log_one_minus_exp(log_splits) - log_splits


def _symbol_levels(
    prior: PTW, segment: Dirichlet, symbols: Int[Array, "flat time"]
) -> Iterator[TreeLevel]:
    """The levels of the tree over symbols without gaps."""
    flat, time = symbols.shape
    levels = levels_within(prior.depth, time)
    padded = 2**levels
    there = jnp.arange(padded) < time
    symbols = jnp.pad(symbols, ((0, 0), (0, padded - time)))
    alphabet, pseudo = _alphabet(segment)
    before = [sum_before((symbols == symbol).astype(float)) for symbol in alphabet]
    total = jnp.asarray(segment.pseudo_counts).sum()
    predictive = tuple(
        jnp.broadcast_to(chance / total, counts.shape)
        for chance, counts in zip(pseudo, before, strict=True)
    )

    def level(height: int, log_odds: Array, step: Array) -> TreeLevel:
        probs = (
            jnp.stack(predictive, -1) if len(predictive) > 1 else jnp.moveaxis(predictive[0], 0, -1)
        )
        return TreeLevel(height, log_odds, step, jnp.log(_of_symbol(predictive, symbols)), probs)

    yield level(0, *[jnp.zeros((flat, padded))] * 2)
    for height, odds in enumerate(stop_log_odds(prior, levels), start=1):
        width = 2**height
        scale = 1 / (np.arange(padded) % width + total)
        whole = tuple(
            (_since_node(counts, width) + chance) * scale
            for counts, chance in zip(before, pseudo, strict=True)
        )
        ratio = _of_symbol(whole, symbols) / _of_symbol(predictive, symbols)
        step = jnp.log(ratio) if time == padded else jnp.where(there, jnp.log(ratio), 0.0)
        log_odds = odds + sum_before_within(step, width)
        stays = jax.nn.sigmoid(log_odds)
        predictive = tuple(
            below + stays * (over - below) for over, below in zip(whole, predictive, strict=True)
        )
        yield level(height, log_odds, step)


def _of_symbol(values: _PerSymbol, symbols: Int[Array, "flat time"]) -> Float[Array, "flat time"]:
    """The value of the symbol that occurred."""
    if len(values) == 1:
        return jnp.take_along_axis(values[0], symbols[None], axis=0)[0]
    return select_symbol(symbols, values)


def _alphabet(segment: Dirichlet) -> tuple[list[Array | int], list[Array | float]]:
    """The symbols and their pseudo-counts, separate or in one array."""
    if segment.alphabet <= SMALL_ALPHABET:
        return list(range(segment.alphabet)), list(jnp.asarray(segment.pseudo_counts))
    symbols = jnp.arange(segment.alphabet)[:, None, None]
    return [symbols], [jnp.asarray(segment.pseudo_counts)[:, None, None]]


def _since_node(counts: Float[Array, "*batch time"], width: int) -> Float[Array, "*batch time"]:
    """Counts before t minus those before t's node of `width` symbols."""
    nodes = counts.reshape(*counts.shape[:-1], -1, width)
    return (nodes - nodes[..., :1]).reshape(counts.shape)


def _family_levels(
    prior: PTW, segment: Segment, sequences: Sequences, with_probs: bool
) -> Iterator[TreeLevel]:
    """The levels of the tree over observations of any family."""
    flat, time, *event = sequences.values.shape
    levels = levels_within(prior.depth, time)
    padding = [(0, 0), (0, 2**levels - time), *((0, 0),) * len(event)]
    values = jnp.pad(sequences.values.astype(float), padding, constant_values=jnp.nan)
    fresh = sequences.initial_statistics(segment)

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
        lambda leaf: jnp.broadcast_to(leaf, (flat, 2**levels, *leaf.shape)), segment.empty()
    )
    totals = jax.vmap(jax.vmap(functools.partial(lift, segment)))(values)
    densities, chances = whole(before, values)
    mixture, probs = densities, chances
    nothing = jnp.zeros((flat, 2**levels))
    yield TreeLevel(0, nothing, nothing, mixture, probs, before, totals)
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
        yield TreeLevel(height, log_odds, step, mixture, probs, before, totals)
