"""PTW of a chunk of a stream: all times of a level of the tree together.

As in `family_tree.py`, one level after another from the leaves up; but the chunk begins anywhere,
and the nodes around its first observation have a past. It is placed in an array of blocks, each of
2^v times and a few times shorter than the chunk, so that nodes of height below v lie within blocks.
Higher nodes end at most between blocks: what one has gathered before t is what it had at the start
of the block, merged with the block before t. Nodes that begin and end together are one hypothesis:
of 40 levels, no more are computed than the time has binary digits 1, and one more.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from switchpoint._prefix_sums import sum_before, sum_before_within
from switchpoint.exact.counting import Clock, select_symbol
from switchpoint.exact.recursion import MAX_FEW
from switchpoint.segments import Dirichlet, Segment
from switchpoint.segments.base import Statistics

_LOG_BLOCKS = 2  # a chunk of a power of two is as long as four blocks


class Nodes(NamedTuple):
    """The nodes around an observation, by height."""

    statistics: Statistics
    log_odds: Float[Array, " heights"]


class _Chunk(NamedTuple):
    """A chunk in an array of blocks."""

    values: Float[Array, "blocks width *event"]
    """NaN outside the chunk."""
    seen: Bool[Array, "blocks width"]
    """Where the chunk has an observation that is not missing."""
    begin: Int[Array, ""]
    """The place of its first observation, in the first block."""
    end: Int[Array, ""]
    """The place after its last."""


class _Prediction(NamedTuple):
    """What the nodes of one height predict at each time."""

    log_density: Float[Array, "nodes time"] | None
    """ln p(x_t), if there is no alphabet."""
    probs: tuple[Float[Array, "nodes time *alphabet"], ...]
    """P(x_t = k): one array per symbol of a small alphabet, or one of all symbols."""

    def log_ratio(self, below: "_Prediction", values: Float[Array, "..."]) -> Array:
        """ln p(x_t) minus that of what is below."""
        if self.log_density is not None and below.log_density is not None:
            return self.log_density - below.log_density
        symbols = jnp.where(jnp.isnan(values), 0, values).astype(jnp.int32)
        return jnp.log(_of_symbol(self.probs, symbols) / _of_symbol(below.probs, symbols))

    def mixed(self, below: "_Prediction", log_odds: Float[Array, "nodes time"]) -> "_Prediction":
        """The mixture with what is below, where a node does not split with these log-odds."""
        if self.log_density is not None and below.log_density is not None:
            stays = jax.nn.log_sigmoid(log_odds)
            return _Prediction(
                jnp.logaddexp(self.log_density + stays, below.log_density + (stays - log_odds)), ()
            )
        chance = jax.nn.sigmoid(log_odds)
        probs = tuple(
            under + chance.reshape(*chance.shape, *(1,) * (over.ndim - 2)) * (over - under)
            for over, under in zip(self.probs, below.probs, strict=True)
        )
        return _Prediction(None, probs)


class _Counts(NamedTuple):
    """Independent symbols of a small alphabet: the same as the segment, with an array for each."""

    segment: Dirichlet

    def empty(self) -> Statistics:
        return (jnp.zeros((), jnp.int32),) * self.segment.alphabet

    def run_of(self, x: Float[Array, ""]) -> Statistics:
        return tuple((x == k).astype(jnp.int32) for k in range(self.segment.alphabet))

    def merge(self, before: Statistics, after: Statistics) -> Statistics:
        merged = self.segment.merge(jnp.stack(before), jnp.stack(after))
        return tuple(merged)

    def probs(self, counts: Statistics) -> tuple[Float[Array, ""], ...]:
        pseudo = list(jnp.asarray(self.segment.pseudo_counts))
        scale = 1 / (sum(counts) + sum(pseudo))
        return tuple((count + each) * scale for count, each in zip(counts, pseudo, strict=True))


def extend_tree(
    segment: Segment,
    time: Clock,
    nodes: Nodes,
    empty: Nodes,
    values: Float[Array, "time *event"],
) -> tuple[Clock, Nodes, Float[Array, "time *alphabet"]]:
    """The time and the nodes after a chunk, and the predictions of its observations.

    `empty` are the nodes without observations. Predictions are ln P(x_t = k) for each k, or
    ln p(x_t) where there is no alphabet.
    """
    if isinstance(segment, Dirichlet) and segment.alphabet <= MAX_FEW:
        nodes, empty = (
            Nodes(tuple(jnp.moveaxis(each.statistics, -1, 0)), each.log_odds)
            for each in (nodes, empty)
        )
        time, nodes, logs = _extend_tree(_Counts(segment), time, nodes, empty, values)
        return time, Nodes(jnp.stack(nodes.statistics, axis=-1), nodes.log_odds), logs
    return _extend_tree(segment, time, nodes, empty, values)


def _extend_tree(
    segment: Segment | _Counts,
    time: Clock,
    nodes: Nodes,
    empty: Nodes,
    values: Float[Array, "time *event"],
) -> tuple[Clock, Nodes, Float[Array, "time *alphabet"]]:
    length = len(values)
    width = 2 ** max(1, (length - 1).bit_length() - _LOG_BLOCKS)
    blocks = 1 + -(-length // width)  # for any begin, with a place after the end
    begin = time.low & (width - 1)

    def place(values: Any, outside: Any) -> Any:
        def placed(leaf: Array, outside: Array) -> Array:
            room = _spread(outside.astype(leaf.dtype), blocks * width)
            return lax.dynamic_update_slice_in_dim(room, leaf, begin, axis=0)

        return _cut(jax.tree.map(placed, values, outside), 1, blocks, width)

    def take(array: Array) -> Array:
        return lax.dynamic_slice_in_dim(_cut(array, 2, -1), begin, length, axis=0)

    chunk = _Chunk(
        place(values, jnp.full(values.shape[1:], jnp.nan)),
        place(~jnp.isnan(values).reshape(length, -1).all(-1), jnp.zeros((), bool)),
        begin,
        begin + length,
    )
    runs = place(jax.vmap(segment.run_of)(values), segment.empty())
    lower, below, before, totals = _within_blocks(segment, chunk, nodes, empty, runs)
    height = width.bit_length() - 1
    nodes, empty = (jax.tree.map(lambda leaf: leaf[height:], each) for each in (nodes, empty))
    upper, top = _across_blocks(segment, time, chunk, nodes, empty, below, before, totals)
    after = jax.tree.map(lambda *parts: jnp.concatenate(parts), lower, upper)
    if top.log_density is not None:
        logs = take(top.log_density)
    else:
        parts = [take(each) for each in top.probs]
        probs = jnp.stack(parts, axis=-1) if len(parts) > 1 else parts[0]
        logs = jnp.log(probs / probs.sum(-1, keepdims=True))
    return time.plus(jnp.asarray(length, jnp.int32)), after, logs


def _within_blocks(
    segment: Segment | _Counts, chunk: _Chunk, nodes: Nodes, empty: Nodes, runs: Statistics
) -> tuple[Nodes, _Prediction, Statistics, Statistics]:
    """The nodes lower than blocks after the chunk, and the predictions of the highest of them.

    And the statistics of each block before t, and of each block, both without the prior.
    """
    blocks, width = chunk.seen.shape
    fresh = _at(empty.statistics, 0)
    values = _cut(chunk.values, 2, -1, 1)
    alone, before = (
        jax.tree.map(lambda leaf: _spread(leaf, len(values), 1), each)
        for each in (fresh, segment.empty())
    )
    own = _predict(segment, alone, values)
    mixture, totals = own, _cut(runs, 2, -1)
    after = [_at(empty, 0)]  # a leaf ends with its observation
    for height in range(1, width.bit_length()):
        size = 2**height
        left, right = _halves(_cut(totals, 1, -1, 2))
        earlier, later = _halves(_cut(before, 2, -1, 2, size // 2))
        later = _merge_each(segment, left, later)
        before, totals = _join(earlier, later), jax.vmap(segment.merge)(left, right)
        if size == width:
            break
        first = jnp.arange(blocks * width // size) == chunk.begin >> height
        past = _at(nodes, height)
        starts = _select(first, past.statistics, fresh)
        # In its left half, a node has the past of its left child, and predicts the same.
        values = _cut(chunk.values, 2, -1, 2, size // 2)
        new = _predict(segment, _merge_each(segment, starts, later), values[:, 1])
        own = _join(_halves(_cut(own, 2, -1, 2, size // 2))[0], new)
        mixture = _cut(mixture, 2, -1, size)
        times = _cut((chunk.seen, chunk.values), 2, -1, size)
        step = jnp.where(times[0], own.log_ratio(mixture, times[1]), 0.0)
        sums = sum_before_within(step.reshape(blocks, width), size).reshape(step.shape)
        log_odds = jnp.where(first, past.log_odds, empty.log_odds[height])[:, None] + sums
        mixture = own.mixed(mixture, log_odds)
        node, index = chunk.end >> height, chunk.end & (size - 1)
        statistics = segment.merge(_at(starts, node), _at(before, (node, index)))
        after.append(Nodes(statistics, log_odds[node, index]))
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *after)
    return stacked, _cut(mixture, 2, blocks, width), before, totals


class _Group(NamedTuple):
    """Nodes of adjacent heights that begin and end together, in the row of the lowest."""

    lowest: Bool[Array, ""]
    """Whether this is the lowest node of a group."""
    statistics: Statistics
    """What its nodes have gathered before the chunk."""
    log_odds: Float[Array, ""]
    """That they do not all split."""
    empty_log_odds: Float[Array, ""]
    """The same, after they have ended in the chunk."""
    ends: Bool[Array, " blocks"]
    """Whether they end before each block."""


class _Outcome(NamedTuple):
    """A group after the chunk."""

    statistics: Statistics
    log_ratio: Float[Array, ""]
    """ln of the likelihood of one segment over that of what is below, since they began or the
    chunk did."""
    ended: Bool[Array, ""]
    """Whether they began in the chunk."""


def _across_blocks(
    segment: Segment | _Counts,
    time: Clock,
    chunk: _Chunk,
    nodes: Nodes,
    empty: Nodes,
    below: _Prediction,
    before: Statistics,
    totals: Statistics,
) -> tuple[Nodes, _Prediction]:
    """The nodes that are not lower than blocks after the chunk, and the predictions of the root."""
    blocks, width = chunk.seen.shape
    fresh = _at(empty.statistics, 0)
    heights = jnp.arange(len(nodes.log_odds)) + width.bit_length() - 1
    edges = jnp.arange(1, blocks, dtype=jnp.int32) * width
    zeros = time.plus(edges - chunk.begin).trailing_zeros()
    zeros = jnp.where(edges <= chunk.end, zeros, -1)
    ends = jnp.pad(zeros >= heights[:, None], ((0, 0), (1, 0)))
    # The next lower node began later, or ends in the chunk where this one does not.
    lowest = time.bit(heights - 1) | (zeros == heights[:, None] - 1).any(-1)
    lowest = lowest.at[0].set(True)
    numbers = jnp.arange(len(heights))
    highest = lax.cummin(jnp.where(jnp.roll(lowest, -1), numbers, len(heights) - 1), reverse=True)
    lowest_of = lax.cummax(jnp.where(lowest, numbers, 0))
    old, new = (_stops(lowest, each.log_odds) for each in (nodes, empty))

    def climb(below: _Prediction, group: _Group) -> tuple[_Prediction, _Outcome]:
        return lax.cond(group.lowest, compute, skip, below, group)

    def skip(below: _Prediction, group: _Group) -> tuple[_Prediction, _Outcome]:
        return below, _Outcome(group.statistics, jnp.zeros(()), jnp.zeros((), bool))

    def compute(below: _Prediction, group: _Group) -> tuple[_Prediction, _Outcome]:
        starts, ratios = [group.statistics], [jnp.zeros(())]
        for block in range(1, blocks):
            merged = segment.merge(starts[-1], _at(totals, block - 1))
            starts.append(_select(group.ends[block], fresh, merged))
        gathered = _merge_each(segment, jax.tree.map(lambda *x: jnp.stack(x), *starts), before)
        own = _predict(segment, gathered, chunk.values)
        step = jnp.where(chunk.seen, own.log_ratio(below, chunk.values), 0.0)
        for block, more in enumerate(step.sum(-1)[:-1], start=1):
            ratios.append(jnp.where(group.ends[block], 0.0, ratios[-1] + more))
        log_ratio = jnp.stack(ratios)[:, None] + sum_before(step)
        ended = jnp.cumsum(group.ends) > 0
        log_odds = jnp.where(ended, group.empty_log_odds, group.log_odds)[:, None] + log_ratio
        at = chunk.end // width, chunk.end % width
        outcome = _Outcome(_at(gathered, at), log_ratio[at], ended[at[0]])
        return own.mixed(below, log_odds), outcome

    groups = _Group(lowest, nodes.statistics, old.log_odds[highest], new.log_odds[highest], ends)
    top, outcomes = lax.scan(climb, below, groups)
    statistics, log_ratio, ended = jax.tree.map(lambda leaf: leaf[lowest_of], outcomes)
    stop = jnp.where(ended, new.stop_below, old.stop_below)
    split = jnp.where(ended, new.split_below, old.split_below)
    log_odds = jnp.where(ended, empty.log_odds, nodes.log_odds)
    return Nodes(statistics, log_odds - jnp.logaddexp(stop, split - log_ratio)), top


class _Stops(NamedTuple):
    """For each node, what is known of the nodes of its group: log probabilities."""

    stop_below: Float[Array, " heights"]
    """That a lower one does not split, given that this one splits."""
    split_below: Float[Array, " heights"]
    """That all lower ones split, given that this one splits."""
    log_odds: Float[Array, " heights"]
    """Log-odds that this one or a lower one does not split."""


def _stops(lowest: Bool[Array, " heights"], log_odds: Float[Array, " heights"]) -> _Stops:
    def climb(below: tuple[Array, Array], node: tuple[Array, Array, Array]) -> Any:
        first, stays, splits = node
        stop = jnp.where(first, -jnp.inf, below[0])
        split = jnp.where(first, 0.0, below[1])
        here = jnp.logaddexp(stays, splits + stop), splits + split
        return here, _Stops(stop, split, here[0] - here[1])

    rows = lowest, jax.nn.log_sigmoid(log_odds), jax.nn.log_sigmoid(-log_odds)
    return lax.scan(climb, (jnp.zeros(()), jnp.zeros(())), rows)[1]


def _predict(segment: Segment | _Counts, statistics: Statistics, values: Array) -> _Prediction:
    """What segments with these statistics predict: (nodes, time)."""

    def predict(statistics: Statistics, x: Array) -> _Prediction:
        if isinstance(segment, _Counts):
            return _Prediction(None, segment.probs(statistics))
        if segment.finite:
            predictive: Any = segment.predictive(statistics)
            return _Prediction(None, (predictive.probs,))
        return _Prediction(segment.log_density(statistics, x), ())

    return jax.vmap(jax.vmap(predict))(statistics, values)


def _of_symbol(probs: tuple[Array, ...], symbols: Int[Array, "nodes time"]) -> Array:
    """The probability of the symbol that occurred."""
    if len(probs) > 1:
        return select_symbol(symbols, probs)
    return jnp.take_along_axis(probs[0], symbols[..., None], axis=-1)[..., 0]


def _merge_each(segment: Segment | _Counts, starts: Statistics, runs: Statistics) -> Statistics:
    """The start of each node, merged with each of its runs: (nodes, time)."""
    return jax.vmap(jax.vmap(segment.merge, in_axes=(None, 0)))(starts, runs)


def _cut(tree: Any, axes: int, *shape: int) -> Any:
    """Arrays with axes of this shape instead of their first ones."""
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[axes:]), tree)


def _spread(leaf: Array, *shape: int) -> Array:
    """An array that is the same along new axes in front."""
    return jnp.broadcast_to(leaf, (*shape, *leaf.shape))


def _halves(tree: Any) -> tuple[Any, Any]:
    """Both halves of nodes, along the second axis."""
    one, other = (jax.tree.map(lambda leaf, i=i: leaf[:, i], tree) for i in (0, 1))
    return one, other


def _join(one: Any, other: Any) -> Any:
    """The times of the left and of the right half of each node together."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), one, other)


def _at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _select(condition: Bool[Array, "*nodes"], one: Any, other: Any) -> Any:
    """Statistics where a condition holds, and others elsewhere."""

    def select(one: Array, other: Array) -> Array:
        shape = (*condition.shape, *(1,) * one.ndim)
        return jnp.where(condition.reshape(shape), one, other)

    return jax.tree.map(select, one, other)
