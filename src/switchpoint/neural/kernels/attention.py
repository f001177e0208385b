"""Causal attention, forward and backward: scores are made on the chip and never leave it.

A head has 16 columns. In `query` the first 8 are the query and the rest are zero; in `pair` the
first 8 are the key and the rest the value, so that a product with a query is with the key alone,
and the last 8 columns of a mean of pairs are the mean of the values. Scores are in units of
log 2. Rows are all times of all sequences, one sequence after another.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.blocks import HEADS
from switchpoint.neural.kernels.arithmetic import dot
from switchpoint.neural.kernels.call import NARROW, Shape, call
from switchpoint.neural.kernels.rows import Layer

PAIR = 16
"""The columns of a head."""

_UNSEEN = -1e30


class Scope(NamedTuple):
    """What scores depend on besides queries and keys; static, or the same for all layers."""

    time: int
    """How many rows a sequence has."""
    context: int | None
    """How many keys a query sees, its own included; None for all before it."""
    waves: int
    """How many columns of a head tell positions; none where they are told otherwise."""
    alibi: bool
    """Whether each head takes its slope times the distance from a score."""


class Blocks(NamedTuple):
    """How a kernel is cut: queries and keys at a time, and what the compiler is told."""

    queries: int
    keys: int
    warps: int
    stages: int

    def within(self, time: int) -> "Blocks":
        """The same for sequences that may be shorter."""
        return self._replace(queries=min(self.queries, time), keys=min(self.keys, time))


FORWARD = Blocks(queries=64, keys=64, warps=4, stages=2)
OF_QUERIES = Blocks(queries=64, keys=64, warps=4, stages=2)
OF_PAIRS = Blocks(queries=64, keys=64, warps=4, stages=2)
LONGEST = 64
"""Of blocks: longer sequences have a multiple of it."""


def forward(
    layer: Layer,
    query: Float[Array, "layers rows heads_pair"],
    pair: Float[Array, "layers rows heads_pair"],
    where: Float[Array, "layers rows heads_waves"] | None,
    waves: Float[Array, "time waves"] | None,
    means: Float[Array, "layers rows heads_pair"],
    sizes: Float[Array, "layers heads rows"],
    scope: Scope,
) -> list[Array]:
    """The means and sizes (the logarithm of the sum of a query's weights), one layer's set."""
    blocks = FORWARD.within(scope.time)
    rows, heads = query.shape[1], query.shape[2] // PAIR
    positional = () if where is None else (where, waves)
    return call(
        partial(_forward, scope=scope, blocks=blocks),
        "attend",
        (scope.time // blocks.queries, heads, rows // scope.time),
        (layer, query, pair, *positional),
        (means, sizes),
        warps=blocks.warps,
        stages=blocks.stages,
    )


def backward(
    layer: Layer,
    query: Float[Array, "layers rows heads_pair"],
    pair: Float[Array, "layers rows heads_pair"],
    where: Float[Array, "layers rows heads_waves"] | None,
    waves: Float[Array, "time waves"] | None,
    means: Float[Array, "layers rows heads_pair"],
    sizes: Float[Array, "layers heads rows"],
    d_means: Float[Array, "rows heads_pair"],
    scope: Scope,
) -> list[Array]:
    """The derivatives of pairs and queries, and of where queries are if that is given.

    The last 8 columns of a query's derivative mean nothing. Scores are made twice, once for the
    queries and once for the pairs: what one pass would have to hold does not fit on the chip.
    """
    _, rows, columns = query.shape
    heads, batch = columns // PAIR, rows // scope.time
    positional = () if where is None else (where, waves)
    made: list[Shape] = [((heads, rows), jnp.float32), ((rows, columns), NARROW)]
    if where is not None:
        made.append((where.shape[1:], NARROW))
    blocks = OF_QUERIES.within(scope.time)
    shared, *slopes = call(
        partial(_of_queries, scope=scope, blocks=blocks),
        "attend_queries",
        (scope.time // blocks.queries, heads, batch),
        (layer, query, pair, means, sizes, d_means, *positional),
        made=made,
        warps=blocks.warps,
        stages=blocks.stages,
    )
    blocks = OF_PAIRS.within(scope.time)
    (d_pair,) = call(
        partial(_of_pairs, scope=scope, blocks=blocks),
        "attend_pairs",
        (scope.time // blocks.keys, heads, batch),
        (layer, query, pair, sizes, d_means, shared, *positional),
        made=[((rows, columns), NARROW)],
        warps=blocks.warps,
        stages=blocks.stages,
    )
    return [d_pair, *slopes]


def _forward(layer: Layer, query: Any, pair: Any, *rest: Any, scope: Scope, blocks: Blocks) -> None:
    *positional, means, sizes = rest
    block, head, sequence = (pl.program_id(axis) for axis in range(3))
    begin = sequence * scope.time
    rows = pl.ds(begin + block * blocks.queries, blocks.queries)
    own = pl.ds(head * PAIR, PAIR)
    here = query[layer.place[0], rows, own]
    at = _places(positional, layer.place[0], rows, head, scope)

    def add(masked: bool, index: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        highest, total, mean = carry
        first = index * blocks.keys
        seen = pair[layer.place[0], pl.ds(begin + first, blocks.keys), own]
        scores = _scores(here, seen, at, _waves(positional, first, blocks))
        scores = _with_distance(scores, block * blocks.queries, first, masked, head, scope)
        higher = jnp.maximum(highest, jnp.max(scores, axis=1))
        weights = jnp.exp2(scores - higher[:, None])
        shrink = jnp.exp2(highest - higher)
        mean = mean * shrink[:, None] + dot(weights.astype(NARROW), seen)
        return higher, total * shrink + jnp.sum(weights, axis=1), mean

    carry = (
        jnp.full(blocks.queries, _UNSEEN, jnp.float32),
        jnp.zeros(blocks.queries, jnp.float32),
        jnp.zeros((blocks.queries, PAIR), jnp.float32),
    )
    # Blocks of keys before the queries are seen whole, unless a context ends inside them.
    whole, end = _seen_blocks(block, blocks)
    carry = lax.fori_loop(_int(0), whole, partial(add, scope.context is not None), carry)
    highest, total, mean = lax.fori_loop(whole, end, partial(add, True), carry)
    means[layer.place[0], rows, own] = (mean / total[:, None]).astype(NARROW)
    sizes[layer.place[0], head, rows] = highest + jnp.log2(total)


def _of_queries(
    layer: Layer,
    query: Any,
    pair: Any,
    means: Any,
    sizes: Any,
    d_means: Any,
    *rest: Any,
    scope: Scope,
    blocks: Blocks,
) -> None:
    """The derivatives of some queries, and what all derivatives of their scores share."""
    count = 2 if scope.waves else 0
    positional, (shares, d_query, *d_where) = rest[:count], rest[count:]
    block, head, sequence = (pl.program_id(axis) for axis in range(3))
    begin = sequence * scope.time
    rows = pl.ds(begin + block * blocks.queries, blocks.queries)
    own = pl.ds(head * PAIR, PAIR)
    here = query[layer.place[0], rows, own]
    at = _places(positional, layer.place[0], rows, head, scope)
    size = sizes[layer.place[0], head, rows][:, None]
    slope = d_means[rows, own]
    mean = means[layer.place[0], rows, own].astype(jnp.float32)
    share = jnp.sum(slope.astype(jnp.float32) * mean, axis=1) * math.log(2)
    shares[head, rows] = share
    scaled = (slope.astype(jnp.float32) * math.log(2)).astype(NARROW)

    def add(masked: bool, index: Any, totals: tuple[Any, ...]) -> tuple[Any, ...]:
        first = index * blocks.keys
        seen = pair[layer.place[0], pl.ds(begin + first, blocks.keys), own]
        waves = _waves(positional, first, blocks)
        scores = _scores(here, seen, at, waves)
        scores = _with_distance(scores, block * blocks.queries, first, masked, head, scope)
        d_scores = jnp.exp2(scores - size) * (dot(scaled, seen.T) - share[:, None])
        d_scores = d_scores.astype(NARROW)
        sides = (seen,) if waves is None else (seen, waves)
        return tuple(total + dot(d_scores, side) for total, side in zip(totals, sides, strict=True))

    widths = (PAIR, scope.waves) if scope.waves else (PAIR,)
    totals = tuple(jnp.zeros((blocks.queries, width), jnp.float32) for width in widths)
    whole, end = _seen_blocks(block, blocks)
    totals = lax.fori_loop(_int(0), whole, partial(add, scope.context is not None), totals)
    totals = lax.fori_loop(whole, end, partial(add, True), totals)
    d_query[rows, own] = totals[0].astype(NARROW)
    if scope.waves:
        d_where[0][rows, pl.ds(head * scope.waves, scope.waves)] = totals[1].astype(NARROW)


def _of_pairs(
    layer: Layer,
    query: Any,
    pair: Any,
    sizes: Any,
    d_means: Any,
    shares: Any,
    *rest: Any,
    scope: Scope,
    blocks: Blocks,
) -> None:
    """The derivatives of some pairs; scores are transposed, so that sums over queries are not."""
    *positional, d_pair = rest
    block, head, sequence = (pl.program_id(axis) for axis in range(3))
    begin = sequence * scope.time
    first = block * blocks.keys
    keys = pl.ds(begin + first, blocks.keys)
    own = pl.ds(head * PAIR, PAIR)
    seen = pair[layer.place[0], keys, own]
    scaled = (seen.astype(jnp.float32) * math.log(2)).astype(NARROW)
    waves = _waves(positional, first, blocks)

    def add(masked: bool, index: Any, total: Any) -> Any:
        start = index * blocks.queries
        rows = pl.ds(begin + start, blocks.queries)
        here = query[layer.place[0], rows, own]
        slope = d_means[rows, own]
        scores = _scores(seen, here, waves, _places(positional, layer.place[0], rows, head, scope))
        scores = _with_distance(scores, start, first, masked, head, scope, keys_first=True)
        weights = jnp.exp2(scores - sizes[layer.place[0], head, rows][None, :])
        d_scores = weights * (dot(scaled, slope.T) - shares[head, rows][None, :])
        total += dot(weights.astype(NARROW), slope)
        return total + dot(d_scores.astype(NARROW), here)

    total = jnp.zeros((blocks.keys, PAIR), jnp.float32)
    low = lax.div(first, _int(blocks.queries))
    whole = lax.div(first + (blocks.keys + blocks.queries - 1), _int(blocks.queries))
    end = _int(scope.time // blocks.queries)
    total = lax.fori_loop(low, whole, partial(add, True), total)
    total = lax.fori_loop(whole, end, partial(add, scope.context is not None), total)
    d_pair[keys, own] = total.astype(NARROW)


def _seen_blocks(block: Any, blocks: Blocks) -> tuple[Any, Any]:
    """How many blocks of keys the queries see whole, and at all."""
    first = block * blocks.queries
    end = lax.div(first + (blocks.queries + blocks.keys - 1), _int(blocks.keys))
    return lax.div(first, _int(blocks.keys)), end


def _places(positional: Any, layer: Any, rows: Any, head: Any, scope: Scope) -> Any:
    if not positional:
        return None
    return positional[0][layer, rows, pl.ds(head * scope.waves, scope.waves)]


def _waves(positional: Any, first: Any, blocks: Blocks) -> Any:
    return positional[1][pl.ds(first, blocks.keys), :] if positional else None


def _scores(left: Any, right: Any, left_places: Any, right_places: Any) -> Any:
    """Those of queries and keys, or of keys and queries."""
    scores = dot(left, right.T)
    return scores if left_places is None else scores + dot(left_places, right_places.T)


def _with_distance(
    scores: Any,
    first_query: Any,
    first_key: Any,
    masked: bool,
    head: Any,
    scope: Scope,
    keys_first: bool = False,
) -> Any:
    """The scores less what distance takes from them, and unseen where the key is later."""
    if not masked and not scope.alibi:
        return scores
    down, across = (lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
    inside = across - down if keys_first else down - across
    distance = (first_query - first_key) + inside
    if scope.alibi:
        slope = jnp.exp2((head + 1).astype(jnp.float32) * (-8 / HEADS)) * math.log2(math.e)
        scores -= slope * distance.astype(jnp.float32)
    if not masked:
        return scores
    seen = distance >= 0
    if scope.context is not None:
        seen &= distance < scope.context
    return jnp.where(seen, scores, _UNSEEN)


def _int(value: int) -> Any:
    return jnp.asarray(value, jnp.int32)
