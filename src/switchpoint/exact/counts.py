"""The forward recursion over the start of the current segment, for independent symbols.

Before x_t, w(s) = P(the current segment started at s | x_<t) over all starts s <= t. Then

    predict:  P(x_t = k | x_<t) = sum_s w(s) P(x_t = k | counts since s)
    update:   w(s) is multiplied by P(x_t | counts since s) and normalised, and the hazard's
              share of every w(s) moves to the new start t + 1.

The weights stay normalised, so float32 suffices for any length. O(n) state, O(n^2) time.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from switchpoint.exact.block_weights import safe_log
from switchpoint.exact.counting import select_symbol
from switchpoint.exact.hypotheses import Filtered, FilteredChunk, Hypotheses, Starts, pieces
from switchpoint.priors import Prior
from switchpoint.segments import Dirichlet, Segment

SMALL_ALPHABET = 8
"""The largest alphabet for which separate counts of every symbol are faster."""

LANES = 64  # neighbouring starts
_LARGE_BATCH = 256  # sequences
_SMALL_WORK = 2**25  # steps times starts, which take a twentieth of a second
_BLOCK = 32  # steps


def few_symbols(segment: Segment) -> bool:
    """Whether independent symbols are few enough for separate counts."""
    return isinstance(segment, Dirichlet) and segment.alphabet <= SMALL_ALPHABET


class _Carry(NamedTuple):
    weights: Float[Array, "rows batch *lanes"]
    before: tuple[Float[Array, "rows batch *lanes"], ...]
    """The counts before each start. Those of the last symbol may be left out if none is missing."""
    totals: tuple[Float[Array, " batch"], ...]  # counts before t
    start_mass: Float[Array, " batch"]


def filter_counts(prior: Prior, segment: Dirichlet, symbols: Int[Array, "batch time"]) -> Filtered:
    """The recursion over whole sequences."""
    if few_symbols(segment):
        return filter_small_alphabet(prior, segment, symbols)[0]
    return filter_large_alphabet(prior, segment, symbols)


def extend_counts(
    prior: Prior,
    segment: Dirichlet,
    symbols: Int[Array, "1 time"],
    begin: tuple[Hypotheses, Starts],
) -> tuple[Filtered, FilteredChunk]:
    """The recursion over a chunk of one stream, in which symbols below 0 are missing.

    It begins with hypotheses in rows of `LANES`, among which is the one that starts at time 0.
    """
    history, starts = begin
    filtered, carry = filter_small_alphabet(prior, segment, symbols, begin)
    before = jnp.stack(carry.before, -1)[:, 0]
    later = jnp.zeros((len(before) - starts.earlier, LANES, segment.alphabet), jnp.int32)
    # Since its beginning, or since the start: whole numbers that single precision represents.
    in_chunk = jnp.stack(carry.totals, -1)[0] - jnp.maximum(before, 0)
    counts = jax.vmap(jax.vmap(segment.merge))(
        jnp.concatenate([history.statistics, later]), in_chunk.astype(jnp.int32)
    )
    log_start = safe_log(carry.start_mass[0])
    return filtered, FilteredChunk(safe_log(carry.weights[:, 0]), counts, log_start)


def filter_small_alphabet(
    prior: Prior,
    segment: Dirichlet,
    symbols: Int[Array, "batch time"],
    begin: tuple[Hypotheses, Starts] | None = None,
) -> tuple[Filtered, _Carry]:
    """The recursion with separate counts for every symbol.

    It begins with a first segment, or with the hypotheses of one stream in rows of `LANES`, among
    which is the one that starts at time 0. Symbols below 0 are then missing.

    Starts are laid out as (start, batch) for large batches, and as (start // 64, batch,
    start % 64) for small ones, so that the inner loop is always long. Time is cut into a few
    blocks, whose arrays hold only the starts up to their end.
    """
    batch, time = symbols.shape
    width = 1 if begin is None and batch >= _LARGE_BATCH else LANES
    lanes = () if width == 1 else (LANES,)
    blocks = max(1, min(4 if time < 2048 else 8, time // 64))
    if batch * time**2 < _SMALL_WORK:
        blocks = 1  # compiling more takes longer than they save
    zeros = jnp.zeros(batch)
    if begin is None:
        starts = Starts.of_chunk(time, width)
        empty = jnp.zeros((0, batch, *lanes))
        separate = segment.alphabet - 1  # the counts of the last symbol follow from these
        carry = _Carry(empty, (empty,) * separate, (zeros,) * separate, jnp.ones(batch))
    else:
        history, starts = begin
        counts = jnp.moveaxis(history.statistics.astype(float), -1, 0)[:, :, None]
        weights = jnp.exp(history.log_weights)[:, None]
        carry = _Carry(weights, tuple(-counts), (zeros,) * segment.alphabet, zeros)
    outputs = []
    for first, last in pieces(time, blocks):
        rows = starts.earlier + -(-last // width)
        carry = carry._replace(
            weights=_with_rows(carry.weights, rows),
            before=tuple(_with_rows(counts, rows) for counts in carry.before),
        )
        absolute, relative = (
            each[:rows].reshape(rows, 1, *lanes) for each in (starts.absolute, starts.relative)
        )
        step = functools.partial(
            _small_alphabet_step, prior, segment, Starts(absolute, relative, starts.earlier)
        )
        times = jnp.arange(first, last, dtype=jnp.int32)
        carry, piece = lax.scan(step, carry, (times, symbols.T[first:last]))
        outputs.append(piece)
    filtered = jax.tree.map(
        lambda *parts: jnp.swapaxes(jnp.concatenate(parts), 0, 1), outputs[0], *outputs[1:]
    )
    return filtered, carry


def _small_alphabet_step(
    prior: Prior,
    segment: Dirichlet,
    starts: Starts,
    carry: _Carry,
    now: tuple[Int[Array, ""], Int[Array, " batch"]],
) -> tuple[_Carry, Filtered]:
    time, symbol = now
    _, _, *lanes = carry.weights.shape
    carry = _with_start(carry, time, starts.earlier)
    spread = functools.partial(_spread, lanes=len(lanes))
    run = jnp.maximum(time - starts.relative, 0)
    # Starts after t have weight 0, but their counts are meaningless, and so would gradients be.
    weights = jnp.where(starts.relative <= time, carry.weights, 0.0)
    pseudo = jnp.asarray(segment.pseudo_counts)
    counts = [
        spread(total) - before for total, before in zip(carry.totals, carry.before, strict=True)
    ]
    counted = sum(counts[1:], counts[0])
    may_miss = len(counts) == segment.alphabet
    if not may_miss:
        counts.append(run - counted)
    scale = weights * (1 / ((counted if may_miss else run) + pseudo.sum()))
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
    total = sum(sums[1:], sums[0])  # the weights sum to 1 but for rounding
    probs = [part / total for part in sums]
    log_density = jnp.where(symbol < 0, 0.0, jnp.log(select_symbol(symbol, probs)))
    run_length_mean = _sum_starts(seen * (run + 1))
    return after, Filtered(
        log_density, safe_log(carry.start_mass), run_length_mean, jnp.stack(probs, -1)
    )


def _with_start(carry: _Carry, time: Int[Array, ""], row: int) -> _Carry:
    """The carry with t itself among the starts; that of time 0 is in this row."""
    zero = jnp.zeros_like(time)
    lanes = carry.weights.ndim == 3
    at = (row + time // LANES, zero, time % LANES) if lanes else (row + time, zero)

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


def filter_large_alphabet(
    prior: Prior, segment: Dirichlet, symbols: Int[Array, "batch time"]
) -> Filtered:
    """The recursion with the counts of only the symbols that occur.

    A step needs the counts of one symbol only, the one that occurred. So a block of steps runs on
    these alone, and the predictions of all symbols are one matrix product after it:

        P(x_t = k | x_<t) = sum_s scale_t(s) (count of k since s, before t + pseudo-count of k)

    where scale_t(s) = w_t(s) / (symbols since s + all pseudo-counts). Counts are taken from the
    beginning of the block, so no large ones are subtracted from each other.
    """
    return jax.vmap(functools.partial(_filter_row, prior, segment))(symbols)


def _filter_row(prior: Prior, segment: Dirichlet, row: Int[Array, " time"]) -> Filtered:
    (time,) = row.shape
    blocks = -(-time // _BLOCK)
    hot = jax.nn.one_hot(jnp.pad(row, (0, blocks * _BLOCK - time)), segment.alphabet)
    before = jnp.cumsum(hot, axis=0) - hot  # how often each symbol occurred before t
    pseudo = jnp.asarray(segment.pseudo_counts)

    def block(carry: _Weights, index: Int[Array, ""]) -> tuple[_Weights, tuple[Array, ...]]:
        starts = jnp.arange(len(carry[0]), dtype=jnp.int32)
        times = index * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
        here = lax.dynamic_slice_in_dim(hot, times[0], _BLOCK)
        within = jnp.cumsum(here, axis=0) - here  # since the beginning of the block
        since = before[times[0]] - before[: len(starts)]  # up to it; negative for later starts
        of_symbols = _product(here, since.T)

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

        offsets = jnp.sum(here * (within + pseudo), axis=-1)
        carry, (scales, mass, run_length) = lax.scan(step, carry, (times, of_symbols, offsets))
        probs = _product(scales, since) + scales.sum(-1, keepdims=True) * (within + pseudo)
        return carry, (probs / probs.sum(-1, keepdims=True), mass, run_length)

    carry = (jnp.zeros(0), jnp.ones(()))
    filtered = []
    for first, last in pieces(blocks, max(1, min(8, blocks // 16))):
        carry = (_with_rows(carry[0], last * _BLOCK), carry[1])  # the starts up to its end
        carry, piece = lax.scan(block, carry, jnp.arange(first, last, dtype=jnp.int32))
        filtered.append(piece)
    whole = (jnp.concatenate(parts) for parts in zip(*filtered, strict=True))
    probs, mass, run_length = (part.reshape(-1, *part.shape[2:])[:time] for part in whole)
    of_symbol = jnp.take_along_axis(probs, row[:, None], axis=-1)[:, 0]
    return Filtered(jnp.log(of_symbol), safe_log(mass), run_length, probs)


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
