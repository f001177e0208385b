"""Partition Tree Weighting over a whole sequence, one level of the tree at a time.

The behaviour of a PTW source inside a node of the tree depends on that node alone. So from the
leaves up, a node of 2^v symbols predicts with the mixture

    p_v(x_t) = a(t) KT(x_t | the node's symbols before t) + (1 - a(t)) p_{v-1}(x_t)

where a(t) is the posterior probability that the node does not split. Its log-odds start at
ln (1-p)/p and grow by ln KT(x_t) - ln p_{v-1}(x_t): a sum of small terms, never a difference
of large log marginals. All times are computed together, one level after another: O(n depth).
"""

from collections.abc import Iterator
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from switchpoint._prefix_sums import sum_before, sum_before_within
from switchpoint.exact.counting import select_symbol
from switchpoint.exact.recursion import MAX_FEW
from switchpoint.priors import PTW
from switchpoint.priors.log_odds import log_one_minus_exp
from switchpoint.priors.ptw import levels_within
from switchpoint.segments import Dirichlet

PerSymbol: TypeAlias = tuple[Float[Array, "*alphabet batch time"], ...]
"""One array per symbol of a small alphabet, which runs fastest, or one array of all symbols of a
large one, which compiles fastest."""


class TreeLevel(eqx.Module):
    """One level of the tree: nodes of 2^height observations, seen from every time t.

    Time is padded to a power of two; padded observations change nothing.
    """

    height: eqx.AbstractVar[int]

    log_odds: eqx.AbstractVar[Float[Array, "batch time"]]
    """ln P(t's node does not split | its x_<t) / P(it splits | its x_<t)."""

    log_odds_step: eqx.AbstractVar[Float[Array, "batch time"]]
    """The increment of the log-odds due to x_t."""

    def final_log_odds(self) -> Float[Array, "batch nodes"]:
        """ln P(node does not split | all its x) / P(it splits | all its x)."""
        after = self.log_odds + self.log_odds_step
        return after.reshape(len(after), -1, 2**self.height)[..., -1]


class SymbolLevel(TreeLevel):
    """A level of the tree over symbols."""

    height: int = eqx.field(static=True)
    log_odds: Float[Array, "batch time"]
    log_odds_step: Float[Array, "batch time"]
    predictive: PerSymbol
    """P(x_t = k | the symbols of t's node before t)."""

    def probs(self) -> Float[Array, "batch time alphabet"]:
        """`predictive` with the alphabet last."""
        if len(self.predictive) > 1:
            return jnp.stack(self.predictive, axis=-1)
        return jnp.moveaxis(self.predictive[0], 0, -1)


def stop_log_odds(prior: PTW, levels: int) -> Float[Array, " levels"]:
    """The prior log-odds that a node does not split, for heights 1..levels.

    If the tree is deeper than the sequence, the levels above have one node each, whose split
    cannot be observed: the highest node here stands for all of them.
    """
    heights = np.array([*[1.0] * (levels - 1), prior.depth - levels + 1][:levels])
    log_splits = jnp.asarray(heights, float) * prior.log_split
    return log_one_minus_exp(log_splits) - log_splits


def symbol_levels(
    prior: PTW, segment: Dirichlet, symbols: Int[Array, "batch time"]
) -> Iterator[SymbolLevel]:
    """The levels of the tree from height 0 to the root."""
    batch, time = symbols.shape
    levels = levels_within(prior.depth, time)
    padded = 2**levels
    there = jnp.arange(padded) < time
    symbols = jnp.pad(symbols, ((0, 0), (0, padded - time)))
    alphabet, pseudo = _alphabet(segment)
    before = [sum_before((symbols == symbol).astype(float)) for symbol in alphabet]
    total = jnp.asarray(segment.pseudo_counts).sum()
    nothing = jnp.zeros((batch, padded))
    predictive = tuple(
        jnp.broadcast_to(chance / total, counts.shape)
        for chance, counts in zip(pseudo, before, strict=True)
    )
    yield SymbolLevel(0, nothing, nothing, predictive)
    for height, odds in enumerate(stop_log_odds(prior, levels), start=1):
        width = 2**height
        scale = 1 / (np.arange(padded) % width + total)
        whole = tuple(
            (_since_node(counts, width) + chance) * scale
            for counts, chance in zip(before, pseudo, strict=True)
        )
        ratio = of_symbol(whole, symbols) / of_symbol(predictive, symbols)
        step = jnp.log(ratio) if time == padded else jnp.where(there, jnp.log(ratio), 0.0)
        log_odds = odds + sum_before_within(step, width)
        stays = jax.nn.sigmoid(log_odds)
        predictive = tuple(
            below + stays * (over - below) for over, below in zip(whole, predictive, strict=True)
        )
        yield SymbolLevel(height, log_odds, step, predictive)


def of_symbol(values: PerSymbol, symbols: Int[Array, "batch time"]) -> Float[Array, "batch time"]:
    """The value of the symbol that occurred."""
    if len(values) == 1:
        return jnp.take_along_axis(values[0], symbols[None], axis=0)[0]
    return select_symbol(symbols, values)


def _alphabet(segment: Dirichlet) -> tuple[list[Array | int], list[Array | float]]:
    """The symbols and their pseudo-counts, separate or in one array."""
    if segment.alphabet <= MAX_FEW:
        return list(range(segment.alphabet)), list(jnp.asarray(segment.pseudo_counts))
    symbols = jnp.arange(segment.alphabet)[:, None, None]
    return [symbols], [jnp.asarray(segment.pseudo_counts)[:, None, None]]


def _since_node(counts: Float[Array, "*batch time"], width: int) -> Float[Array, "*batch time"]:
    """Counts before t minus those before t's node of `width` symbols."""
    nodes = counts.reshape(*counts.shape[:-1], -1, width)
    return (nodes - nodes[..., :1]).reshape(counts.shape)
