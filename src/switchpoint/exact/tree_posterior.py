"""The posterior of a PTW source, in one pass down the tree: O(n depth).

Given its own data, whether a node splits is independent of everything outside it. So the posterior
probability that a node exists is the product of its ancestors' posterior split probabilities.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from switchpoint._batching import in_chunks
from switchpoint._random import uniform
from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.hypotheses import Sequences
from switchpoint.exact.levels import Levels, add_levels, level_fields, levels_of, side_by_side
from switchpoint.exact.posterior import Partitions, Posterior, make_posterior
from switchpoint.exact.tree import TreeLevel, tree_levels
from switchpoint.priors import PTW
from switchpoint.segments import Dirichlet, Segment
from switchpoint.segments.base import Statistics
from switchpoint.segments.dirichlet import as_dirichlet


def tree_posterior(
    predictor: ExactPredictor[Any], sequences: Sequences, batch: tuple[int, ...]
) -> Posterior:
    """The posterior over switching points under PTW of a flat batch of that shape."""
    prior, segment = cast(PTW, predictor.prior), predictor.segment
    fields = _fields(prior, segment, sequences)
    return make_posterior(fields, batch, TreePartitions(prior, segment, sequences))


class TreePartitions(Partitions):
    """The posterior distribution of partitions, through the nodes that split."""

    prior: PTW
    segment: Segment
    sequences: Sequences

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of sequences and of their observations."""
        flat, time = self.sequences.values.shape[:2]
        return flat, time

    def levels(self) -> list[TreeLevel]:
        """The levels of the tree from height 0 to the root."""
        return list(tree_levels(self.prior, self.segment, self.sequences))

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Splits nodes from the root down, each with its posterior probability."""
        flat, time = self.shape
        splits = []
        for level in self.levels()[1:]:
            chances = _splits(level)
            coins = uniform(jax.random.fold_in(key, level.height), (count, *chances.shape))
            splits.append(coins < chances)
        return _switches(jnp.ones((count, flat, 1), bool), splits)[..., :time]

    @functools.partial(jax.jit, static_argnames="most")
    def run_lengths(self, most: int) -> Float[Array, "flat time lengths"]:
        """By the node around each observation that is its segment, given those up to it."""
        flat, time = self.shape
        times = np.arange(time)
        runs, alive = jnp.zeros((flat, time, most)), jnp.ones((flat, time))
        for level in reversed(self.levels()):
            after = (level.log_odds + level.log_odds_step)[:, :time]
            stays = jax.nn.sigmoid(after) if level.height else jnp.ones_like(after)
            since = times % 2**level.height  # into the node; the same for all that begin together
            runs = runs.at[:, times, since].add(alive * stays, mode="drop")
            alive = alive * jax.nn.sigmoid(-after)
        return runs

    @functools.partial(jax.jit, static_argnames="most")
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """By the numbers of switches in the two halves of each node."""
        flat, time = self.shape
        *_, root = levels = self.levels()
        padded = root.log_odds.shape[-1]
        pmf = jnp.ones((flat, padded, 1))  # of the number of switches in a node
        for level in levels[1:]:
            size = min(most + 1, 2**level.height)
            both = _convolved(pmf[:, ::2], pmf[:, 1::2], size)
            counted = jnp.pad(both, ((0, 0), (0, 0), (1, 0)))[..., :size]
            seen = _midpoints(level, padded) < time
            splits = jax.nn.sigmoid(-level.final_log_odds())[..., None]
            pmf = splits * jnp.where(seen[:, None], counted, both)
            pmf = pmf.at[..., 0].add(jax.nn.sigmoid(level.final_log_odds()))
            (pmf,) = _materialize(pmf)
        return jnp.pad(pmf[:, 0], ((0, 0), (0, max(0, most + 1 - pmf.shape[-1]))))

    @jax.jit
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """By the probability of none in the two halves of each node."""
        flat, time = self.shape
        *_, root = levels = self.levels()
        padded = root.log_odds.shape[-1]
        outside = 1.0 - jnp.pad(windows, ((0, 0), (0, padded - time))).T
        none = jnp.ones((flat, padded, len(windows)))
        for level in levels[1:]:
            splits = _splits(level)[..., None]
            both = none[:, ::2] * none[:, 1::2] * outside[_midpoints(level, padded)]
            (none,) = _materialize(1 - splits * (1 - both))
        return none[:, 0]


@jax.jit
def _fields(prior: PTW, segment: Segment, sequences: Sequences) -> dict[str, Array]:
    def fields(sequences: Sequences) -> dict[str, Array]:
        levels = list(tree_levels(prior, segment, sequences))
        time = sequences.values.shape[1]
        filtered, run_length = _filtered(levels)
        splits = [_splits(level) for level in levels[1:]]
        best, best_log_prob = _most_probable(levels, time)
        return {
            "log_marginal": levels[-1].log_density[:, :time].sum(-1),
            "switch_filtered": filtered[:, :time],
            "switch_smoothed": _switches(jnp.ones((len(best), 1)), splits)[:, :time],
            "run_length_mean": run_length[:, :time],
            "map_switches": best[:, :time],
            "map_log_prob": best_log_prob,
            **(
                _probs_smoothed(levels, as_dirichlet(segment), sequences.values)
                if sequences.counted_by(segment)
                else _level_smoothed(levels, segment, sequences)
            ),
        }

    return in_chunks(fields, sequences, 1 if sequences.counted_by(segment) else 8)


def _filtered(
    levels: Sequence[TreeLevel],
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


def _splits(level: TreeLevel) -> Float[Array, "flat nodes"]:
    """P(the node splits | all its x)."""
    if level.height == 0:
        return jnp.zeros_like(level.log_odds)
    return jax.nn.sigmoid(-level.final_log_odds())


def _switches(
    exists: Shaped[Array, "*any 1"], splits: Sequence[Array]
) -> Shaped[Array, "*any padded"]:
    """Where segments start, from the nodes of each height that split if they exist.

    Or the probabilities of both, where P(a node exists | x) is that all of its ancestors split.
    """
    switches = jnp.zeros_like(exists)
    for each in reversed(splits):
        exists = exists * each
        switches, exists = _materialize(_interleave(switches, exists), _interleave(exists, exists))
    return switches


def _segment_probs(
    levels: Sequence[TreeLevel],
) -> Iterator[tuple[TreeLevel, Float[Array, "flat nodes"]]]:
    """From the root down, P(the node is a segment | x)."""
    alive = jnp.ones((len(levels[0].log_odds), 1))
    for level in reversed(levels):
        splits = _splits(level)
        yield level, alive * (1 - splits)
        if level.height:
            alive = alive * splits
            (alive,) = _materialize(_interleave(alive, alive))


def _probs_smoothed(
    levels: Sequence[TreeLevel], segment: Dirichlet, rows: Int[Array, "flat time"]
) -> dict[str, Array]:
    """The posterior mean of the distribution at t."""
    flat, time = rows.shape
    padded = levels[0].log_odds.shape[-1]
    hot = jax.nn.one_hot(rows, segment.alphabet)
    hot = jnp.pad(hot, ((0, 0), (0, padded - time), (0, 0)))
    probs = jnp.zeros((flat, padded, segment.alphabet))
    for level, chances in _segment_probs(levels):
        nodes, width = padded >> level.height, 1 << level.height
        counts = hot.reshape(flat, nodes, width, -1).sum(2)
        probs = probs + jnp.repeat(chances[..., None] * segment.probs(counts), width, axis=1)
    return {"probs_smoothed": probs[:, :time]}


def _level_smoothed(
    levels: Sequence[TreeLevel], segment: Segment, sequences: Sequences
) -> dict[str, Array]:
    """The posterior of the level at t: a mixture over the nodes that contain it."""
    fresh = sequences.initial_statistics(segment)
    time = sequences.values.shape[1]

    def of_node(fresh: Statistics, totals: Statistics) -> Any:
        after = levels_of(segment, segment.merge(fresh, totals))
        return [(column.mean, column.covariance) for column in after]

    def at_time(weight: Array, fresh: Statistics, before: Statistics, of_node: Any) -> Levels:
        columns = []
        here = levels_of(segment, segment.merge(fresh, before))
        for column, (mean, covariance) in zip(here, of_node, strict=True):
            features, variance = column.features, None
            if covariance is not None:
                variance = jnp.einsum("d,e,deo->o", features, features, covariance)
            columns.append(Levels(weight, features @ mean, variance))
        return side_by_side(columns)

    def of_level(level: TreeLevel, chances: Float[Array, "flat nodes"]) -> Levels:
        of_nodes = jax.vmap(jax.vmap(of_node, in_axes=(None, 0)))(fresh, level.totals)
        repeated = jax.tree.map(
            lambda leaf: jnp.repeat(leaf, 2**level.height, axis=1), (chances, of_nodes)
        )
        return jax.vmap(jax.vmap(at_time, in_axes=(0, None, 0, 0), out_axes=-1))(
            repeated[0], fresh, level.before, repeated[1]
        )

    mixtures = (of_level(level, chances) for level, chances in _segment_probs(levels))
    total = functools.reduce(jax.vmap(add_levels), mixtures)
    mean, variance = jax.tree.map(lambda leaf: leaf[..., :time], (total.mean, total.variance))
    return level_fields(segment, mean, variance, sequences.offset)


def _most_probable(
    levels: Sequence[TreeLevel], time: int
) -> tuple[Bool[Array, "flat padded"], Float[Array, " flat"]]:
    """The most probable partition, and the logarithm of its posterior probability.

    A split after the end of the sequence cannot be observed, so partitions that differ only
    there are the same. `none` is ln P(no visible switch in the node | its x); `some` is the
    largest ln P of a partition of the node with a visible switch.
    """
    flat, padded = levels[0].log_odds.shape
    none, some = jnp.zeros((flat, padded)), jnp.full((flat, padded), -jnp.inf)
    prefers: list[Array] = []
    visible: list[np.ndarray] = []
    for level in levels[1:]:
        seen = _midpoints(level, padded) < time
        odds = level.final_log_odds()
        stops, splits = jax.nn.log_sigmoid(odds), jax.nn.log_sigmoid(-odds)
        both = splits + _halves(jnp.maximum(none, some)).sum(-1)
        if seen.all():
            none, some = stops, both
        else:
            none, some = (
                jnp.where(seen, stops, jnp.logaddexp(stops, splits + _halves(none)[..., 0])),
                jnp.where(seen, both, splits + _halves(some)[..., 0]),
            )
        none, some = _materialize(none, some)
        prefers.append(some > none)
        visible.append(seen)
    log_prob = jnp.maximum(none, some)[:, 0]

    free = jnp.ones((flat, 1), bool)  # may take the better choice
    forced = jnp.zeros((flat, 1), bool)  # must have a visible switch
    switches = jnp.zeros((flat, 1), bool)
    for prefer, seen in zip(reversed(prefers), reversed(visible), strict=True):
        splits = (free & prefer) | forced
        switches, free, forced = _materialize(
            _interleave(switches, splits & seen),
            _interleave(splits & seen, splits & seen),
            _interleave(splits & ~seen, jnp.zeros_like(splits)),
        )
    return switches, log_prob


def _midpoints(level: TreeLevel, padded: int) -> Int[np.ndarray, " nodes"]:
    """The midpoints of the nodes of a level: where a split puts a switch."""
    return np.arange(padded >> level.height) * 2**level.height + 2 ** (level.height - 1)


def _convolved(
    left: Float[Array, "flat nodes counts"], right: Float[Array, "flat nodes counts"], size: int
) -> Float[Array, "flat nodes size"]:
    """The pmf of the sum of two independent counts, up to `size` - 1."""
    lags = np.arange(size) - np.arange(left.shape[-1])[:, None]
    possible = (lags >= 0) & (lags < right.shape[-1])
    shifted = jnp.where(possible, right[..., np.where(possible, lags, 0)], 0)
    return jnp.einsum("fna,fnak->fnk", left, shifted, precision=lax.Precision.HIGHEST)


def _interleave(left: Array, right: Array) -> Array:
    """left[0], right[0], left[1], right[1], ... along the last axis."""
    return jnp.stack([left, right], axis=-1).reshape(*left.shape[:-1], -1)


def _materialize(*levels: Array) -> tuple[Array, ...]:
    """The same arrays, computed once.

    Without the barrier XLA on a GPU would recompute each level inside the next: 2^depth times.
    """
    return lax.optimization_barrier(levels)


def _halves(values: Array) -> Array:
    """The two halves of each node, along a last axis of 2."""
    return values.reshape(*values.shape[:-1], -1, 2)
