"""Causal attention, forward and backward: the scores never leave the chip.

A head has 16 columns. In `query` the first 8 are the query and the rest are zero; in `kv` the
first 8 are the key and the rest the value. So a product with a query involves the key alone, and
the last 8 columns of a weighted mean of `kv` are the weighted mean of the values. Scores are in
units of log 2. Rows are all times of all sequences, one sequence after another.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.blocks import HEADS
from switchpoint.neural.kernels.common import FP16, Shape, call, dot
from switchpoint.neural.kernels.token_wise import Activations, Layer

HEAD = 16
"""The columns of a head."""

_MASKED = -1e30


class AttentionSpec(NamedTuple):
    """The static settings of attention, the same for all layers."""

    time: int
    """The number of rows of a sequence."""
    context: int | None
    """The number of keys a query attends to, including its own; None for all so far."""
    rank: int
    """The columns per head of relative positions; 0 if positions are encoded otherwise."""
    alibi: bool
    """Whether each head subtracts its slope times the distance from a score."""


class BlockSizes(NamedTuple):
    """The numbers of queries and keys that a program handles at a time."""

    queries: int
    keys: int

    def within(self, time: int) -> "BlockSizes":
        """The sizes for sequences that may be shorter."""
        return BlockSizes(min(self.queries, time), min(self.keys, time))


BLOCKS = BlockSizes(queries=64, keys=64)
"""The length of a sequence is a multiple of both, or below them a power of two."""


def forward(
    layer: Layer,
    saved: Activations,
    rel_key: Float[Array, "time rank"] | None,
    spec: AttentionSpec,
) -> Activations:
    """The activations with this layer's attention, and the log-sum-exp of its scores."""
    blocks = BLOCKS.within(spec.time)
    rows, heads = saved.query.shape[1], saved.query.shape[2] // HEAD

    def kernel(layer: Layer, query: Any, kv: Any, *rest: Any) -> None:
        *positions, attn_out, lse = rest
        slot = layer.slot[0]
        block, head, begin, columns = _tile(spec)
        rows = pl.ds(begin + block * blocks.queries, blocks.queries)
        queries = query[slot, rows, columns]
        rel_queries = _rel_queries(positions, slot, rows, head, spec)

        def add(masked: bool, index: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            highest, total, mean = carry
            first = index * blocks.keys
            keys = kv[slot, pl.ds(begin + first, blocks.keys), columns]
            scores = _scores(queries, keys, rel_queries, _rel_keys(positions, first, blocks))
            scores = _with_distance(scores, block * blocks.queries, first, masked, head, spec)
            higher = jnp.maximum(highest, jnp.max(scores, axis=1))
            weights = jnp.exp2(scores - higher[:, None])
            rescale = jnp.exp2(highest - higher)
            mean = mean * rescale[:, None] + dot(weights.astype(FP16), keys)
            return higher, total * rescale + jnp.sum(weights, axis=1), mean

        carry = (
            jnp.full(blocks.queries, _MASKED, jnp.float32),
            jnp.zeros(blocks.queries, jnp.float32),
            jnp.zeros((blocks.queries, HEAD), jnp.float32),
        )
        highest, total, mean = _loop_over_keys(add, carry, block, blocks, spec)
        attn_out[slot, rows, columns] = (mean / total[:, None]).astype(FP16)
        lse[slot, head, rows] = highest + jnp.log2(total)

    attn_out, lse = call(
        kernel,
        "attend",
        (spec.time // blocks.queries, heads, rows // spec.time),
        (layer, saved.query, saved.kv, *(() if rel_key is None else (saved.rel_query, rel_key))),
        (saved.attn_out, saved.lse),
    )
    return saved._replace(attn_out=attn_out, lse=lse)


def backward(
    layer: Layer,
    saved: Activations,
    rel_key: Float[Array, "time rank"] | None,
    d_attn_out: Float[Array, "rows heads_columns"],
    spec: AttentionSpec,
) -> list[Array]:
    """The gradients of `kv`, of `query`, and of `rel_query` if positions are relative.

    The last 8 columns of a query's gradient are meaningless. Scores are computed twice, once for
    the queries and once for the keys: the state of a single pass does not fit on the chip.
    """
    query, kv, rel_query, attn_out, lse = saved[1:]
    _, rows, columns = query.shape
    heads, batch = columns // HEAD, rows // spec.time
    positions = () if rel_query is None else (rel_query, rel_key)
    outputs: list[Shape] = [((heads, rows), jnp.float32), ((rows, columns), FP16)]
    outputs += [(each.shape[1:], FP16) for each in positions[:1]]
    blocks = BLOCKS.within(spec.time)
    delta, *d_queries = call(
        partial(_backward_queries, spec, blocks),
        "attend_backward_queries",
        (spec.time // blocks.queries, heads, batch),
        (layer, query, kv, attn_out, lse, d_attn_out, positions),
        outputs=outputs,
    )
    (d_kv,) = call(
        partial(_backward_kv, spec, blocks),
        "attend_backward_kv",
        (spec.time // blocks.keys, heads, batch),
        (layer, query, kv, lse, d_attn_out, delta, positions),
        outputs=[((rows, columns), FP16)],
    )
    return [d_kv, *d_queries]


def _backward_queries(
    spec: AttentionSpec,
    blocks: BlockSizes,
    layer: Layer,
    query: Any,
    kv: Any,
    attn_out: Any,
    lse: Any,
    d_attn_out: Any,
    positions: Any,
    deltas: Any,
    d_query: Any,
    *d_rel_query: Any,
) -> None:
    """The gradients of some queries, and each row's `delta`: its output times its gradient."""
    slot = layer.slot[0]
    block, head, begin, columns = _tile(spec)
    rows = pl.ds(begin + block * blocks.queries, blocks.queries)
    queries = query[slot, rows, columns]
    rel_queries = _rel_queries(positions, slot, rows, head, spec)
    normaliser = lse[slot, head, rows][:, None]
    d_out = d_attn_out[rows, columns]
    out = attn_out[slot, rows, columns].astype(jnp.float32)
    delta = jnp.sum(d_out.astype(jnp.float32) * out, axis=1) * math.log(2)
    deltas[head, rows] = delta
    scaled = (d_out.astype(jnp.float32) * math.log(2)).astype(FP16)

    def add(masked: bool, index: Any, totals: tuple[Any, ...]) -> tuple[Any, ...]:
        first = index * blocks.keys
        keys = kv[slot, pl.ds(begin + first, blocks.keys), columns]
        rel_keys = _rel_keys(positions, first, blocks)
        scores = _scores(queries, keys, rel_queries, rel_keys)
        scores = _with_distance(scores, block * blocks.queries, first, masked, head, spec)
        d_scores = jnp.exp2(scores - normaliser) * (dot(scaled, keys.T) - delta[:, None])
        d_scores = d_scores.astype(FP16)
        sides = (keys,) if rel_keys is None else (keys, rel_keys)
        return tuple(total + dot(d_scores, side) for total, side in zip(totals, sides, strict=True))

    widths = (HEAD, spec.rank) if spec.rank else (HEAD,)
    totals = tuple(jnp.zeros((blocks.queries, width), jnp.float32) for width in widths)
    totals = _loop_over_keys(add, totals, block, blocks, spec)
    d_query[rows, columns] = totals[0].astype(FP16)
    if spec.rank:
        d_rel_query[0][rows, pl.ds(head * spec.rank, spec.rank)] = totals[1].astype(FP16)


def _backward_kv(
    spec: AttentionSpec,
    blocks: BlockSizes,
    layer: Layer,
    query: Any,
    kv: Any,
    lse: Any,
    d_attn_out: Any,
    deltas: Any,
    positions: Any,
    d_kv: Any,
) -> None:
    """The gradients of some keys and values; scores are transposed, for sums over queries."""
    slot = layer.slot[0]
    block, head, begin, columns = _tile(spec)
    first = block * blocks.keys
    key_rows = pl.ds(begin + first, blocks.keys)
    keys = kv[slot, key_rows, columns]
    scaled = (keys.astype(jnp.float32) * math.log(2)).astype(FP16)
    rel_keys = _rel_keys(positions, first, blocks)

    def add(masked: bool, index: Any, total: Any) -> Any:
        start = index * blocks.queries
        rows = pl.ds(begin + start, blocks.queries)
        queries = query[slot, rows, columns]
        d_out = d_attn_out[rows, columns]
        rel_queries = _rel_queries(positions, slot, rows, head, spec)
        scores = _scores(keys, queries, rel_keys, rel_queries)
        scores = _with_distance(scores, start, first, masked, head, spec, keys_first=True)
        weights = jnp.exp2(scores - lse[slot, head, rows][None, :])
        d_scores = weights * (dot(scaled, d_out.T) - deltas[head, rows][None, :])
        total += dot(weights.astype(FP16), d_out)
        return total + dot(d_scores.astype(FP16), queries)

    total = jnp.zeros((blocks.keys, HEAD), jnp.float32)
    low = lax.div(first, _int(blocks.queries))
    whole = lax.div(first + (blocks.keys + blocks.queries - 1), _int(blocks.queries))
    end = _int(spec.time // blocks.queries)
    total = lax.fori_loop(low, whole, partial(add, True), total)
    total = lax.fori_loop(whole, end, partial(add, spec.context is not None), total)
    d_kv[key_rows, columns] = total.astype(FP16)


def _tile(spec: AttentionSpec) -> tuple[Any, Any, Any, Any]:
    """The block and head of a program, the first row of its sequence, the columns of its head."""
    block, head, sequence = (pl.program_id(axis) for axis in range(3))
    return block, head, sequence * spec.time, pl.ds(head * HEAD, HEAD)


def _loop_over_keys(
    add: Callable[..., Any], carry: Any, block: Any, blocks: BlockSizes, spec: AttentionSpec
) -> Any:
    """`add(masked, index, carry)` over the blocks of keys that a block of queries attends to.

    Blocks of keys before all queries need no mask, unless a context ends inside them.
    """
    first = block * blocks.queries
    whole = lax.div(first, _int(blocks.keys))
    end = lax.div(first + (blocks.queries + blocks.keys - 1), _int(blocks.keys))
    carry = lax.fori_loop(_int(0), whole, partial(add, spec.context is not None), carry)
    return lax.fori_loop(whole, end, partial(add, True), carry)


def _rel_queries(positions: Any, slot: Any, rows: Any, head: Any, spec: AttentionSpec) -> Any:
    return positions[0][slot, rows, pl.ds(head * spec.rank, spec.rank)] if positions else None


def _rel_keys(positions: Any, first: Any, blocks: BlockSizes) -> Any:
    return positions[1][pl.ds(first, blocks.keys), :] if positions else None


def _scores(left: Any, right: Any, rel_left: Any, rel_right: Any) -> Any:
    """The scores of queries and keys, or of keys and queries."""
    scores = dot(left, right.T)
    return scores if rel_left is None else scores + dot(rel_left, rel_right.T)


def _with_distance(
    scores: Any,
    first_query: Any,
    first_key: Any,
    masked: bool,
    head: Any,
    spec: AttentionSpec,
    keys_first: bool = False,
) -> Any:
    """The scores with the ALiBi penalty, masked where the query must not attend to the key."""
    if not masked and not spec.alibi:
        return scores
    down, across = (lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
    inside = across - down if keys_first else down - across
    distance = (first_query - first_key) + inside
    if spec.alibi:
        slope = jnp.exp2((head + 1).astype(jnp.float32) * (-8 / HEADS)) * math.log2(math.e)
        scores -= slope * distance.astype(jnp.float32)
    if not masked:
        return scores
    visible = distance >= 0
    if spec.context is not None:
        visible &= distance < spec.context
    return jnp.where(visible, scores, _MASKED)


def _int(value: int) -> Any:
    return jnp.asarray(value, jnp.int32)
