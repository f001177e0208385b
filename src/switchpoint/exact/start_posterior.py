"""The posterior over switching points for any prior: O(n) memory, O(n^2) time.

Everything follows from one law. Let a segment end just before e (or at the end of the
sequence, e = n, where it may go on unseen). It started at s with probability

    q_e(s)  proportional to  P(a segment starts at s | x_<s) P(L = e - s | s) P(x_s..x_(e-1))
                             / P(x_s..x_(e-1) | x_<s)

Draw starts backwards from e = n with q and the partition is a draw from the posterior; push
probability backwards instead and it is the smoothed law; put a maximum for the sum and it
is the most probable partition. The fraction's logarithm is a sum of small terms.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint._batching import flat_batch, in_chunks
from switchpoint._prefix_sums import sum_after, sum_before
from switchpoint._random import uniform
from switchpoint.exact.posterior import Partitions, Posterior, Summaries
from switchpoint.exact.recursion import forward
from switchpoint.priors import Prior
from switchpoint.segments import Segment


def start_posterior(
    prior: Prior, segment: Segment, symbols: Int[Array, "*batch time"]
) -> Posterior:
    """The posterior over switching points under any prior."""
    rows, batch = flat_batch(symbols)
    summaries, filter_logs = _summaries(prior, segment, rows)
    return summaries.shaped(batch, StartPartitions(prior, segment, rows, filter_logs))


class _FilterLogs(NamedTuple):
    """What the forward recursion leaves for looking back."""

    evidence: Float[Array, "flat time"]
    """ln P(x_t | x_<t)."""
    start_mass: Float[Array, "flat time"]
    """ln P(a segment starts at t | x_<t)."""


@jax.jit
def _summaries(
    prior: Prior, segment: Segment, rows: Int[Array, "flat time"]
) -> tuple[Summaries, _FilterLogs]:
    def summaries(rows: Int[Array, "flat time"]) -> tuple[Summaries, _FilterLogs]:
        filtered = forward(prior, segment, rows)
        evidence = jnp.take_along_axis(filtered.probs, rows[..., None], axis=-1)[..., 0]
        logs = _FilterLogs(jnp.log(evidence), jnp.log(filtered.start_mass))
        laws = _LastStart.of(prior, segment, rows, logs)
        smoothed, probs = _smoothed(laws)
        best, best_log_prob = _most_probable(laws)
        fresh = jnp.asarray(segment.pseudo_counts)
        fresh = fresh / fresh.sum()
        started = filtered.start_mass * fresh[rows] / evidence
        looked_back = Summaries(
            log_marginal=logs.evidence.sum(-1),
            switch_filtered=started.at[:, 0].set(0),
            switch_smoothed=smoothed,
            run_length_mean=filtered.run_length_mean,
            probs_smoothed=probs,
            map_switches=best,
            map_log_prob=best_log_prob,
        )
        return looked_back, logs

    return in_chunks(summaries, rows)


class _LastStart(eqx.Module):
    """Where a segment that ends before e started."""

    prior: Prior
    segment: Segment
    rows: Int[Array, "flat time"]
    logs: _FilterLogs
    counts: Float[Array, "alphabet flat ends"]  # of each symbol before e = 0..time

    @classmethod
    def of(
        cls, prior: Prior, segment: Segment, rows: Int[Array, "flat time"], logs: _FilterLogs
    ) -> "_LastStart":
        hot = jax.nn.one_hot(rows, segment.alphabet, axis=0)
        counts = sum_before(jnp.pad(hot, ((0, 0), (0, 0), (0, 1))))
        return cls(prior, segment, rows, logs, counts)

    def log_segment(self, end: Int[Array, ""]) -> Float[Array, "flat time"]:
        """ln P(L = end - s | s) P(x_s..x_(end-1)) / P(x_s..x_(end-1) | x_<s), for each s."""
        time = self.rows.shape[1]
        times = jnp.arange(time, dtype=jnp.int32)
        # The segment's symbols are exchangeable: predict them backwards, from the end.
        until_end = self.counts[:, :, end]
        since = self._of_own(until_end[:, :, None]) - self._of_own(self.counts[:, :, 1:])
        pseudo = jnp.asarray(self.segment.pseudo_counts)
        behind = jnp.maximum(end - 1 - times, 0) + pseudo.sum()
        inside = times < end
        chances = jnp.where(inside, (since + pseudo[self.rows]) / behind, 1.0)
        gains = jnp.where(inside, jnp.log(chances) - self.logs.evidence, 0.0)
        length = jnp.maximum(end - times, 1)
        lasts = jnp.where(
            end < time,
            self.prior.log_pmf(times, length),
            self.prior.log_survival(times, length - 1),
        )
        return jnp.where(inside, lasts + sum_after(gains) + gains, -jnp.inf)

    def law(self, end: Int[Array, ""]) -> Float[Array, "flat time"]:
        """q_end(s); all zero where no segment can end there."""
        scores = self.logs.start_mass + self.log_segment(end)
        highest = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - jnp.where(jnp.isfinite(highest), highest, 0.0))
        return weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)

    def predictive(self, end: Int[Array, ""]) -> Float[Array, "alphabet flat time"]:
        """E[the distribution of the segment from s to end | its symbols], for each s."""
        counts = self.counts[:, :, end][:, :, None] - self.counts[:, :, :-1]
        inside = jnp.maximum(counts, 0)  # starts after the end have no weight
        return jnp.moveaxis(self.segment.predictive(jnp.moveaxis(inside, 0, -1)), -1, 0)

    def _of_own(self, counts: Float[Array, "alphabet flat #time"]) -> Float[Array, "flat time"]:
        """The count of the symbol that stands at each time."""
        counts = jnp.broadcast_to(counts, (len(counts), *self.rows.shape))
        return jnp.take_along_axis(counts, self.rows[None], axis=0)[0]

    def ends(self) -> Int[Array, " time"]:
        """1..n, the places where a segment can end."""
        return jnp.arange(1, self.rows.shape[1] + 1, dtype=jnp.int32)


def _smoothed(
    laws: _LastStart,
) -> tuple[Float[Array, "flat time"], Float[Array, "flat time alphabet"]]:
    """P(a segment starts at t | x), and the posterior mean of the distribution at t."""
    flat, time = laws.rows.shape
    alphabet = laws.segment.alphabet

    def step(
        carry: tuple[Float[Array, "flat ends"], Float[Array, "alphabet flat ends"]],
        end: Int[Array, ""],
    ) -> tuple[tuple[Float[Array, "flat ends"], Float[Array, "alphabet flat ends"]], None]:
        boundary, change = carry  # P(a segment starts at t | x); what the mean changes by there
        segments = boundary[:, end][:, None] * laws.law(end)
        means = segments * laws.predictive(end)
        change = change.at[:, :, :time].add(means).at[:, :, end].add(-means.sum(-1))
        return (boundary.at[:, :time].add(segments), change), None

    boundary = jnp.zeros((flat, time + 1)).at[:, time].set(1)
    nothing = jnp.zeros((alphabet, flat, time + 1))
    (boundary, change), _ = lax.scan(step, (boundary, nothing), laws.ends(), reverse=True)
    means = jnp.moveaxis((sum_before(change) + change)[:, :, :time], 0, -1)
    return boundary[:, :time].at[:, 0].set(0), means / means.sum(-1, keepdims=True)


def _most_probable(laws: _LastStart) -> tuple[Bool[Array, "flat time"], Float[Array, " flat"]]:
    """The most probable partition, and the logarithm of its posterior probability."""
    flat, time = laws.rows.shape

    def step(
        best: Float[Array, "flat ends"], end: Int[Array, ""]
    ) -> tuple[Float[Array, "flat ends"], Int[Array, " flat"]]:
        scores = best[:, :time] + laws.log_segment(end)
        return best.at[:, end].set(scores.max(-1)), scores.argmax(-1).astype(jnp.int32)

    best = jnp.full((flat, time + 1), -jnp.inf).at[:, 0].set(0)
    best, previous = lax.scan(step, best, laws.ends())

    def back(
        end: Int[Array, " flat"], now: tuple[Int[Array, ""], Int[Array, " flat"]]
    ) -> tuple[Int[Array, " flat"], Bool[Array, " flat"]]:
        here, start = now
        return jnp.where(end == here, start, end), end == here

    last = jnp.full(flat, time, jnp.int32)
    _, ends = lax.scan(back, last, (laws.ends(), previous), reverse=True)
    return _switches(ends.T), best[:, time]


class StartPartitions(Partitions):
    """The posterior law of partitions, by where the segments that end at each place started."""

    prior: Prior
    segment: Segment
    rows: Int[Array, "flat time"]
    logs: _FilterLogs

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Draws the starts of segments backwards from the end of the sequence."""
        laws = self._laws()
        flat, time = self.rows.shape

        def step(
            ends: Int[Array, "count flat"], here: Int[Array, ""]
        ) -> tuple[Int[Array, "count flat"], Bool[Array, "count flat"]]:
            law = laws.law(here)
            up_to = sum_before(law) + law
            coins = uniform(jax.random.fold_in(key, here), (flat, count)) * up_to[:, -1:]
            starts = jax.vmap(lambda c, u: jnp.searchsorted(c, u, side="right"))(up_to, coins)
            starts = jnp.clip(starts.T, 0, here - 1).astype(jnp.int32)
            return jnp.where(ends == here, starts, ends), ends == here

        last = jnp.full((count, flat), time, jnp.int32)
        _, ends = lax.scan(step, last, laws.ends(), reverse=True)
        return _switches(jnp.moveaxis(ends, 0, -1))

    @functools.partial(jax.jit, static_argnames="most")
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """By how many switches there are before each place, if a segment ends there."""

        def one_more(end: Int[Array, ""], law: Float[Array, "flat counts"]) -> Array:
            del end
            return jnp.pad(law, ((0, 0), (1, 0)))[:, :-1]

        return self._forwards(jnp.eye(1, most + 1)[0], one_more)

    @jax.jit
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """By whether there is one before each place, if a segment ends there."""
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

        `after_switch` says what becomes of an expectation where a segment starts.
        """
        laws = self._laws()
        flat, time = self.rows.shape

        def expected(table: Float[Array, "flat time values"], end: Int[Array, ""]) -> Array:
            return jnp.einsum("fs,fsv->fv", laws.law(end), table, precision=lax.Precision.HIGHEST)

        def step(table: Array, end: Int[Array, ""]) -> tuple[Array, None]:
            return table.at[:, end].set(after_switch(end, expected(table, end))), None

        table = jnp.zeros((flat, time, len(first))).at[:, 0].set(first)
        table, _ = lax.scan(step, table, laws.ends()[:-1])
        return expected(table, laws.ends()[-1])

    def _laws(self) -> _LastStart:
        return _LastStart.of(self.prior, self.segment, self.rows, self.logs)


def _switches(ends: Bool[Array, "*batch time"]) -> Bool[Array, "*batch time"]:
    """Switching points from where segments end: 1..n, the last of them unseen."""
    return jnp.pad(ends[..., :-1], [(0, 0)] * (ends.ndim - 1) + [(1, 0)])
