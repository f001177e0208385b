"""The posterior over switching points for any prior: O(n^2) time, O(n width) with short segments.

Everything follows from passes over all segments, by their starts from the last to the first
(`all_segments.py`). Each draws the end of the segment that starts there, or takes the most probable
one; followed from the start of the sequence, these ends make a partition.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint._batching import in_chunks
from switchpoint._prefix_sums import sum_before
from switchpoint._random import uniform
from switchpoint.exact.all_segments import Segments, SegmentsFrom, over_sequences
from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.blocks import filter_batch
from switchpoint.exact.hypotheses import Filtered, Sequences
from switchpoint.exact.levels import Levels, add_levels, level_fields, levels_from, levels_of
from switchpoint.exact.posterior import Partitions, Posterior, make_posterior
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import log_density, prior_statistics
from switchpoint.segments.dirichlet import as_dirichlet

_MIN_WIDTH = 2048  # that is worth being narrowed


def start_posterior(
    predictor: ExactPredictor[Any], sequences: Sequences, batch: tuple[int, ...]
) -> Posterior:
    """The posterior over switching points of a flat batch of that shape, under any prior."""
    prior, segment = predictor.prior, predictor.segment
    filtered = filter_batch(prior, segment, sequences, for_posterior=True)
    width = _width(prior, filtered)
    filtered = filtered._replace(reach=None)
    fields = _fields(prior, segment, sequences, filtered, width)
    partitions = StartPartitions(prior, segment, sequences, filtered, width)
    return make_posterior(fields, batch, partitions)


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


@functools.partial(jax.jit, static_argnames="width")
def _fields(
    prior: Prior, segment: Segment, sequences: Sequences, filtered: Filtered, width: int
) -> dict[str, Array]:
    def of_chunk(chunk: tuple[Sequences, Filtered]) -> dict[str, Array]:
        sequences, filtered = chunk
        fields = over_sequences(prior, segment, chunk, width, _smoothed)
        mean, variance = fields.pop("mean"), fields.pop("variance", None)
        fresh = jax.vmap(jax.vmap(functools.partial(log_density, segment), in_axes=(None, 0)))(
            sequences.initial_statistics(segment), sequences.values.astype(float)
        )
        started = jnp.exp(filtered.log_start + fresh - filtered.log_density)
        run_length_mean: Any = filtered.run_length_mean
        return {
            "log_marginal": filtered.log_density.sum(-1),
            "switch_filtered": started.at[:, 0].set(0),
            "run_length_mean": run_length_mean,
            **fields,
            **level_fields(segment, mean, variance, sequences.offset),
        }

    counted = sequences.counted_by(segment)
    return in_chunks(of_chunk, (sequences, filtered), 1 if counted else 32)


class MostProbable(NamedTuple):
    """The most probable partition of x_s.. into segments, for every start s."""

    log_prob: Float[Array, " starts"]
    """For s = 0, ln P(the partition | x)."""

    def before(self, now: SegmentsFrom) -> tuple["MostProbable", Int[Array, ""]]:
        """With segments that start here, and the end of the best of them."""
        width = len(now.log_weight)
        later = lax.dynamic_slice_in_dim(self.log_prob, now.start + 1, width)
        scores = now.log_weight + later
        best = scores.argmax()
        log_prob = lax.dynamic_update_index_in_dim(self.log_prob, scores[best], now.start, 0)
        return MostProbable(log_prob), now.start + 1 + best.astype(jnp.int32)


def _smoothed(segments: Segments) -> dict[str, Array]:
    """The fields of the posterior of one sequence that need all of it."""
    time, width = segments.time, segments.width
    levels, add, of_time = _level_pass(segments)

    def step(carry: tuple[Any, MostProbable], now: SegmentsFrom) -> tuple[Any, Any]:
        levels, best = carry
        weights = jnp.exp(segments.log_start[now.start] + now.log_weight + now.log_later)
        best, end = best.before(now)
        return (add(levels, now, weights), best), (now.log_total, end)

    best = MostProbable(jnp.full(time + 1 + width, -jnp.inf).at[time].set(0))
    (levels, best), (log_totals, ends) = segments.scan(step, (levels, best))
    # B(0) is 1 but for rounding.
    smoothed = jnp.exp(jnp.minimum(segments.log_start + log_totals - log_totals[0], 0.0))
    mean, variance = of_time(levels)
    return {
        "switch_smoothed": smoothed.at[0].set(0),
        "map_switches": _starts_from(ends[:, None])[0],
        "map_log_prob": best.log_prob[0] - log_totals[0],
        "mean": mean,
        **({} if variance is None else {"variance": variance}),
    }


def _level_pass(segments: Segments) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """The level at each time: without any segment, with those from one start, and in the end."""
    time, width = segments.time, segments.width
    if segments.sequence.counted_by(segments.segment):
        segment = as_dirichlet(segments.segment)
        pseudo = jnp.asarray(segment.pseudo_counts)
        totals = jnp.arange(1, width + 1) + pseudo.sum()
        hot = jax.nn.one_hot(segments.sequence.values, segment.alphabet, axis=0)
        counts = sum_before(jnp.pad(hot, ((0, 0), (0, width + 1))))

        def change(carry: Array, now: SegmentsFrom, weights: Float[Array, " width"]) -> Array:
            """The change at t of E[the distribution of x_t | x]."""
            prior = pseudo - lax.dynamic_index_in_dim(counts, now.start, 1, keepdims=False)
            until = lax.dynamic_slice_in_dim(counts, now.start + 1, width, 1)
            means = (until + prior[:, None]) * (weights / totals)
            later = lax.dynamic_slice_in_dim(carry, now.start + 1, width, 1) - means
            carry = lax.dynamic_update_slice_in_dim(carry, later, now.start + 1, 1)
            here = lax.dynamic_index_in_dim(carry, now.start, 1, keepdims=False) + means.sum(-1)
            return lax.dynamic_update_index_in_dim(carry, here, now.start, 1)

        def total(carry: Array) -> tuple[Array, None]:
            return (sum_before(carry) + carry)[:, :time], None

        return jnp.zeros((segment.alphabet, time + width + 1)), change, total

    def add(carry: Levels, now: SegmentsFrom, weights: Float[Array, " width"]) -> Levels:
        here = levels_from(segments.segment, now.statistics, weights)

        def put(whole: Array, part: Array) -> Array:
            return lax.dynamic_update_slice_in_dim(whole, part, now.start, axis=-1)

        there = jax.tree.map(
            lambda leaf: lax.dynamic_slice_in_dim(leaf, now.start, width, axis=-1), carry
        )
        return jax.tree.map(put, carry, add_levels(there, here))

    shapes = jax.eval_shape(
        lambda: [
            (each.mean, each.covariance)
            for each in levels_of(segments.segment, prior_statistics(segments.segment))
        ]
    )
    outputs = sum(mean.shape[-1] for mean, _ in shapes)
    zeros = jnp.zeros((outputs, time + width))
    variance = None if shapes[0][1] is None else zeros
    first = Levels(jnp.zeros(time + width), zeros, variance)
    return first, add, lambda levels: jax.tree.map(lambda leaf: leaf[:, :time], levels[1:])


def _starts_from(ends: Int[Array, "time count"]) -> Bool[Array, "count time"]:
    """Where the segments of partitions start, from the end of a segment by its start."""

    def step(start: Int[Array, " count"], now: tuple[Array, Array]) -> tuple[Array, Array]:
        time, end = now
        return jnp.where(start == time, end, start), start == time

    time, count = ends.shape
    times = jnp.arange(time, dtype=jnp.int32)
    _, starts = lax.scan(step, jnp.zeros(count, jnp.int32), (times, ends))
    return starts.T.at[:, 0].set(False)


class StartPartitions(Partitions):
    """The posterior distribution of partitions, through the starts of their segments."""

    prior: Prior
    segment: Segment
    sequences: Sequences
    filtered: Filtered
    width: int = eqx.field(static=True)

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Draws the end of a segment for every start, and follows them."""

        def draws(segments: Segments, row: Int[Array, ""]) -> Bool[Array, "count time"]:
            own = jax.random.fold_in(key, row)

            def step(carry: None, now: SegmentsFrom) -> tuple[None, Int[Array, " count"]]:
                up_to = sum_before(now.probs) + now.probs
                coins = uniform(jax.random.fold_in(own, now.start), (count,)) * up_to[-1]
                more = jnp.searchsorted(up_to, coins, side="right").astype(jnp.int32)
                return carry, now.start + 1 + jnp.minimum(more, self.width - 1)

            return _starts_from(segments.scan(step, None)[1])

        return jnp.swapaxes(self._each(draws), 0, 1)

    @functools.partial(jax.jit, static_argnames="most")
    def run_lengths(self, most: int) -> Float[Array, "flat time lengths"]:
        """By the probability of each start and length, if x ended after each observation."""
        width = self.width
        few = min(most, width)

        def probs(segments: Segments, _: Any) -> Float[Array, "time lengths"]:
            time = segments.time

            def step(totals: Array, now: SegmentsFrom) -> tuple[Array, Array]:
                reached = jnp.exp(segments.log_start[now.start] + now.log_reached)
                there = lax.dynamic_slice_in_dim(totals, now.start, width)
                totals = lax.dynamic_update_slice_in_dim(totals, there + reached, now.start, 0)
                return totals, reached[:few]

            totals, reached = segments.scan(step, jnp.zeros(time + width))
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

        return self._backwards(jnp.eye(1, most + 1)[0], one_more)

    @jax.jit
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """By the probability of none after each segment start."""
        outside = 1.0 - windows

        def masked(start: Int[Array, ""], none: Float[Array, " windows"]) -> Array:
            return none * outside[:, start]

        return self._backwards(jnp.ones(len(windows)), masked)

    def _backwards(
        self,
        last: Float[Array, " values"],
        before_switch: Callable[[Int[Array, ""], Float[Array, " values"]], Array],
    ) -> Float[Array, "flat values"]:
        """Expectations over partitions, from the last symbol to the first.

        `before_switch` maps an expectation after a switch to the one before it.
        """

        def expected(segments: Segments, _: Any) -> Float[Array, " values"]:
            time, width = segments.time, segments.width

            def step(table: Array, now: SegmentsFrom) -> tuple[Array, None]:
                later = lax.dynamic_slice_in_dim(table, now.start + 1, width, axis=1)
                here = jnp.matmul(later, now.probs, precision=lax.Precision.HIGHEST)
                # The start of the sequence is no switch.
                here = jnp.where(now.start > 0, before_switch(now.start, here), here)
                return lax.dynamic_update_index_in_dim(table, here, now.start, 1), None

            table = jnp.zeros((len(last), time + 1 + width)).at[:, time].set(last)
            return segments.scan(step, table)[0][:, 0]

        return self._each(expected)

    def _each(self, function: Callable[[Segments, Int[Array, ""]], Any]) -> Any:
        """`function` of all segments of each sequence, and its number."""

        def of_chunk(chunk: tuple[Sequences, Filtered, Int[Array, " flat"]]) -> Any:
            return over_sequences(self.prior, self.segment, chunk, self.width, function)

        numbers = jnp.arange(len(self.sequences.values), dtype=jnp.int32)
        return in_chunks(of_chunk, (self.sequences, self.filtered, numbers), 32)
