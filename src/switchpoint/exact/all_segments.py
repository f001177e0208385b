"""All segments of a sequence, by their starts from the last to the first: the posterior follows.

Let a segment start at s. With M the marginal probability of observations in one segment, it ends
just before e with the relative probability

    g(s, e) = P(L = e - s | s) M(x_s..x_(e-1)) / P(x_s..x_(e-1) | x_<s),

or, if it reaches the end of the sequence, e = n, and continues unseen, with P(L >= n - s | s). The
logarithm of the fraction is a sum of small terms, ln M(x_t | x_s..x_(t-1)) - ln P(x_t | x_<t). From

    B(s) = P(x_s.. | a segment starts at s) / P(x_s.. | x_<s) = sum_e g(s, e) B(e),    B(n) = 1,

follow P(it ends at e | it starts at s, x) = g(s, e) B(e) / B(s), and P(a segment starts at s | x) =
P(a segment starts at s | x_<s) B(s).

The statistics of x_s..x_(e-1) are those of x_s merged with those of x_(s+1)..x_(e-1), for all e at
once; for independent symbols without gaps, the number of symbols in them that are x_e is enough. So
a pass over all starts takes O(n width) time and O(n + width) memory, where `width` is the length of
the longest segment that is considered.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint._prefix_sums import sum_before
from switchpoint.exact.hypotheses import Filtered, Sequences
from switchpoint.exact.streams import initial_statistics
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics, lift, log_density
from switchpoint.segments.dirichlet import as_dirichlet

Carry = TypeVar("Carry")


class SegmentsFrom(NamedTuple):
    """The segments with r = 1..width observations that start at s."""

    start: Int[Array, ""]
    log_weight: Float[Array, " width"]
    """ln g(s, s + r); -inf beyond the end of the sequence."""
    log_reached: Float[Array, " width"]
    """The same as if the sequence ended there: with P(L >= r | s) in place of P(L = r | s)."""
    log_later: Float[Array, " width"]
    """ln B(s + r)."""
    log_total: Float[Array, ""]
    """ln B(s)."""
    statistics: Statistics
    """Those after r = 0..width observations, unless counted: (width + 1, ...)."""

    @property
    def probs(self) -> Float[Array, " width"]:
        """P(the segment has r observations | it starts at s, x)."""
        total = jnp.where(jnp.isfinite(self.log_total), self.log_total, 0.0)
        return jnp.exp(self.log_weight + self.log_later - total)


class Segments(eqx.Module):
    """All segments of one sequence with up to `width` observations."""

    prior: Prior
    segment: Segment
    sequence: Sequences
    """One, without the axis of the batch."""
    log_density: Float[Array, " time"]
    """ln P(x_t | x_<t)."""
    log_start: Float[Array, " time"]
    """ln P(a segment starts at t | x_<t)."""
    width: int = eqx.field(static=True)

    @property
    def time(self) -> int:
        """The length of the sequence."""
        return len(self.log_density)

    def scan(
        self, step: Callable[[Carry, SegmentsFrom], tuple[Carry, Any]], carry: Carry
    ) -> tuple[Carry, Any]:
        """`lax.scan` over the starts, from the last to the first; outputs are ordered by start."""
        time, width = self.time, self.width
        runs = jnp.arange(1, width + 1, dtype=jnp.int32)
        evidence = jnp.pad(self.log_density, (0, width))
        advance, first = self._counted() if self._is_counted else self._merged()

        def at_start(carry: Any, start: Int[Array, ""]) -> tuple[Any, Any]:
            log_totals, state, others = carry
            state, logs, statistics = advance(state, start)
            gains = logs - lax.dynamic_slice_in_dim(evidence, start, width)
            gains = sum_before(gains) + gains
            starts = jnp.broadcast_to(start, runs.shape)
            reached = gains + self.prior.log_survival(starts, runs - 1)
            ended = gains + self.prior.log_pmf(starts, runs)
            weight = jnp.where(start + runs < time, ended, reached)
            weight = jnp.where(start + runs > time, -jnp.inf, weight)
            later = lax.dynamic_slice_in_dim(log_totals, start + 1, width)
            total = jax.nn.logsumexp(weight + later)
            log_totals = lax.dynamic_update_index_in_dim(log_totals, total, start, 0)
            now = SegmentsFrom(start, weight, reached, later, total, statistics)
            others, output = step(others, now)
            return (log_totals, state, others), output

        log_totals = jnp.full(time + 1 + width, -jnp.inf).at[time].set(0)
        starts = jnp.arange(time, dtype=jnp.int32)
        (_, _, carry), outputs = lax.scan(
            at_start, (log_totals, first, carry), starts, reverse=True
        )
        return carry, outputs

    @property
    def _is_counted(self) -> bool:
        return self.sequence.counted_by(self.segment)

    def _counted(self) -> tuple[Callable[..., Any], Any]:
        """How the numbers of x_(s+r) among x_s..x_(s+r-1) follow from those of s + 1."""
        width = self.width
        symbols = jnp.pad(self.sequence.values, (0, width))
        pseudo = jnp.asarray(as_dirichlet(self.segment).pseudo_counts)
        totals = jnp.arange(width) + pseudo.sum()

        def advance(counts: Any, start: Int[Array, ""]) -> Any:
            here = lax.dynamic_slice_in_dim(symbols, start, width)
            counts = jnp.pad(counts[:-1] + (here[1:] == here[0]), (1, 0))
            return counts, jnp.log((counts + pseudo[here]) / totals), None

        return advance, jnp.zeros(width)

    def _merged(self) -> tuple[Callable[..., Any], Any]:
        """How the statistics of x_s..x_(s+r-1) follow from those of s + 1."""
        segment, width = self.segment, self.width
        values = self.sequence.values.astype(float)
        padding = ((0, width), *((0, 0),) * (values.ndim - 1))
        values = jnp.pad(values, padding, constant_values=jnp.nan)
        initial = initial_statistics(segment, self.sequence.offset)
        merge = jax.vmap(segment.merge, in_axes=(None, 0))
        density = jax.vmap(functools.partial(log_density, segment))
        empty = jax.tree.map(
            lambda leaf, like: jnp.asarray(leaf, like.dtype),
            segment.empty(),
            lift(segment, values[0]),
        )

        def advance(runs: Statistics, start: Int[Array, ""]) -> Any:
            here = lax.dynamic_slice_in_dim(values, start, width)
            shorter = jax.tree.map(lambda leaf: leaf[:-1], runs)
            runs = jax.tree.map(
                lambda none, leaf: jnp.concatenate([none[None], leaf]),
                empty,
                merge(lift(segment, here[0]), shorter),
            )
            statistics = merge(initial, runs)
            before = jax.tree.map(lambda leaf: leaf[:-1], statistics)
            return runs, density(before, here), statistics

        return advance, jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (width + 1, *leaf.shape)), empty
        )


def over_sequences(
    prior: Prior,
    segment: Segment,
    chunk: tuple[Any, ...],
    width: int,
    function: Callable[..., Any],
) -> Any:
    """`function(segments, ...)` of all segments of each sequence.

    A chunk has `Sequences`, `Filtered`, and further arguments with an entry for each sequence.
    """

    def of_one(sequence: Sequences, filtered: Filtered, *rest: Any) -> Any:
        segments = Segments(
            prior, segment, sequence, filtered.log_density, filtered.log_start, width
        )
        return function(segments, *rest)

    return jax.vmap(of_one)(*chunk)
