"""Partition Tree Weighting over a whole sequence, one level of the tree at a time.

What a PTW source does inside a node of the tree depends on that node alone. So from the
leaves up, a node of 2^v symbols predicts with the mixture

    p_v(x_t) = a(t) KT(x_t | the node's symbols before t) + (1 - a(t)) p_{v-1}(x_t)

where a(t) is the posterior probability that the node does not split. Its log-odds start at
ln (1-p)/p and grow by ln KT(x_t) - ln p_{v-1}(x_t): a sum of small terms, never a difference
of large log marginals. All times are done at once: the work is per level, O(n depth).
"""

import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from switchpoint._prefix_sums import sum_before, sum_before_within
from switchpoint.priors import PTW
from switchpoint.priors.ptw import levels_within
from switchpoint.segments import Segment


class Level(eqx.Module):
    """One level of the tree: nodes of 2^height symbols, seen from every time t.

    Time is padded to a power of two; padded symbols belong to no one and change nothing.
    """

    height: int = eqx.field(static=True)

    log_odds: Float[Array, "batch time"]
    """ln P(t's node does not split | its x_<t) / P(it splits | its x_<t)."""

    log_odds_step: Float[Array, "batch time"]
    """What x_t adds to the log-odds."""

    predictive: Float[Array, "alphabet batch time"]
    """P(x_t = k | t's node, and what is inside it before t)."""

    def final_log_odds(self) -> Float[Array, "batch nodes"]:
        """ln P(node does not split | all its x) / P(it splits | all its x)."""
        after = self.log_odds + self.log_odds_step
        return after.reshape(len(after), -1, 2**self.height)[..., -1]


def stop_log_odds(prior: PTW, levels: int) -> list[float]:
    """The prior log-odds that a node does not split, for heights 1..levels.

    Where the tree is deeper than the sequence, its levels above hold one node each, whose
    split cannot be seen: the highest node here stands for all of them.
    """
    if levels == 0:
        return []
    log_split = math.log(prior.split)
    heights = [1] * (levels - 1) + [prior.depth - levels + 1]
    return [math.log(-math.expm1(count * log_split)) - count * log_split for count in heights]


def climb(prior: PTW, segment: Segment, symbols: Int[Array, "batch time"]) -> Iterator[Level]:
    """The levels of the tree from height 0 to the root."""
    batch, time = symbols.shape
    levels = levels_within(prior.depth, time)
    padded = 2**levels
    there = jnp.arange(padded) < time
    symbols = jnp.pad(symbols, ((0, 0), (0, padded - time)))
    before = counts_before(symbols, segment.alphabet)
    pseudo = np.asarray(segment.pseudo_counts)
    nothing = jnp.zeros((batch, padded))
    predictive = jnp.broadcast_to(
        jnp.asarray(pseudo / pseudo.sum())[:, None, None], (segment.alphabet, batch, padded)
    )
    yield Level(0, nothing, nothing, predictive)
    for height, odds in enumerate(stop_log_odds(prior, levels), start=1):
        nodes = (padded >> height, 1 << height)
        counts = before.reshape(-1, *nodes)
        counts = (counts - counts[..., :1]).reshape(before.shape)
        run = np.arange(padded) % nodes[1]
        whole = (counts + jnp.asarray(pseudo)[:, None, None]) * jnp.asarray(
            1 / (run + pseudo.sum())
        )
        ratio = of_symbol(whole, symbols) / of_symbol(predictive, symbols)
        step = jnp.log(ratio) if time == padded else jnp.where(there, jnp.log(ratio), 0.0)
        log_odds = odds + sum_before_within(step, nodes[1])
        predictive = predictive + jax.nn.sigmoid(log_odds) * (whole - predictive)
        yield Level(height, log_odds, step, predictive)


def counts_before(
    symbols: Int[Array, "batch time"], alphabet: int
) -> Float[Array, "alphabet batch time"]:
    """How often each symbol occurs before t; the time must be a power of two."""
    letters = jnp.arange(alphabet, dtype=symbols.dtype)[:, None, None]
    return sum_before((symbols == letters).astype(float))


def of_symbol(
    values: Float[Array, "alphabet batch time"], symbols: Int[Array, "batch time"]
) -> Float[Array, "batch time"]:
    """The value of the symbol that occurred."""
    return jnp.take_along_axis(values, symbols[None], axis=0)[0]
