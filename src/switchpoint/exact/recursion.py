"""The forward recursion over the start of the current segment, for any prior.

Before x_t, w(s) = P(the current segment started at s | x_<t) over all starts s <= t. Then

    predict:  P(x_t = k | x_<t) = sum_s w(s) P(x_t = k | counts since s)
    update:   w(s) is multiplied by P(x_t | counts since s) and normalised, and the hazard's
              share of every w(s) moves to the new start t + 1.

The weights stay normalised, so float32 is enough for any length. O(n) state, O(n^2) time.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from switchpoint.exact.choice import choose
from switchpoint.exact.many_letters import MOST_LETTERS, Forward, many_letters
from switchpoint.priors import Prior
from switchpoint.segments import Segment

_MANY = 256  # sequences
_LANES = 64  # neighbouring starts
_LITTLE = 2**25  # steps of all starts, which take a twentieth of a second


class _Carry(NamedTuple):
    weights: Float[Array, "rows batch *lanes"]
    before: tuple[Float[Array, "rows batch *lanes"], ...]  # counts before each start, per symbol
    totals: tuple[Float[Array, " batch"], ...]  # counts before t
    start_mass: Float[Array, " batch"]


def forward(prior: Prior, segment: Segment, symbols: Int[Array, "batch time"]) -> Forward:
    """The recursion over whole sequences."""
    if segment.alphabet > MOST_LETTERS:
        return jax.vmap(lambda row: many_letters(prior, segment, row))(symbols)
    return _few_letters(prior, segment, symbols)


def _few_letters(prior: Prior, segment: Segment, symbols: Int[Array, "batch time"]) -> Forward:
    """The recursion with the counts of every symbol side by side.

    Starts are laid out as (start, batch) for many sequences, and as (start // 64, batch,
    start % 64) for few, so that the inner loop is always long. The time is cut in a few
    blocks, whose arrays hold only the starts up to their end.
    """
    batch, time = symbols.shape
    lanes = () if batch >= _MANY else (_LANES,)
    blocks = max(1, min(4 if time < 2048 else 8, time // 64))
    if batch * time**2 < _LITTLE:
        blocks = 1  # compiling more takes longer than they save
    edges = [time * block // blocks for block in range(blocks + 1)]
    nothing = jnp.zeros((0, batch, *lanes))
    zeros = jnp.zeros(batch)
    carry = _Carry(
        nothing,
        (nothing,) * (segment.alphabet - 1),
        (zeros,) * (segment.alphabet - 1),
        jnp.ones(batch),
    )
    pieces = []
    for begin, end in itertools.pairwise(edges):
        carry = _widened(carry, -(-end // math.prod(lanes)))
        times = jnp.arange(begin, end, dtype=jnp.int32)
        step = functools.partial(_step, prior, segment)
        carry, piece = lax.scan(step, carry, (times, symbols.T[begin:end]))
        pieces.append(piece)
    whole = [jnp.swapaxes(jnp.concatenate(parts), 0, 1) for parts in zip(*pieces, strict=True)]
    return Forward(*whole)


def _widened(carry: _Carry, rows: int) -> _Carry:
    """The same state with room for more starts."""

    def widen(old: Array) -> Array:
        return jnp.pad(old, ((0, rows - len(old)), *((0, 0),) * (old.ndim - 1)))

    return carry._replace(weights=widen(carry.weights), before=tuple(map(widen, carry.before)))


def _step(
    prior: Prior, segment: Segment, carry: _Carry, now: tuple[Int[Array, ""], Int[Array, " batch"]]
) -> tuple[_Carry, tuple[Array, Array, Array]]:
    time, symbol = now
    rows, _, *lanes = carry.weights.shape
    carry = _with_start(carry, time)
    starts = jnp.arange(rows * math.prod(lanes), dtype=jnp.int32).reshape(rows, 1, *lanes)
    spread = functools.partial(_spread, lanes=len(lanes))
    run = jnp.maximum(time - starts, 0)  # symbols since the start; weights beyond t are 0
    pseudo = jnp.asarray(segment.pseudo_counts)
    scale = carry.weights * (1 / (run + pseudo.sum()))
    counts = [
        spread(total) - before for total, before in zip(carry.totals, carry.before, strict=True)
    ]
    counts.append(run - sum(counts[1:], counts[0]))
    joint = [scale * (count + pseudo[k]) for k, count in enumerate(counts)]
    sums = [_sum_starts(part) for part in joint]
    seen = choose(spread(symbol), joint) * spread(1 / choose(symbol, sums))
    after = _Carry(
        weights=seen * prior.survival_after(starts, run + 1),
        before=carry.before,
        totals=tuple(total + (symbol == k) for k, total in enumerate(carry.totals)),
        start_mass=_sum_starts(seen * prior.hazard_after(starts, run + 1)),
    )
    probs = jnp.stack(sums, axis=-1)
    probs = probs / probs.sum(-1, keepdims=True)  # a sum of many weights is 1 but for rounding
    return after, (probs, carry.start_mass, _sum_starts(seen * (run + 1)))


def _with_start(carry: _Carry, time: Int[Array, ""]) -> _Carry:
    """The state with t itself among the starts."""
    zero = jnp.zeros_like(time)
    few = carry.weights.ndim == 3
    at = (time // _LANES, zero, time % _LANES) if few else (time, zero)

    def put(array: Array, values: Float[Array, " batch"]) -> Array:
        return lax.dynamic_update_slice(array, _spread(values, array.ndim - 2), at)

    return carry._replace(
        weights=put(carry.weights, carry.start_mass),
        before=tuple(map(put, carry.before, carry.totals)),
    )


def _spread(per_sequence: Shaped[Array, " batch"], lanes: int) -> Shaped[Array, "1 batch *lanes"]:
    return per_sequence.reshape(1, -1, *(1,) * lanes)


def _sum_starts(parts: Float[Array, "rows batch *lanes"]) -> Float[Array, " batch"]:
    by_lane = parts.sum(0)
    return by_lane.sum(-1) if by_lane.ndim == 2 else by_lane
