"""The forward recursion over the start of the current segment, for any prior.

Before x_t, w(s) = P(the current segment started at s | x_<t) over all starts s <= t. Then

    predict:  P(x_t = k | x_<t) = sum_s w(s) P(x_t = k | counts since s)
    update:   w(s) is multiplied by P(x_t | counts since s) and normalised, and the hazard's
              share of every w(s) moves to the new start t + 1.

The weights stay normalised, so float32 suffices for any length. O(n) state, O(n^2) time.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from switchpoint.exact.block_weights import safe_log
from switchpoint.exact.blocks import Hypotheses
from switchpoint.exact.counting import select_symbol
from switchpoint.priors import Prior
from switchpoint.segments import Dirichlet

MAX_FEW = 8
"""The largest alphabet for which separate counts of every symbol are faster."""

_LARGE_BATCH = 256  # sequences
_LANES = 64  # neighbouring starts
_SMALL_WORK = 2**25  # steps times starts, which take a twentieth of a second
_BLOCK = 32  # steps


class Forward(NamedTuple):
    """The results of the recursion, before and after each symbol."""

    probs: Float[Array, "*batch time alphabet"]
    """P(x_t = k | x_<t)."""

    start_mass: Float[Array, "*batch time"]
    """P(a segment starts at t | x_<t)."""

    run_length_mean: Float[Array, "*batch time"]
    """E[symbols in the current segment, x_t included | x_<=t]."""


def forward(prior: Prior, segment: Dirichlet, symbols: Int[Array, "batch time"]) -> Forward:
    """The recursion over whole sequences."""
    if segment.alphabet > MAX_FEW:
        return jax.vmap(lambda row: _many_symbols(prior, segment, row))(symbols)
    return _few_symbols(prior, segment, symbols)


def extend_few_symbols(
    prior: Prior,
    segment: Dirichlet,
    hypotheses: Hypotheses,
    symbols: Int[Array, " time"],
    next_starts: Int[Array, " after"],
) -> tuple[Hypotheses, Float[Array, "time alphabet"]]:
    """The recursion over a chunk of one stream, with separate counts for every symbol.

    Symbols below 0 are missing. `next_starts` are the starts of segments that begin in the chunk,
    or right after it. All hypotheses are returned, the new ones last.
    """
    (time,), size = symbols.shape, len(hypotheses.starts)
    old, new = -(-size // _LANES), -(-time // _LANES)

    def in_rows(before: Array, within: Any) -> Array:
        padded = jnp.pad(before, (0, old * _LANES - size))
        within = jnp.broadcast_to(jnp.asarray(within, before.dtype), (time,))
        whole = jnp.concatenate([padded, jnp.pad(within, (0, new * _LANES - time))])
        return whole.reshape(old + new, 1, _LANES)

    times = jnp.arange(time, dtype=jnp.int32)
    starts = _Starts(
        in_rows(hypotheses.starts, next_starts[:-1]), in_rows(-hypotheses.runs, times), old
    )
    counts = hypotheses.statistics
    nothing = jnp.zeros(1)
    carry = _Carry(
        in_rows(jnp.exp(hypotheses.log_weights), 0.0),
        tuple(in_rows(-counts[:, k].astype(float), 0.0) for k in range(segment.alphabet)),
        (nothing,) * segment.alphabet,
        nothing,  # the segment that starts with the chunk is one of the hypotheses already
    )
    step = functools.partial(_few_symbols_step, prior, segment, starts)
    carry, filtered = lax.scan(step, carry, (times, symbols[:, None]))

    def begun(rows: Array, last: Array) -> Array:
        """Of the starts in the chunk, and right after it."""
        return jnp.concatenate([rows[old:].reshape(-1)[:time], last])

    totals = jnp.stack(carry.totals, -1).astype(jnp.int32)  # (1, alphabet)
    own = [
        begun(total - before, nothing)
        for total, before in zip(carry.totals, carry.before, strict=True)
    ]
    weights = jnp.concatenate(
        [carry.weights[:old].reshape(-1)[:size], begun(carry.weights, carry.start_mass)]
    )
    after = Hypotheses(
        jnp.concatenate([hypotheses.starts, next_starts]),
        jnp.concatenate([hypotheses.runs + time, time - times, jnp.zeros(1, jnp.int32)]),
        safe_log(weights),
        jnp.concatenate(
            [
                jax.vmap(segment.merge, in_axes=(0, None))(counts, totals[0]),
                jnp.stack(own, -1).astype(counts.dtype),
            ]
        ),
    )
    return after, filtered.probs[:, 0]


class _Starts(NamedTuple):
    """The starts of the hypotheses, as the prior takes them and from time 0 of this call."""

    absolute: Int[Array, "rows one *lanes"]
    relative: Int[Array, "rows one *lanes"]
    row: int
    """Of the start at time 0."""


class _Carry(NamedTuple):
    weights: Float[Array, "rows batch *lanes"]
    before: tuple[Float[Array, "rows batch *lanes"], ...]
    """The counts before each start. Those of the last symbol may be left out if none is missing."""
    totals: tuple[Float[Array, " batch"], ...]  # counts before t
    start_mass: Float[Array, " batch"]


def _few_symbols(prior: Prior, segment: Dirichlet, symbols: Int[Array, "batch time"]) -> Forward:
    """The recursion with separate counts for every symbol.

    Starts are laid out as (start, batch) for large batches, and as (start // 64, batch,
    start % 64) for small ones, so that the inner loop is always long. Time is cut into a few
    blocks, whose arrays hold only the starts up to their end.
    """
    batch, time = symbols.shape
    lanes = () if batch >= _LARGE_BATCH else (_LANES,)
    blocks = max(1, min(4 if time < 2048 else 8, time // 64))
    if batch * time**2 < _SMALL_WORK:
        blocks = 1  # compiling more takes longer than they save
    empty, zeros = jnp.zeros((0, batch, *lanes)), jnp.zeros(batch)
    others = segment.alphabet - 1  # the counts of the last symbol follow from these
    carry = _Carry(empty, (empty,) * others, (zeros,) * others, jnp.ones(batch))
    pieces = []
    for begin, end in itertools.pairwise(time * block // blocks for block in range(blocks + 1)):
        rows = -(-end // math.prod(lanes))
        carry = carry._replace(
            weights=_with_rows(carry.weights, rows),
            before=tuple(_with_rows(counts, rows) for counts in carry.before),
        )
        starts = jnp.arange(rows * math.prod(lanes), dtype=jnp.int32).reshape(rows, 1, *lanes)
        step = functools.partial(_few_symbols_step, prior, segment, _Starts(starts, starts, 0))
        times = jnp.arange(begin, end, dtype=jnp.int32)
        carry, piece = lax.scan(step, carry, (times, symbols.T[begin:end]))
        pieces.append(piece)
    return Forward(
        *(jnp.swapaxes(jnp.concatenate(parts), 0, 1) for parts in zip(*pieces, strict=True))
    )


def _few_symbols_step(
    prior: Prior,
    segment: Dirichlet,
    starts: _Starts,
    carry: _Carry,
    now: tuple[Int[Array, ""], Int[Array, " batch"]],
) -> tuple[_Carry, Forward]:
    time, symbol = now
    _, _, *lanes = carry.weights.shape
    carry = _with_start(carry, time, starts.row)
    spread = functools.partial(_spread, lanes=len(lanes))
    run = jnp.maximum(time - starts.relative, 0)
    # Starts after t have weight 0, but their counts are meaningless, and so would gradients be.
    weights = jnp.where(starts.relative <= time, carry.weights, 0.0)
    pseudo = jnp.asarray(segment.pseudo_counts)
    counts = [
        spread(total) - before for total, before in zip(carry.totals, carry.before, strict=True)
    ]
    known = sum(counts[1:], counts[0])
    may_miss = len(counts) == segment.alphabet
    if not may_miss:
        counts.append(run - known)
    scale = weights * (1 / ((known if may_miss else run) + pseudo.sum()))
    joint = [scale * (count + pseudo[k]) for k, count in enumerate(counts)]
    sums = [_sum_starts(part) for part in joint]
    seen = select_symbol(spread(symbol), joint) * spread(1 / select_symbol(symbol, sums))
    if may_miss:
        seen = jnp.where(spread(symbol) < 0, weights, seen)
    after = _Carry(
        weights=seen * prior.survival_after(starts.absolute, run + 1),
        before=carry.before,
        totals=tuple(total + (symbol == k) for k, total in enumerate(carry.totals)),
        start_mass=_sum_starts(seen * prior.hazard_after(starts.absolute, run + 1)),
    )
    probs = jnp.stack(sums, axis=-1)
    probs = probs / probs.sum(-1, keepdims=True)  # the weights sum to 1 but for rounding
    return after, Forward(probs, carry.start_mass, _sum_starts(seen * (run + 1)))


def _with_start(carry: _Carry, time: Int[Array, ""], row: int) -> _Carry:
    """The carry with t itself among the starts, which begin with this row."""
    zero = jnp.zeros_like(time)
    lanes = carry.weights.ndim == 3
    at = (row + time // _LANES, zero, time % _LANES) if lanes else (row + time, zero)

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


def _with_rows(array: Array, rows: int) -> Array:
    """The array with zeros appended up to this number of rows."""
    return jnp.pad(array, ((0, rows - len(array)), *((0, 0),) * (array.ndim - 1)))


_Weights = tuple[Float[Array, " starts"], Float[Array, ""]]  # of the starts, and of the next one


def _many_symbols(prior: Prior, segment: Dirichlet, row: Int[Array, " time"]) -> Forward:
    """The recursion over one sequence, for a large alphabet.

    A step needs the counts of one symbol only, the one that occurred. So a block of steps runs on
    these alone, and the predictions of all symbols are one matrix product after it:

        P(x_t = k | x_<t) = sum_s scale_t(s) (count of k since s, before t + pseudo-count of k)

    where scale_t(s) = w_t(s) / (symbols since s + all pseudo-counts). Counts are taken from the
    beginning of the block, so no large ones are subtracted from each other.
    """
    (time,) = row.shape
    blocks = -(-time // _BLOCK)
    hot = jax.nn.one_hot(jnp.pad(row, (0, blocks * _BLOCK - time)), segment.alphabet)
    before = jnp.cumsum(hot, axis=0) - hot  # how often each symbol occurred before t
    pseudo = jnp.asarray(segment.pseudo_counts)

    def block(carry: _Weights, index: Int[Array, ""]) -> tuple[_Weights, Forward]:
        starts = jnp.arange(len(carry[0]), dtype=jnp.int32)
        times = index * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
        own = lax.dynamic_slice_in_dim(hot, times[0], _BLOCK)
        within = jnp.cumsum(own, axis=0) - own  # since the beginning of the block
        since = before[times[0]] - before[: len(starts)]  # up to it; negative for later starts
        of_own = _product(own, since.T)

        def step(carry: _Weights, now: tuple[Array, ...]) -> tuple[_Weights, tuple[Array, ...]]:
            weights, start_mass = carry
            time, counts, offset = now
            run = jnp.maximum(time - starts, 0)
            weights = jnp.where(starts <= time, weights.at[time].set(start_mass), 0.0)
            scale = weights / (run + pseudo.sum())
            joint = scale * (counts + offset)
            seen = joint / joint.sum()
            after = (
                seen * prior.survival_after(starts, run + 1),
                jnp.sum(seen * prior.hazard_after(starts, run + 1)),
            )
            return after, (scale, start_mass, jnp.sum(seen * (run + 1)))

        offsets = jnp.sum(own * (within + pseudo), axis=-1)
        carry, (scales, mass, run_length) = lax.scan(step, carry, (times, of_own, offsets))
        probs = _product(scales, since) + scales.sum(-1, keepdims=True) * (within + pseudo)
        return carry, Forward(probs / probs.sum(-1, keepdims=True), mass, run_length)

    carry = (jnp.zeros(0), jnp.ones(()))
    pieces = max(1, min(8, blocks // 16))
    filtered = []
    for first, last in itertools.pairwise(blocks * piece // pieces for piece in range(pieces + 1)):
        carry = (_with_rows(carry[0], last * _BLOCK), carry[1])  # the starts up to its end
        carry, piece = lax.scan(block, carry, jnp.arange(first, last, dtype=jnp.int32))
        filtered.append(piece)
    whole = (jnp.concatenate(parts) for parts in zip(*filtered, strict=True))
    return Forward(*(part.reshape(-1, *part.shape[2:])[:time] for part in whole))


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
