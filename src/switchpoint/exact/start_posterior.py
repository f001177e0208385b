"""The posterior over switching points for any prior: O(n^2) time, O(n width) with short segments.

Everything is read from passes over all segments, by their starts from the last to the first. Let a
segment start at s. With M the marginal probability of observations in one segment, it ends just
before e with the relative probability

    g(s, e) = P(L = e - s | s) M(x_s..x_(e-1)) / P(x_s..x_(e-1) | x_<s),

or, if it reaches the end of the sequence, e = n, and continues unseen, with P(L >= n - s | s). The
logarithm of the fraction is a sum of small terms, ln M(x_t | x_s..x_(t-1)) - ln P(x_t | x_<t). From

    B(s) = P(x_s.. | a segment starts at s) / P(x_s.. | x_<s) = sum_e g(s, e) B(e),    B(n) = 1,

follow P(it ends at e | it starts at s, x) = g(s, e) B(e) / B(s), and P(a segment starts at s | x) =
P(a segment starts at s | x_<s) B(s). A pass draws the end of the segment that starts at each s, or
takes the most probable one; followed from the start of the sequence, these ends make a partition.

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
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint._batching import in_chunks
from switchpoint._prefix_sums import sum_before
from switchpoint._random import uniform
from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.blocks import filter_batch
from switchpoint.exact.hypotheses import Filtered, Sequences
from switchpoint.exact.levels import Levels, add_levels, level_fields, levels_from, levels_of
from switchpoint.exact.posterior import Partitions, Posterior, make_posterior
from switchpoint.exact.streams import initial_statistics
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics, lift, log_density, prior_statistics
from switchpoint.segments.dirichlet import as_dirichlet

Carry = TypeVar("Carry")

_MIN_WIDTH = 2048  # that is worth being narrowed


def start_posterior(
    predictor: ExactPredictor[Any], sequences: Sequences, batch: tuple[int, ...]
) -> Posterior:
    """The posterior over switching points of a flat batch of that shape, under any prior."""
    prior, segment = predictor.prior, predictor.segment
    filtered = filter_batch(prior, segment, sequences, for_posterior=True)
    width = _width(prior, filtered)
    partitions = StartPartitions(prior, segment, sequences, filtered._replace(reach=None), width)
    return make_posterior(partitions.fields(), batch, partitions)


def _width(prior: Prior, filtered: Filtered) -> int:
    """The length of the longest segment that may have a probability that is not negligible."""
    time = filtered.log_density.shape[1]
    width = min(time, prior.max_length or time)
    reach = filtered.reach
    if width <= _MIN_WIDTH or reach is None or isinstance(reach, jax.core.Tracer):
        return width
    longest = int(np.asarray(reach).max())
    few = [size for power in range(9, 40) for size in (2**power, 3 * 2 ** (power - 1))]
    return min(width, next(size for size in few if size >= longest))  # each is compiled


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

    def at_ends(self, table: Float[Array, "*any times"]) -> Float[Array, "*any width"]:
        """The entries of a table at the ends of these segments, s + r."""
        return lax.dynamic_slice_in_dim(table, self.start + 1, len(self.log_weight), axis=-1)

    def put(self, table: Float[Array, "*any times"], entry: Array) -> Float[Array, "*any times"]:
        """The table with a new entry at s."""
        return lax.dynamic_update_index_in_dim(table, entry, self.start, -1)


class StartPartitions(Partitions):
    """The posterior distribution of partitions, through the starts of their segments."""

    prior: Prior
    segment: Segment
    sequences: Sequences
    filtered: Filtered
    width: int = eqx.field(static=True)

    @jax.jit
    def fields(self) -> dict[str, Array]:
        """The fields of a `Posterior`."""
        most = 1 if self.sequences.counted_by(self.segment) else 32
        fields = self._each(StartPartitions._smoothed, most)
        levels = level_fields(
            self.segment, fields.pop("mean"), fields.pop("variance", None), self.sequences.offset
        )
        return fields | levels

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Draws the end of a segment for every start, and follows them."""
        rows = jnp.arange(len(self.sequences.values), dtype=jnp.int32)

        def draws(one: "StartPartitions", row: Int[Array, ""]) -> Bool[Array, "count time"]:
            own = jax.random.fold_in(key, row)

            def step(carry: None, now: SegmentsFrom) -> tuple[None, Int[Array, " count"]]:
                up_to = sum_before(now.probs) + now.probs
                coins = uniform(jax.random.fold_in(own, now.start), (count,)) * up_to[-1]
                more = jnp.searchsorted(up_to, coins, side="right").astype(jnp.int32)
                return carry, now.start + 1 + jnp.minimum(more, self.width - 1)

            return _starts_from(one._scan(step, None)[1])

        return jnp.swapaxes(self._each(draws, 32, rows), 0, 1)

    @functools.partial(jax.jit, static_argnames="most")
    def run_lengths(self, most: int) -> Float[Array, "flat time lengths"]:
        """By the probability of each start and length, if x ended after each observation."""
        width = self.width
        few = min(most, width)

        def probs(one: "StartPartitions") -> Float[Array, "time lengths"]:
            time = len(one.filtered.log_density)

            def step(totals: Array, now: SegmentsFrom) -> tuple[Array, Array]:
                reached = jnp.exp(one.filtered.log_start[now.start] + now.log_reached)
                there = lax.dynamic_slice_in_dim(totals, now.start, width)
                totals = lax.dynamic_update_slice_in_dim(totals, there + reached, now.start, 0)
                return totals, reached[:few]

            totals, reached = one._scan(step, jnp.zeros(time + width))
            lengths = np.arange(few)
            starts = np.arange(time)[:, None] - lengths  # of runs that end at each time
            at = jnp.where(starts >= 0, reached[np.maximum(starts, 0), lengths], 0.0)
            at = at / jnp.maximum(totals[:time, None], 1e-30)
            return jnp.pad(at, ((0, 0), (0, most - few)))

        return self._each(probs)

    @functools.partial(jax.jit, static_argnames="most")
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """By the number of switches after each segment start."""

        def one_more(start: Int[Array, ""], pmf: Float[Array, " counts"]) -> Array:
            del start
            return jnp.pad(pmf, (1, 0))[:-1]

        return self._expectation(jnp.eye(1, most + 1)[0], one_more)

    @jax.jit
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """By the probability of none after each segment start."""
        outside = 1.0 - windows

        def masked(start: Int[Array, ""], none: Float[Array, " windows"]) -> Array:
            return none * outside[:, start]

        return self._expectation(jnp.ones(len(windows)), masked)

    def _expectation(
        self,
        last: Float[Array, " values"],
        before_switch: Callable[[Int[Array, ""], Float[Array, " values"]], Array],
    ) -> Float[Array, "flat values"]:
        """Expectations over partitions, from the last symbol to the first.

        `before_switch` maps an expectation after a switch to the one before it.
        """

        def expected(one: "StartPartitions") -> Float[Array, " values"]:
            time = len(one.filtered.log_density)

            def step(table: Array, now: SegmentsFrom) -> tuple[Array, None]:
                here = jnp.matmul(now.at_ends(table), now.probs, precision=lax.Precision.HIGHEST)
                # The start of the sequence is no switch.
                here = jnp.where(now.start > 0, before_switch(now.start, here), here)
                return now.put(table, here), None

            table = jnp.zeros((len(last), time + 1 + self.width)).at[:, time].set(last)
            return one._scan(step, table)[0][:, 0]

        return self._each(expected)

    def _each(self, function: Callable[..., Any], most: int = 32, *more: Array) -> Any:
        """`function` of the partitions of each sequence and its part of `more`, in chunks."""

        def of_one(sequence: Sequences, filtered: Filtered, *rest: Array) -> Any:
            one = StartPartitions(self.prior, self.segment, sequence, filtered, self.width)
            return function(one, *rest)

        chunks: tuple[Any, ...] = (self.sequences, self.filtered, *more)
        return in_chunks(lambda chunk: jax.vmap(of_one)(*chunk), chunks, most)

    # What follows is of one sequence, without the axis of the batch.

    def _smoothed(self) -> dict[str, Array]:
        """The fields of the posterior of one sequence, with the level as its mean and variance."""
        filtered, time = self.filtered, len(self.filtered.log_density)
        levels, add, of_time = self._level_pass()

        def step(carry: tuple[Any, Array], now: SegmentsFrom) -> tuple[Any, Any]:
            levels, best = carry
            weights = jnp.exp(filtered.log_start[now.start] + now.log_weight + now.log_later)
            scores = now.log_weight + now.at_ends(best)
            likely = scores.argmax()
            end = now.start + 1 + likely.astype(jnp.int32)
            return (add(levels, now, weights), now.put(best, scores[likely])), (now.log_total, end)

        # By start, max ln P(a partition of x_s.. into segments | one starts at s, x).
        best = jnp.full(time + 1 + self.width, -jnp.inf).at[time].set(0)
        (levels, best), (log_totals, ends) = self._scan(step, (levels, best))
        # B(0) is 1 but for rounding.
        smoothed = jnp.exp(jnp.minimum(filtered.log_start + log_totals - log_totals[0], 0.0))
        initial = initial_statistics(self.segment, self.sequences.offset)
        fresh = jax.vmap(functools.partial(log_density, self.segment, initial))(
            self.sequences.values.astype(float)
        )
        started = jnp.exp(filtered.log_start + fresh - filtered.log_density)
        mean, variance = of_time(levels)
        run_length_mean: Any = filtered.run_length_mean
        return {
            "log_marginal": filtered.log_density.sum(),
            "switch_filtered": started.at[0].set(0),
            "switch_smoothed": smoothed.at[0].set(0),
            "run_length_mean": run_length_mean,
            "map_switches": _starts_from(ends[:, None])[0],
            "map_log_prob": best[0] - log_totals[0],
            "mean": mean,
            **({} if variance is None else {"variance": variance}),
        }

    def _level_pass(self) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
        """The level at each time: without any segment, with those from one start, and at last."""
        time, width = len(self.filtered.log_density), self.width
        if self.sequences.counted_by(self.segment):
            segment = as_dirichlet(self.segment)
            pseudo = jnp.asarray(segment.pseudo_counts)
            totals = jnp.arange(1, width + 1) + pseudo.sum()
            hot = jax.nn.one_hot(self.sequences.values, segment.alphabet, axis=0)
            counts = sum_before(jnp.pad(hot, ((0, 0), (0, width + 1))))

            def change(carry: Array, now: SegmentsFrom, weights: Float[Array, " width"]) -> Array:
                """The change at t of E[the distribution of x_t | x]."""
                prior = pseudo - lax.dynamic_index_in_dim(counts, now.start, 1, keepdims=False)
                means = (now.at_ends(counts) + prior[:, None]) * (weights / totals)
                later = now.at_ends(carry) - means
                carry = lax.dynamic_update_slice_in_dim(carry, later, now.start + 1, 1)
                here = lax.dynamic_index_in_dim(carry, now.start, 1, keepdims=False)
                return now.put(carry, here + means.sum(-1))

            def total(carry: Array) -> tuple[Array, None]:
                return (sum_before(carry) + carry)[:, :time], None

            return jnp.zeros((segment.alphabet, time + width + 1)), change, total

        def add(carry: Levels, now: SegmentsFrom, weights: Float[Array, " width"]) -> Levels:
            here = levels_from(self.segment, now.statistics, weights)

            def put(whole: Array, part: Array) -> Array:
                return lax.dynamic_update_slice_in_dim(whole, part, now.start, axis=-1)

            there = jax.tree.map(
                lambda leaf: lax.dynamic_slice_in_dim(leaf, now.start, width, axis=-1), carry
            )
            return jax.tree.map(put, carry, add_levels(there, here))

        shapes = jax.eval_shape(
            lambda: [
                (each.mean, each.covariance)
                for each in levels_of(self.segment, prior_statistics(self.segment))
            ]
        )
        outputs = sum(mean.shape[-1] for mean, _ in shapes)
        zeros = jnp.zeros((outputs, time + width))
        variance = None if shapes[0][1] is None else zeros
        first = Levels(jnp.zeros(time + width), zeros, variance)
        return first, add, lambda levels: jax.tree.map(lambda leaf: leaf[:, :time], levels[1:])

    def _scan(
        self, step: Callable[[Carry, SegmentsFrom], tuple[Carry, Any]], carry: Carry
    ) -> tuple[Carry, Any]:
        """`lax.scan` over the starts, from the last to the first; outputs are ordered by start."""
        time, width = len(self.filtered.log_density), self.width
        runs = jnp.arange(1, width + 1, dtype=jnp.int32)
        evidence = jnp.pad(self.filtered.log_density, (0, width))
        counted = self.sequences.counted_by(self.segment)
        advance, first = self._counted() if counted else self._merged()

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
            now = SegmentsFrom(start, weight, reached, later, total, statistics)
            others, output = step(others, now)
            return (now.put(log_totals, total), state, others), output

        log_totals = jnp.full(time + 1 + width, -jnp.inf).at[time].set(0)
        starts = jnp.arange(time, dtype=jnp.int32)
        (_, _, carry), outputs = lax.scan(
            at_start, (log_totals, first, carry), starts, reverse=True
        )
        return carry, outputs

    def _counted(self) -> tuple[Callable[..., Any], Any]:
        """How the numbers of x_(s+r) among x_s..x_(s+r-1) follow from those of s + 1."""
        width = self.width
        symbols = jnp.pad(self.sequences.values, (0, width))
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
        values = self.sequences.values.astype(float)
        padding = ((0, width), *((0, 0),) * (values.ndim - 1))
        values = jnp.pad(values, padding, constant_values=jnp.nan)
        initial = initial_statistics(segment, self.sequences.offset)
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


def _starts_from(ends: Int[Array, "time count"]) -> Bool[Array, "count time"]:
    """Where the segments of partitions start, from the end of a segment by its start."""

    def step(start: Int[Array, " count"], now: tuple[Array, Array]) -> tuple[Array, Array]:
        time, end = now
        return jnp.where(start == time, end, start), start == time

    time, count = ends.shape
    times = jnp.arange(time, dtype=jnp.int32)
    _, starts = lax.scan(step, jnp.zeros(count, jnp.int32), (times, ends))
    return starts.T.at[:, 0].set(False)
