"""The posterior over switching points for any prior: O(n) memory, O(n^2) time.

Everything follows from one distribution. Let a segment end just before e (or reach the end of the
sequence, e = n, and continue unseen). It started at s with probability

    q_e(s)  proportional to  P(a segment starts at s | x_<s) P(L = e - s | s) P(x_s..x_(e-1))
                             / P(x_s..x_(e-1) | x_<s)

Drawing starts backwards from e = n with q samples a partition from the posterior; propagating
probability backwards instead gives the smoothed probabilities; a maximum in place of the sum gives
the most probable partition in the same pass. The logarithm of the fraction is a sum of small terms.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint._batching import flat_batch, in_chunks
from switchpoint._prefix_sums import sum_after, sum_before
from switchpoint._random import uniform
from switchpoint.exact.base import Partitions, Posterior, make_posterior
from switchpoint.exact.recursion import forward
from switchpoint.priors import Prior
from switchpoint.segments import Dirichlet

Carry = TypeVar("Carry")
Step = Callable[[Carry, Int[Array, ""], Float[Array, "flat width"]], tuple[Carry, Any]]
"""(carry, end, `log_segment` of each start) -> (carry, output)."""


class _FilterLogs(NamedTuple):
    """The results of the forward recursion that the backward pass needs."""

    evidence: Float[Array, "flat time"]
    """ln P(x_t | x_<t)."""
    start_mass: Float[Array, "flat time"]
    """ln P(a segment starts at t | x_<t)."""


def changepoint_posterior(
    prior: Prior, segment: Dirichlet, symbols: Int[Array, "*batch time"]
) -> Posterior:
    """The posterior over switching points under any prior."""
    rows, batch = flat_batch(symbols)
    fields, logs = _fields(prior, segment, rows)
    return make_posterior(fields, batch, SymbolPartitions(prior, segment, rows, logs))


@jax.jit
def _fields(
    prior: Prior, segment: Dirichlet, rows: Int[Array, "flat time"]
) -> tuple[dict[str, Array], _FilterLogs]:
    def fields(rows: Int[Array, "flat time"]) -> tuple[dict[str, Array], _FilterLogs]:
        filtered = forward(prior, segment, rows)
        evidence = jnp.take_along_axis(filtered.probs, rows[..., None], axis=-1)[..., 0]
        logs = _FilterLogs(jnp.log(evidence), jnp.log(filtered.start_mass))
        last_start = _SymbolLastStart.of(prior, segment, rows, logs)
        smoothed, probs, best = _smoothed(last_start)
        fresh = jnp.asarray(segment.pseudo_counts)
        fresh = fresh / fresh.sum()
        started = filtered.start_mass * fresh[rows] / evidence
        return {
            "log_marginal": logs.evidence.sum(-1),
            "switch_filtered": started.at[:, 0].set(0),
            "switch_smoothed": smoothed,
            "run_length_mean": filtered.run_length_mean,
            "probs_smoothed": probs,
            "map_switches": best.switches(),
            "map_log_prob": best.log_prob[:, 0],
        }, logs

    return in_chunks(fields, rows)


class LastStart(eqx.Module):
    """The distribution q_e of the start of a segment that ends just before e.

    Starts are 0..width-1 and ends 1..width; width may exceed the time, beyond which all is ignored.
    """

    time: eqx.AbstractVar[int]
    log_start: eqx.AbstractVar[Float[Array, "flat width"]]
    """ln P(a segment starts at s | x_<s)."""

    @abstractmethod
    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Carry, Any]:
        """`lax.scan` over the ends.

        A step is given the end and `log_segment`, which for each start s is
        ln P(L = end - s | s) P(x_s..x_(end-1)) / P(x_s..x_(end-1) | x_<s). For filtering, as if x
        ended there, L = end - s becomes L >= end - s.
        """

    @abstractmethod
    def near(self, end: Int[Array, ""], by_start: Array) -> Array:
        """The part for those starts, along the last axis, whose q_end may not be negligible."""

    def probs(self, log_segment: Float[Array, "flat width"]) -> Float[Array, "flat width"]:
        """q_end(s); all zeros if no segment can end there."""
        scores = self.log_start + log_segment
        highest = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - jnp.where(jnp.isfinite(highest), highest, 0.0))
        return weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)


class _SymbolLastStart(LastStart):
    """For independent symbols, by their counts."""

    time: int = eqx.field(static=True)
    log_start: Float[Array, "flat width"]
    prior: Prior
    segment: Dirichlet
    rows: Int[Array, "flat time"]
    evidence: Float[Array, "flat time"]
    counts: Float[Array, "alphabet flat ends"]  # of each symbol before e = 0..time

    @classmethod
    def of(
        cls, prior: Prior, segment: Dirichlet, rows: Int[Array, "flat time"], logs: _FilterLogs
    ) -> "_SymbolLastStart":
        hot = jax.nn.one_hot(rows, segment.alphabet, axis=0)
        counts = sum_before(jnp.pad(hot, ((0, 0), (0, 0), (0, 1))))
        return cls(rows.shape[1], logs.start_mass, prior, segment, rows, logs.evidence, counts)

    def over_ends(
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False, filtering: bool = False
    ) -> tuple[Carry, Any]:
        ends = jnp.arange(1, self.time + 1, dtype=jnp.int32)
        return lax.scan(
            lambda carry, end: step(carry, end, self._log_segment(end, filtering)),
            carry,
            ends,
            reverse=reverse,
        )

    def near(self, end: Int[Array, ""], by_start: Array) -> Array:
        del end
        return by_start[..., : self.time]

    def _log_segment(self, end: Int[Array, ""], filtering: bool) -> Float[Array, "flat time"]:
        time = self.time
        times = jnp.arange(time, dtype=jnp.int32)
        # The symbols of a segment are exchangeable: predict them backwards, from its end.
        until_end = self.counts[:, :, end]
        since = self._of_symbol(until_end[:, :, None]) - self._of_symbol(self.counts[:, :, 1:])
        pseudo = jnp.asarray(self.segment.pseudo_counts)
        behind = jnp.maximum(end - 1 - times, 0) + pseudo.sum()
        inside = times < end
        chances = jnp.where(inside, (since + pseudo[self.rows]) / behind, 1.0)
        gains = jnp.where(inside, jnp.log(chances) - self.evidence, 0.0)
        length = jnp.maximum(end - times, 1)
        lasts = log_length(self.prior, times, length, (end < time) & (not filtering))
        return jnp.where(inside, lasts + sum_after(gains) + gains, -jnp.inf)

    def predictive(self, end: Int[Array, ""]) -> Float[Array, "alphabet flat time"]:
        """E[the distribution of the segment from s to end | its symbols], for each s."""
        counts = self.counts[:, :, end][:, :, None] - self.counts[:, :, :-1]
        inside = jnp.maximum(counts, 0)  # starts after the end have zero weight
        return jnp.moveaxis(self.segment.probs(jnp.moveaxis(inside, 0, -1)), -1, 0)

    def _of_symbol(self, counts: Float[Array, "alphabet flat #time"]) -> Float[Array, "flat time"]:
        """The count of the symbol at each time."""
        counts = jnp.broadcast_to(counts, (len(counts), *self.rows.shape))
        return jnp.take_along_axis(counts, self.rows[None], axis=0)[0]


def log_length(
    prior: Prior, starts: Int[Array, "..."], length: Int[Array, "..."], ends: Bool[Array, "..."]
) -> Float[Array, "..."]:
    """ln P(L = length | start) of segments that end, ln P(L >= length | start) of the last."""
    return jnp.where(ends, prior.log_pmf(starts, length), prior.log_survival(starts, length - 1))


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

    def after(self, end: Int[Array, ""], log_segment: Float[Array, "flat width"]) -> "MostProbable":
        """With segments that end here."""
        scores = log_segment + self.log_prob[:, end][:, None]
        width = scores.shape[1]
        better = scores > self.log_prob[:, :width]
        log_prob = jnp.where(better, scores, self.log_prob[:, :width])
        return MostProbable(
            self.log_prob.at[:, :width].set(log_prob), jnp.where(better, end, self.end)
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
    last_start: _SymbolLastStart,
) -> tuple[Float[Array, "flat time"], Float[Array, "flat time alphabet"], MostProbable]:
    """P(a segment starts at t | x), the mean distribution at t, and the most probable partition."""
    flat, time = last_start.rows.shape
    alphabet = last_start.segment.alphabet

    def step(
        carry: tuple[Array, Array, MostProbable],
        end: Int[Array, ""],
        log_segment: Float[Array, "flat time"],
    ) -> tuple[tuple[Array, Array, MostProbable], None]:
        # P(a segment starts at t | x), and the change of the mean there
        boundary, change, best = carry
        segments = boundary[:, end][:, None] * last_start.probs(log_segment)
        means = segments * last_start.predictive(end)
        change = change.at[:, :, :time].add(means).at[:, :, end].add(-means.sum(-1))
        boundary = boundary.at[:, :time].add(segments)
        return (boundary, change, best.after(end, log_segment)), None

    boundary = jnp.zeros((flat, time + 1)).at[:, time].set(1)
    nothing = jnp.zeros((alphabet, flat, time + 1))
    carry = boundary, nothing, MostProbable.before(last_start)
    (boundary, change, best), _ = last_start.over_ends(step, carry, reverse=True)
    means = jnp.moveaxis((sum_before(change) + change)[:, :, :time], 0, -1)
    means = means / means.sum(-1, keepdims=True)
    return boundary[:, :time].at[:, 0].set(0), means, best


class StartPartitions(Partitions):
    """The posterior distribution of partitions, through the starts of their segments."""

    @abstractmethod
    def last_start(self) -> LastStart:
        """The distribution of the start of a segment, given its end."""

    @functools.partial(jax.jit, static_argnames="count")
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """Draws the starts of segments backwards from the end of the sequence."""
        last_start = self.last_start()
        flat, time = len(last_start.log_start), last_start.time

        def step(
            ends: Int[Array, "count flat"], here: Int[Array, ""], log_segment: Array
        ) -> tuple[Array, Array]:
            probs = last_start.probs(log_segment)
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

        def step(carry: None, end: Int[Array, ""], log_segment: Array) -> tuple[None, Array]:
            starts = end - 1 - before
            probs = last_start.probs(log_segment)[:, jnp.maximum(starts, 0)]
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

        def step(table: Array, end: Int[Array, ""], log_segment: Array) -> tuple[Array, Array]:
            probs = last_start.probs(log_segment)
            expected = jnp.einsum(
                "fs,fvs->fv",
                last_start.near(end, probs),
                last_start.near(end, table),
                precision=lax.Precision.HIGHEST,
            )
            return table.at[:, :, end].set(after_switch(end, expected)), expected

        table = jnp.zeros((flat, len(first), width + 1)).at[:, :, 0].set(first)
        _, expected = last_start.over_ends(step, table)
        return expected[last_start.time - 1]


class SymbolPartitions(StartPartitions):
    """The posterior distribution of partitions of independent symbols."""

    prior: Prior
    segment: Dirichlet
    rows: Int[Array, "flat time"]
    logs: _FilterLogs

    def last_start(self) -> LastStart:
        return _SymbolLastStart.of(self.prior, self.segment, self.rows, self.logs)
