"""The posterior of a PTW source: down the tree once, O(n depth).

Given the data of a node, whether it splits is independent of all outside it. So a node is a
segment boundary's cause with the product of its ancestors' posterior split probabilities.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint._batching import flat_batch, in_chunks
from switchpoint._random import uniform
from switchpoint.exact.posterior import Partitions, Posterior, Summaries
from switchpoint.exact.tree import Level, climb, of_symbol
from switchpoint.priors import PTW
from switchpoint.segments import Segment


def tree_posterior(prior: PTW, segment: Segment, symbols: Int[Array, "*batch time"]) -> Posterior:
    """The posterior over switching points under PTW."""
    rows, batch = flat_batch(symbols)
    summaries = _summaries(prior, segment, rows)
    return summaries.shaped(batch, TreePartitions(prior, segment, rows))


class TreePartitions(Partitions):
    """The posterior law of partitions, by which nodes of the tree split."""

    prior: PTW
    segment: Segment
    rows: Int[Array, "flat time"]

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Splits nodes from the root down, each with its posterior probability."""
        flat, time = self.rows.shape
        levels = list(climb(self.prior, self.segment, self.rows))
        alive = jnp.ones((count, flat, 1), bool)
        switches = jnp.zeros((count, flat, 1), bool)
        for level in reversed(levels[1:]):
            splits = jax.nn.sigmoid(-level.final_log_odds())
            coins = uniform(jax.random.fold_in(key, level.height), (count, *splits.shape))
            alive = alive & (coins < splits)
            switches, alive = _apart(_interleave(switches, alive), _interleave(alive, alive))
        return switches[..., :time]

    @functools.partial(jax.jit, static_argnames="most")
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """By the numbers of switches in both halves of each node."""
        flat, time = self.rows.shape
        *_, root = levels = list(climb(self.prior, self.segment, self.rows))
        padded = root.log_odds.shape[-1]
        law = jnp.ones((flat, padded, 1))  # of the number of switches inside a node
        for level in levels[1:]:
            size = min(most + 1, 2**level.height)
            both = _convolved(law[:, ::2], law[:, 1::2], size)
            counted = jnp.pad(both, ((0, 0), (0, 0), (1, 0)))[..., :size]
            seen = _midpoints(level, padded) < time
            splits = jax.nn.sigmoid(-level.final_log_odds())[..., None]
            law = splits * jnp.where(seen[:, None], counted, both)
            law = law.at[..., 0].add(jax.nn.sigmoid(level.final_log_odds()))
            (law,) = _apart(law)
        return jnp.pad(law[:, 0], ((0, 0), (0, max(0, most + 1 - law.shape[-1]))))

    @jax.jit
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """By whether there is one in either half of each node."""
        flat, time = self.rows.shape
        *_, root = levels = list(climb(self.prior, self.segment, self.rows))
        padded = root.log_odds.shape[-1]
        outside = 1.0 - jnp.pad(windows, ((0, 0), (0, padded - time))).T
        none = jnp.ones((flat, padded, len(windows)))
        for level in levels[1:]:
            splits = jax.nn.sigmoid(-level.final_log_odds())[..., None]
            both = none[:, ::2] * none[:, 1::2] * outside[_midpoints(level, padded)]
            (none,) = _apart(1 - splits * (1 - both))
        return none[:, 0]


@jax.jit
def _summaries(prior: PTW, segment: Segment, rows: Int[Array, "flat time"]) -> Summaries:
    def summaries(rows: Int[Array, "flat time"]) -> Summaries:
        levels = list(climb(prior, segment, rows))
        filtered, run_length = _filtered(levels)
        smoothed, probs = _smoothed(levels, segment, rows)
        best, best_log_prob = _most_probable(levels, rows.shape[1])
        time = rows.shape[1]
        return Summaries(
            log_marginal=_log_marginal(levels[-1], rows),
            switch_filtered=filtered[:, :time],
            switch_smoothed=smoothed[:, :time],
            run_length_mean=run_length[:, :time],
            probs_smoothed=probs[:, :time],
            map_switches=best[:, :time],
            map_log_prob=best_log_prob,
        )

    return in_chunks(summaries, rows)


def _log_marginal(root: Level, rows: Int[Array, "flat time"]) -> Float[Array, " flat"]:
    seen = tuple(part[..., : rows.shape[1]] for part in root.predictive)
    return jnp.log(of_symbol(seen, rows)).sum(-1)


def _filtered(
    levels: list[Level],
) -> tuple[Float[Array, "flat padded"], Float[Array, "flat padded"]]:
    """P(a segment starts at t | x_<=t), and the mean length of the segment so far."""
    padded = levels[0].log_odds.shape[-1]
    starts = jnp.ones_like(levels[0].log_odds)
    run_length = jnp.ones_like(starts)
    for level in levels[1:]:
        splits = jax.nn.sigmoid(-(level.log_odds + level.log_odds_step))
        since = jnp.arange(padded) % 2**level.height  # into the node
        starts = jnp.where(since > 0, starts * splits, starts)
        run_length = since + 1 + splits * (run_length - (since + 1))
    return starts.at[:, 0].set(0), run_length


def _smoothed(
    levels: list[Level], segment: Segment, rows: Int[Array, "flat time"]
) -> tuple[Float[Array, "flat padded"], Float[Array, "flat padded alphabet"]]:
    """P(a segment starts at t | x), and the posterior mean of the distribution at t."""
    flat, time = rows.shape
    padded = levels[0].log_odds.shape[-1]
    hot = jax.nn.one_hot(rows, segment.alphabet)
    hot = jnp.pad(hot, ((0, 0), (0, padded - time), (0, 0)))
    alive = jnp.ones((flat, 1))  # P(all ancestors split | x)
    switches = jnp.zeros((flat, 1))
    probs = jnp.zeros((flat, padded, segment.alphabet))
    for level in reversed(levels):
        nodes, width = padded >> level.height, 1 << level.height
        counts = hot.reshape(flat, nodes, width, -1).sum(2)
        splits = (
            jax.nn.sigmoid(-level.final_log_odds()) if level.height else jnp.zeros((flat, padded))
        )
        segments = (alive * (1 - splits))[..., None] * segment.predictive(counts)
        probs = probs + jnp.repeat(segments, width, axis=1)
        if level.height:
            alive = alive * splits
            switches, alive = _apart(_interleave(switches, alive), _interleave(alive, alive))
    return switches, probs


def _most_probable(
    levels: list[Level], time: int
) -> tuple[Bool[Array, "flat padded"], Float[Array, " flat"]]:
    """The most probable partition, and the logarithm of its posterior probability.

    A split after the end of the sequence cannot be seen, so partitions that differ only
    there are one. `none` is ln P(no visible switch in the node | its x); `some` is the
    largest ln P of one partition of the node that has a visible switch.
    """
    flat, padded = levels[0].log_odds.shape
    none, some = jnp.zeros((flat, padded)), jnp.full((flat, padded), -jnp.inf)
    prefers: list[Array] = []
    visible: list[np.ndarray] = []
    for level in levels[1:]:
        seen = _midpoints(level, padded) < time
        odds = level.final_log_odds()
        stops, splits = jax.nn.log_sigmoid(odds), jax.nn.log_sigmoid(-odds)
        both = splits + _pairs(jnp.maximum(none, some)).sum(-1)
        if seen.all():
            none, some = stops, both
        else:
            none, some = (
                jnp.where(seen, stops, jnp.logaddexp(stops, splits + _pairs(none)[..., 0])),
                jnp.where(seen, both, splits + _pairs(some)[..., 0]),
            )
        none, some = _apart(none, some)
        prefers.append(some > none)
        visible.append(seen)
    log_prob = jnp.maximum(none, some)[:, 0]

    free = jnp.ones((flat, 1), bool)  # may choose what it prefers
    forced = jnp.zeros((flat, 1), bool)  # must have a visible switch
    switches = jnp.zeros((flat, 1), bool)
    for prefer, seen in zip(reversed(prefers), reversed(visible), strict=True):
        splits = (free & prefer) | forced
        switches, free, forced = _apart(
            _interleave(switches, splits & seen),
            _interleave(splits & seen, splits & seen),
            _interleave(splits & ~seen, jnp.zeros_like(splits)),
        )
    return switches, log_prob


def _midpoints(level: Level, padded: int) -> Int[np.ndarray, " nodes"]:
    """Where the right halves of the nodes of a level start: the switch that a split makes."""
    return np.arange(padded >> level.height) * 2**level.height + 2 ** (level.height - 1)


def _convolved(
    left: Float[Array, "flat nodes counts"], right: Float[Array, "flat nodes counts"], size: int
) -> Float[Array, "flat nodes size"]:
    """The law of the sum of two independent counts, up to `size` - 1."""
    lags = np.arange(size) - np.arange(left.shape[-1])[:, None]
    possible = (lags >= 0) & (lags < right.shape[-1])
    shifted = jnp.where(possible, right[..., np.where(possible, lags, 0)], 0)
    return jnp.einsum("fna,fnak->fnk", left, shifted, precision=lax.Precision.HIGHEST)


def _interleave(left: Array, right: Array) -> Array:
    """left[0], right[0], left[1], right[1], ... along the last axis."""
    return jnp.stack([left, right], axis=-1).reshape(*left.shape[:-1], -1)


def _apart(*levels: Array) -> tuple[Array, ...]:
    """The same arrays, computed once.

    Without it a compiler for GPUs computes every level again inside the next: 2^depth times.
    """
    return lax.optimization_barrier(levels)


def _pairs(values: Array) -> Array:
    """Neighbours side by side on a last axis of 2: the halves of each node."""
    return values.reshape(*values.shape[:-1], -1, 2)
