"""Predictors of segments whose starts are known: KT has one segment, its oracle the true ones."""

import functools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from switchpoint._prefix_sums import sum_before
from switchpoint.exact.base import SegmentPredictor
from switchpoint.exact.blocks import initial_statistics
from switchpoint.exact.counting import Clock
from switchpoint.exact.hypotheses import Sequences
from switchpoint.exact.streams import anchor, check_statistics, fresh_statistics, mixture
from switchpoint.segments import Bernoulli, Dirichlet, Segment
from switchpoint.segments.base import (
    Statistics,
    lift,
    log_density,
    no_statistics,
    observe,
    prior_statistics,
)


class KTState(eqx.Module):
    """The only hypothesis about the current segment."""

    time: Clock
    """The number of observations seen."""

    statistics: Statistics
    """The statistics of the segment of the last observation: (1, ...)."""

    offset: Float[Array, "*event"]
    """The first value, from which all are measured; NaN before it."""


class _KnownSegments(SegmentPredictor[KTState]):
    """The recursion over one hypothesis: P(x_t | x_<t) = M(x_t | x_s..x_(t-1)) for one start s."""

    def init(self, length: int | None = None) -> KTState:
        del length  # the state has a fixed size
        return KTState(Clock.start(), *fresh_statistics(self.segment, 1))

    @abstractmethod
    def _starts(self, times: Int[Array, " time"]) -> Bool[Array, " time"] | None:
        """Where segments start in a stream, unless nowhere."""

    @abstractmethod
    def _all_starts(self, shape: tuple[int, int]) -> Bool[Array, "flat time"] | None:
        """Where segments start in whole sequences, unless nowhere."""

    @jax.jit
    def _predict(self, state: KTState) -> Any:
        return mixture(self.segment, jnp.zeros(1), self._current(state), state.offset)

    @jax.jit
    def _update(self, state: KTState, x: Float[Array, "*event"]) -> KTState:
        observe_one = jax.vmap(functools.partial(observe, self.segment), in_axes=(0, None))
        return KTState(state.time.next(), observe_one(self._current(state), x), state.offset)

    def _current(self, state: KTState) -> Statistics:
        """The statistics of the segment of the next observation."""
        check_statistics(self.segment, state.statistics, 1)
        starts = self._starts(state.time.low[None])
        return self._restarted(state, starts)

    def _restarted(self, state: KTState, starts: Bool[Array, " time"] | None) -> Statistics:
        """The statistics of the state, or fresh ones from a start on: (time, ...)."""
        if starts is None:
            return state.statistics
        fresh = self.segment.translate(prior_statistics(self.segment), anchor(state.offset))
        return _where(jnp.cumsum(starts) > 0, fresh, state.statistics)

    @jax.jit
    def _extend(
        self, state: KTState, values: Float[Array, "time *event"]
    ) -> tuple[KTState, Float[Array, "time *alphabet"]]:
        check_statistics(self.segment, state.statistics, 1)
        starts = self._starts(state.time.low + jnp.arange(len(values), dtype=jnp.int32))
        before, after = _run_statistics(self.segment, values, starts)
        first = jax.tree.map(
            lambda old, new: jnp.broadcast_to(old, new.shape),
            self._restarted(state, starts),
            before,
        )
        merge = jax.vmap(self.segment.merge)
        last = jax.tree.map(lambda leaf: leaf[-1:], (first, after))
        time = state.time.plus(jnp.asarray(len(values), jnp.int32))
        logs = _logs(self.segment, merge(first, before), values, self.segment.finite)
        return KTState(time, merge(*last), state.offset), logs

    @jax.jit
    def _log_probs(self, sequences: Sequences) -> Float[Array, "flat time alphabet"]:
        return self._whole(sequences, with_probs=True)

    @jax.jit
    def _log_density(self, sequences: Sequences) -> Float[Array, "flat time"]:
        return self._whole(sequences, with_probs=False)

    def _whole(self, sequences: Sequences, with_probs: bool) -> Array:
        """`_extend` from a state before any observation, of a batch."""
        segment, values = self.segment, sequences.values.astype(float)

        def one(fresh: Statistics, values: Array, starts: Array | None) -> Array:
            before, _ = _run_statistics(segment, values, starts)
            statistics = jax.vmap(segment.merge, in_axes=(None, 0))(fresh, before)
            return _logs(segment, statistics, values, with_probs)

        fresh = initial_statistics(segment, sequences.offset)
        flat, time = values.shape[:2]
        return jax.vmap(one)(fresh, values, self._all_starts((flat, time)))


def _run_statistics(
    segment: Segment, values: Float[Array, "time *event"], starts: Bool[Array, " time"] | None
) -> tuple[Statistics, Statistics]:
    """The statistics of x_s..x_(t-1) and of x_s..x_t, without the prior: (time, ...) each.

    s is the last start up to t, or 0. They are parallel prefix sums.
    """
    each = jax.vmap(functools.partial(lift, segment))(values)
    if isinstance(segment, Dirichlet):
        total = sum_before(each.T.astype(float))
        if starts is not None:
            first = lax.cummax(jnp.where(starts, jnp.arange(len(values)), 0))
            total = total - total[:, first]
        before = total.T.astype(each.dtype)
        return before, before + each
    merge = jax.vmap(segment.merge)
    begins = jnp.zeros(len(values), bool).at[0].set(True)
    if starts is None:
        through = lax.associative_scan(merge, each)
    else:

        def joined(one: tuple[Array, Statistics], other: tuple[Array, Statistics]) -> Any:
            (starts, run), (restarts, later) = one, other
            return starts | restarts, _where(restarts, later, merge(run, later))

        begins = begins | starts
        _, through = lax.associative_scan(joined, (starts, each))
    shifted = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=0), through)
    return _where(begins, no_statistics(segment), shifted), through


def _where(times: Bool[Array, " time"], there: Statistics, elsewhere: Statistics) -> Statistics:
    """Statistics at some times, and others elsewhere."""

    def select(one: Any, other: Array) -> Array:
        return jnp.where(times.reshape(-1, *(1,) * (other.ndim - 1)), one, other)

    return jax.tree.map(select, there, elsewhere)


def _logs(
    segment: Segment, statistics: Statistics, values: Float[Array, "time *event"], with_probs: bool
) -> Float[Array, "time *alphabet"]:
    if not with_probs:
        return jax.vmap(functools.partial(log_density, segment))(statistics, values)
    predictive: Any = jax.vmap(segment.predictive)(statistics)
    return jnp.log(predictive.probs)


def _checked(segment: Any) -> Segment:
    if not isinstance(segment, Segment):
        raise ValueError(
            f"segment must be a Segment, such as switchpoint.Bernoulli(), got {segment!r}"
        )
    return segment


class KT(_KnownSegments):
    """The Krichevsky-Trofimov (1981) estimator: the Bayes optimum for a single segment.

    With n_k the number of x_0..x_(t-1) that are k, and a_k the pseudo-counts of the segment,

        P(x_t = k | x_<t) = (n_k + a_k) / (t + sum_j a_j).

    The default `Bernoulli()` has a_0 = a_1 = 1/2, as in their paper: the code length of n bits then
    exceeds that of the best fixed probability by at most (log2 n) / 2 + 1 bits. For any other
    family of segments it is the predictive distribution M(x_t | x_0..x_(t-1)) of a single segment,
    such as Student's t-distribution for `NormalGamma`.

    `log_probs` of symbols (..., n) is (..., n, alphabet), `log_density` of values (..., n) or
    (..., n, columns) is (..., n); both take O(n) time, times the alphabet where there is one. The
    state of a stream is the statistics of all observations; one more takes O(1) time.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> print(np.exp(sp.KT().log_probs([1, 1, 0])).round(3))
        [[0.5   0.5  ]
         [0.25  0.75 ]
         [0.167 0.833]]
    """

    segment: Segment = eqx.field(default=Bernoulli(), converter=_checked)

    def _check_length(self, length: int) -> None:
        del length

    def _starts(self, times: Int[Array, " time"]) -> None:
        del times

    def _all_starts(self, shape: tuple[int, int]) -> None:
        del shape


class KTOracle(_KnownSegments):
    """KT that restarts at the true switching points: no predictor does better.

    With s the last switching point up to t, or 0, and M the marginal probability of observations in
    a single segment,

        P(x_t | x_<t, S) = M(x_t | x_s..x_(t-1)).

    `switches` is True where a new segment starts, as in `Draw.switches`: (n,) or longer,
    shared by all sequences, or (..., n), a row per sequence of the batch. Streaming needs a single
    row. Shapes
    and cost are those of `KT`.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> oracle = sp.KTOracle([False, False, True], sp.Bernoulli())
        >>> print(np.exp(oracle.log_probs([1, 1, 0]))[:, 1])
        [0.5  0.75 0.5 ]
    """

    switches: Bool[Array, "*batch time"]
    segment: Segment

    def __init__(self, switches: Any, segment: Segment | None = None) -> None:
        self.switches = jnp.asarray(switches, bool)
        self.segment = Bernoulli() if segment is None else _checked(segment)

    def init(self, length: int | None = None) -> KTState:
        if self.switches.ndim != 1:
            raise ValueError(
                f"switches must be one row to predict one symbol at a time, "
                f"got shape {self.switches.shape}"
            )
        return super().init(length)

    def _check_length(self, length: int) -> None:
        if length > len(self.switches):
            raise ValueError(
                f"switches must cover the sequence, got {len(self.switches)} of them "
                f"for {length} observations"
            )

    def _check_shape(self, batch: tuple[int, ...], time: int) -> None:
        shape = (*batch, time)
        covered = self.switches.ndim == 1 and len(self.switches) >= time
        if not covered and self.switches.shape != shape:
            values = "symbols" if self.segment.finite else "values"
            raise ValueError(
                f"switches must have the shape of the {values} {shape}, got {self.switches.shape}"
            )

    def _starts(self, times: Int[Array, " time"]) -> Bool[Array, " time"]:
        return jnp.take(self.switches, times, mode="fill", fill_value=False)

    def _all_starts(self, shape: tuple[int, int]) -> Bool[Array, "flat time"]:
        return jnp.broadcast_to(self.switches[..., : shape[1]].reshape(-1, shape[1]), shape)
