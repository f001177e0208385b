"""The posterior over switching points for any prior: O(n) memory, O(n^2) time.

Everything follows from one distribution. Let a segment end just before e (or reach the end of the
sequence, e = n, and continue unseen). It started at s with probability

    q_e(s)  proportional to  P(a segment starts at s | x_<s) P(L = e - s | s) P(x_s..x_(e-1))
                             / P(x_s..x_(e-1) | x_<s)

Drawing starts backwards from e = n with q samples a partition from the posterior; propagating
probability backwards instead gives the smoothed probabilities; a maximum in place of the sum gives
the most probable partition. The logarithm of the fraction is a sum of small terms.
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
        smoothed, probs = _smoothed(last_start)
        best, best_log_prob = most_probable(last_start)
        fresh = jnp.asarray(segment.pseudo_counts)
        fresh = fresh / fresh.sum()
        started = filtered.start_mass * fresh[rows] / evidence
        return {
            "log_marginal": logs.evidence.sum(-1),
            "switch_filtered": started.at[:, 0].set(0),
            "switch_smoothed": smoothed,
            "run_length_mean": filtered.run_length_mean,
            "probs_smoothed": probs,
            "map_switches": best,
            "map_log_prob": best_log_prob,
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
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False
    ) -> tuple[Carry, Any]:
        """`lax.scan` over the ends.

        A step is given the end and `log_segment`, which for each start s is
        ln P(L = end - s | s) P(x_s..x_(end-1)) / P(x_s..x_(end-1) | x_<s).
        """

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
        self, step: Step[Carry], carry: Carry, *, reverse: bool = False
    ) -> tuple[Carry, Any]:
        ends = jnp.arange(1, self.time + 1, dtype=jnp.int32)
        return lax.scan(
            lambda carry, end: step(carry, end, self._log_segment(end)),
            carry,
            ends,
            reverse=reverse,
        )

    def _log_segment(self, end: Int[Array, ""]) -> Float[Array, "flat time"]:
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
        lasts = log_length(self.prior, times, length, end < time)
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


def _smoothed(
    last_start: _SymbolLastStart,
) -> tuple[Float[Array, "flat time"], Float[Array, "flat time alphabet"]]:
    """P(a segment starts at t | x), and the posterior mean of the distribution at t."""
    flat, time = last_start.rows.shape
    alphabet = last_start.segment.alphabet

    def step(
        carry: tuple[Array, Array], end: Int[Array, ""], log_segment: Float[Array, "flat time"]
    ) -> tuple[tuple[Array, Array], None]:
        boundary, change = carry  # P(a segment starts at t | x), and the change of the mean there
        segments = boundary[:, end][:, None] * last_start.probs(log_segment)
        means = segments * last_start.predictive(end)
        change = change.at[:, :, :time].add(means).at[:, :, end].add(-means.sum(-1))
        return (boundary.at[:, :time].add(segments), change), None

    boundary = jnp.zeros((flat, time + 1)).at[:, time].set(1)
    nothing = jnp.zeros((alphabet, flat, time + 1))
    (boundary, change), _ = last_start.over_ends(step, (boundary, nothing), reverse=True)
    means = jnp.moveaxis((sum_before(change) + change)[:, :, :time], 0, -1)
    return boundary[:, :time].at[:, 0].set(0), means / means.sum(-1, keepdims=True)


def most_probable(
    last_start: LastStart,
) -> tuple[Bool[Array, "flat time"], Float[Array, " flat"]]:
    """The most probable partition, and the logarithm of its posterior probability."""
    flat, width = last_start.log_start.shape

    def step(
        best: Float[Array, "flat ends"],
        end: Int[Array, ""],
        log_segment: Float[Array, "flat width"],
    ) -> tuple[Array, Array]:
        scores = best[:, :width] + log_segment
        return best.at[:, end].set(scores.max(-1)), scores.argmax(-1).astype(jnp.int32)

    best = jnp.full((flat, width + 1), -jnp.inf).at[:, 0].set(0)
    best, previous = last_start.over_ends(step, best)

    def back(end: Int[Array, " flat"], now: tuple[Array, Array]) -> tuple[Array, Array]:
        here, start = now
        return jnp.where(end == here, start, end), end == here

    last = jnp.full(flat, last_start.time, jnp.int32)
    ends = jnp.arange(1, width + 1, dtype=jnp.int32)
    _, ended = lax.scan(back, last, (ends, previous), reverse=True)
    return _switches(ended.T, last_start.time), best[:, last_start.time]


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
        return _switches(jnp.moveaxis(ends, 0, -1), time)

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
            expected = jnp.einsum(
                "fs,fsv->fv",
                last_start.probs(log_segment),
                table[:, :width],
                precision=lax.Precision.HIGHEST,
            )
            return table.at[:, end].set(after_switch(end, expected)), expected

        table = jnp.zeros((flat, width + 1, len(first))).at[:, 0].set(first)
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


def _switches(ends: Bool[Array, "*batch width"], time: int) -> Bool[Array, "*batch time"]:
    """Switching points from segment ends at 1..n, of which the last is not a switch."""
    return jnp.pad(ends[..., : time - 1], [(0, 0)] * (ends.ndim - 1) + [(1, 0)])
