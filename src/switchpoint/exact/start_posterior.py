"""The posterior over switching points for any prior: O(n^2) time.

Everything follows from the distribution q_e of the start of a segment that ends at e, which
`last_start.py` computes. Drawing starts backwards from e = n with q samples a partition from the
posterior; propagating probability backwards instead gives the smoothed probabilities; a maximum in
place of the sum gives the most probable partition in the same pass.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint._batching import in_chunks
from switchpoint._prefix_sums import sum_before
from switchpoint._random import uniform
from switchpoint.exact.base import ExactPredictor, Partitions, Posterior, make_posterior
from switchpoint.exact.blocks import initial_statistics
from switchpoint.exact.hypotheses import Filtered, Sequences
from switchpoint.exact.last_start import (
    FamilyLastStart,
    LastStart,
    SegmentsEnding,
    SymbolLastStart,
    filter_starts,
)
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import log_density
from switchpoint.segments.dirichlet import as_dirichlet


def start_posterior(
    predictor: ExactPredictor[Any], sequences: Sequences, batch: tuple[int, ...]
) -> Posterior:
    """The posterior over switching points of a flat batch of that shape, under any prior."""
    prior, segment = predictor.prior, predictor.segment
    leaves = jax.tree.leaves((prior, segment, sequences))
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    last_start: LastStart | None = None
    if sequences.counted_by(segment):
        fields, filtered = _fields_in_chunks(prior, segment, sequences)
        last_start = SymbolLastStart.after(prior, as_dirichlet(segment), sequences, filtered)
    elif traced or len(sequences.values) > 1:
        fields, _ = _fields_in_chunks(prior, segment, sequences)
    else:
        filtered, last_start = filter_starts(prior, segment, sequences)
        assert isinstance(last_start, FamilyLastStart)
        last_start = last_start.narrowed()
        fields = _fields(filtered, last_start, sequences)
    partitions = StartPartitions(prior, segment, sequences, last_start)
    return make_posterior(fields, batch, partitions)


@jax.jit
def _fields_in_chunks(
    prior: Prior, segment: Segment, sequences: Sequences
) -> tuple[dict[str, Array], Filtered]:
    def fields(chunk: Sequences) -> tuple[dict[str, Array], Filtered]:
        filtered, last_start = filter_starts(prior, segment, chunk)
        return _fields(filtered, last_start, chunk), filtered._replace(probs=None)

    counted, time = sequences.counted_by(segment), sequences.values.shape[1]
    return in_chunks(fields, sequences, 1 if counted else max(32, time // 2))


@jax.jit
def _fields(filtered: Filtered, last_start: Any, sequences: Sequences) -> dict[str, Array]:
    segment, time = last_start.segment, last_start.time
    fresh = jax.vmap(jax.vmap(functools.partial(log_density, segment), in_axes=(None, 0)))(
        initial_statistics(segment, sequences.offset), sequences.values.astype(float)
    )
    started = jnp.exp(filtered.log_start + fresh - filtered.log_density)
    run_length_mean: Any = filtered.run_length_mean
    boundary, levels, best, outputs = _smoothed(last_start)
    return {
        "log_marginal": filtered.log_density.sum(-1),
        "switch_filtered": started.at[:, 0].set(0),
        "switch_smoothed": boundary[:, :time].at[:, 0].set(0),
        "run_length_mean": run_length_mean,
        "map_switches": best.switches()[:, :time],
        "map_log_prob": best.log_prob[:, 0],
        **last_start.level_fields(levels, outputs, sequences.offset),
    }


class MostProbable(NamedTuple):
    """The most probable partition of x_s.. into segments, for every start s."""

    log_prob: Float[Array, "flat ends"]
    """For s = 0, ln P(the partition | x)."""
    end: Int[Array, "flat width"]
    """The end of its first segment."""

    @classmethod
    def before(cls, last_start: LastStart) -> "MostProbable":
        """Before the pass over the ends, from the last to the first."""
        flat, width = last_start.log_start.shape
        log_prob = jnp.full((flat, width + 1), -jnp.inf).at[:, last_start.time].set(0)
        return cls(log_prob, jnp.zeros((flat, width), jnp.int32))

    def after(self, now: SegmentsEnding) -> "MostProbable":
        """With segments that end here."""
        scores = now.log_segment + self.log_prob[:, now.end][:, None]
        width = scores.shape[1]
        better = scores > self.log_prob[:, :width]
        log_prob = jnp.where(better, scores, self.log_prob[:, :width])
        return MostProbable(
            self.log_prob.at[:, :width].set(log_prob), jnp.where(better, now.end, self.end)
        )

    def switches(self) -> Bool[Array, "flat width"]:
        """Where the segments of the most probable partition of all of x start."""

        def step(start: Int[Array, " flat"], now: tuple[Array, Array]) -> tuple[Array, Array]:
            time, end = now
            return jnp.where(start == time, end, start), start == time

        flat, width = self.end.shape
        times = jnp.arange(width, dtype=jnp.int32)
        _, starts = lax.scan(step, jnp.zeros(flat, jnp.int32), (times, self.end.T))
        return starts.T.at[:, 0].set(False)


def _smoothed(
    last_start: LastStart,
) -> tuple[Float[Array, "flat ends"], Any, MostProbable, Any]:
    """P(a segment starts at t | x), the levels, and the most probable partition."""
    flat, width = last_start.log_start.shape

    def step(
        carry: tuple[Array, Any, MostProbable], now: SegmentsEnding
    ) -> tuple[tuple[Array, Any, MostProbable], Any]:
        boundary, levels, best = carry
        segments = boundary[:, now.end][:, None] * last_start.probs(now.log_segment)
        levels, output = last_start.add_levels(levels, now, segments)
        boundary = boundary.at[:, :width].add(segments)
        return (boundary, levels, best.after(now)), output

    boundary = jnp.zeros((flat, width + 1)).at[:, last_start.time].set(1)
    carry = boundary, last_start.no_levels(), MostProbable.before(last_start)
    carry, outputs = last_start.over_ends(step, carry, reverse=True)
    return *carry, outputs


class StartPartitions(Partitions):
    """The posterior distribution of partitions, through the starts of their segments."""

    prior: Prior
    segment: Segment
    sequences: Sequences
    computed: LastStart | None = None
    """The result of `last_start`, if it is small enough to keep."""

    def last_start(self) -> LastStart:
        """The distribution of the start of a segment, given its end."""
        if self.computed is not None:
            return self.computed
        return filter_starts(self.prior, self.segment, self.sequences)[1]

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Draws the starts of segments backwards from the end of the sequence."""
        last_start = self.last_start()
        flat, time = len(last_start.log_start), last_start.time

        def step(ends: Int[Array, "count flat"], now: SegmentsEnding) -> tuple[Array, Array]:
            here, probs = now.end, last_start.probs(now.log_segment)
            up_to = sum_before(probs) + probs
            coins = uniform(jax.random.fold_in(key, here), (flat, count)) * up_to[:, -1:]
            starts = jax.vmap(lambda c, u: jnp.searchsorted(c, u, side="right"))(up_to, coins)
            starts = jnp.clip(starts.T, 0, here - 1).astype(jnp.int32)
            return jnp.where(ends == here, starts, ends), ends == here

        last = jnp.full((count, flat), time, jnp.int32)
        _, ends = last_start.over_ends(step, last, reverse=True)
        # Ends are at 1..n; the last is no switch.
        return jnp.pad(jnp.moveaxis(ends, 0, -1)[..., : time - 1], ((0, 0), (0, 0), (1, 0)))

    @functools.partial(jax.jit, static_argnames="most")
    def run_lengths(self, most: int) -> Float[Array, "flat time lengths"]:
        """By the distribution of the last start, if x ended after each observation."""
        last_start = self.last_start()
        before = jnp.arange(most, dtype=jnp.int32)  # observations of the segment before the last

        def step(carry: None, now: SegmentsEnding) -> tuple[None, Array]:
            starts = now.end - 1 - before
            probs = last_start.probs(now.log_segment)[:, jnp.maximum(starts, 0)]
            return carry, jnp.where(starts >= 0, probs, 0.0)

        _, probs = last_start.over_ends(step, None, filtering=True)
        return jnp.moveaxis(probs[: last_start.time], 0, 1)

    @functools.partial(jax.jit, static_argnames="most")
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """By the number of switches before each segment end."""

        def one_more(end: Int[Array, ""], pmf: Float[Array, "flat counts"]) -> Array:
            del end
            return jnp.pad(pmf, ((0, 0), (1, 0)))[:, :-1]

        return self._forwards(jnp.eye(1, most + 1)[0], one_more)

    @jax.jit
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """By the probability of none before each segment end."""
        outside = jnp.pad(1.0 - windows, ((0, 0), (0, 1)))

        def masked(end: Int[Array, ""], none: Float[Array, "flat windows"]) -> Array:
            return none * outside[:, end]

        return self._forwards(jnp.ones(len(windows)), masked)

    def _forwards(
        self,
        first: Float[Array, " values"],
        after_switch: Callable[[Int[Array, ""], Float[Array, "flat values"]], Array],
    ) -> Float[Array, "flat values"]:
        """Expectations over partitions, from the first symbol to the last.

        `after_switch` maps an expectation before a switch to the one after it.
        """
        last_start = self.last_start()
        flat, width = last_start.log_start.shape

        def step(table: Array, now: SegmentsEnding) -> tuple[Array, Array]:
            near = functools.partial(last_start.near, now.end)
            expected = jnp.einsum(
                "fs,fvs->fv",
                near(last_start.probs(now.log_segment)),
                near(table),
                precision=lax.Precision.HIGHEST,
            )
            return table.at[:, :, now.end].set(after_switch(now.end, expected)), expected

        table = jnp.zeros((flat, len(first), width + 1)).at[:, :, 0].set(first)
        _, expected = last_start.over_ends(step, table)
        return expected[last_start.time - 1]
