"""The exact predictor of any source: the forward recursion over the current segment's start."""

import functools
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint import _checks
from switchpoint.exact.base import ExactPredictor, remembered
from switchpoint.exact.block_weights import safe_log
from switchpoint.exact.blocks import extend_hypotheses, filter_batch, whole_blocks
from switchpoint.exact.counting import Clock
from switchpoint.exact.hypotheses import Hypotheses, Sequences
from switchpoint.exact.mixture import MixturePredictor
from switchpoint.exact.ptw import PTWPredictor
from switchpoint.exact.start_posterior import start_posterior
from switchpoint.exact.streams import (
    absorb_each,
    anchor,
    check_statistics,
    fresh_statistics,
    initial_statistics,
)
from switchpoint.priors import PTW, Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics
from switchpoint.sources import AbstractSource, Source, SourceMixture

_INITIAL_CAPACITY = 64


@overload
def bayes_optimal(source: Source, max_hypotheses: int | None = None) -> ExactPredictor[Any]: ...


@overload
def bayes_optimal(source: AbstractSource, max_hypotheses: int | None = None) -> Any: ...


def bayes_optimal(source: AbstractSource, max_hypotheses: int | None = None) -> Any:
    """The exact Bayes optimum for data from `source`: no predictor has lower expected regret.

    It predicts with the mixture over all partitions of the past into segments. With w_t(s) the
    probability that the segment of x_t starts at s, given x_<t, and M the marginal probability of
    observations in a single segment,

        P(x_t | x_<t) = sum_(s<=t) w_t(s) M(x_t | x_s..x_(t-1)).

    Given x_t, v_t(s) = w_t(s) M(x_t | x_s..x_(t-1)) / P(x_t | x_<t), and with the hazard
    h(s, r) = P(a segment from s has length r | it has at least r), which is the law of the prior,

        w_(t+1)(s) = (1 - h(s, t+1-s)) v_t(s) for s <= t,   w_(t+1)(t+1) = sum_s h(s, t+1-s) v_t(s)

    (Fearnhead and Liu, 2007; Adams and MacKay, 2007). This takes O(n) state and time per
    observation, O(n^2) time for a sequence of n. For a `PTW` prior the result is a `PTWPredictor`,
    which needs O(depth), so a large depth serves streams of unknown length. With `max_hypotheses`
    only that many starts are kept, also under PTW; `pruning_bound` bounds the error. For a
    `SourceMixture` the result is a `MixturePredictor` of the optima of its sources.

    It may be run on data from any other source too. `log_probs` of symbols (..., n) is
    (..., n, alphabet), `log_density` of values (..., n) or (..., n, columns) is (..., n), and
    `posterior` has the switching points.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.2)))
        >>> print(np.exp(bayes.log_probs([1, 1, 1, 1, 0]))[:, 1].round(3))
        [0.5   0.7   0.757 0.783 0.797]
    """
    if not isinstance(source, AbstractSource):
        raise ValueError(
            "source must be a Source, such as switchpoint.Source(switchpoint.PTW(8)), "
            f"got {source!r}"
        )
    if isinstance(source, SourceMixture) and type(source).sample is SourceMixture.sample:
        optima = [bayes_optimal(each, max_hypotheses) for each in source.sources]
        return MixturePredictor(optima, source.weights)
    if not isinstance(source, Source) or source.overrides_sample:
        raise ValueError(
            f"the optimum of {type(source).__name__} is unknown, since its sampler is its own: its "
            "sequences need not have the law of a prior and a segment, whose optimum is "
            "bayes_optimal(Source(prior, segment)); switchpoint.evaluate measures without one"
        )
    if isinstance(source.prior, PTW) and max_hypotheses is None:
        return PTWPredictor(source.prior, source.segment)
    return ForwardPredictor(source.prior, source.segment, max_hypotheses)


class ForwardState(eqx.Module):
    """The hypotheses about where the current segment started, after t observations.

    time
        t, the number of observations seen.
    starts: (m,)
        The hypothesised starts s of the current segment (their last 31 bits), in m slots.
    log_weights: (m,)
        ln w_t(s) = ln P(the current segment started at s | x_<t); -inf in unused slots.
    statistics: (m, ...)
        The statistics of x_s..x_(t-1); for symbols, the count of each.
    offset: the shape of an observation
        The first value, from which all are measured; NaN before it.
    pruned_weight: ()
        The sum of the weights of all pruned hypotheses, each when it was pruned.
    grows
        Whether a longer stream needs more slots.

    `ForwardPredictor` makes it, and has an example.
    """

    time: Clock
    starts: Int[Array, " hypotheses"]
    log_weights: Float[Array, " hypotheses"]
    statistics: Statistics
    offset: Float[Array, "*event"]
    pruned_weight: Float[Array, ""]
    grows: bool = eqx.field(static=True)

    @property
    def weights(self) -> Float[Array, " hypotheses"]:
        """P(the current segment started there | x_<t); they sum to 1."""
        return jnp.exp(self.log_weights)


class ForwardPredictor(ExactPredictor[ForwardState]):
    """The Bayes optimum of a source with any prior, by the recursion over the segment's start.

    `bayes_optimal` has the formulas (Fearnhead and Liu, 2007; Adams and MacKay, 2007). The state of
    a stream has O(n) numbers after n observations, or as many as the longest possible segment; an
    observation takes as long. `log_probs`, `log_density` and `posterior` of (..., n) take O(n^2).

    With `max_hypotheses` = m only that many starts are kept: the least probable one is pruned, the
    others are renormalised, and `pruning_bound` bounds the effect. The state is O(m), a sequence
    takes O(n m). The posterior keeps all.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> bayes = sp.ForwardPredictor(sp.LIN(), sp.Bernoulli(), max_hypotheses=3)
        >>> state, _ = bayes.extend(bayes.init(), [1, 1, 1, 0, 0, 0])
        >>> print(state.starts, np.exp(bayes.predict(state)).round(2))
        [6 4 3] [0.75 0.25]
    """

    prior: Prior
    segment: Segment
    max_hypotheses: int | None = eqx.field(static=True)

    def __init__(self, prior: Prior, segment: Segment, max_hypotheses: int | None = None) -> None:
        self.prior = prior
        self.segment = segment
        if max_hypotheses is not None:
            max_hypotheses = _checks.positive_int("max_hypotheses", max_hypotheses)
        self.max_hypotheses = max_hypotheses

    def init(self, length: int | None = None) -> ForwardState:
        if length is not None:
            self.prior.check_length(length)
        most = self._most_needed()
        # A segment may start after the last of `length` symbols: one more hypothesis.
        wanted = _INITIAL_CAPACITY if length is None else length + 1
        if self.max_hypotheses is not None and length is None:
            wanted = self.max_hypotheses
        capacity = wanted if most is None else min(wanted, most)
        statistics, offset = fresh_statistics(self.segment, capacity)
        return ForwardState(
            time=Clock.start(),
            starts=jnp.zeros(capacity, jnp.int32),
            log_weights=jnp.full(capacity, -jnp.inf).at[0].set(0),
            statistics=statistics,
            offset=offset,
            pruned_weight=jnp.zeros(()),
            grows=length is None and capacity != most,
        )

    @jax.jit
    def pruning_bound(self, state: ForwardState) -> Float[Array, ""]:
        """A bound on how far `predict(state)` is from exact, in mean total variation.

        The kept hypotheses predict exactly, given that no pruned one was true. So the total
        variation is at most the probability that one was, whose mean over data from the source is
        at most the mean of the pruned weights' sum, each as it was when it was pruned. That sum,
        or 1, is returned. It bounds the mean over sequences, not each of them.
        """
        return jnp.minimum(state.pruned_weight, 1.0)

    def pruning_bounds(self, values: Any) -> Float[Array, "*batch time"]:
        """`pruning_bound` at the prediction of x_t, for every t."""
        sequences, batch = self._values(values)
        return self._loop(sequences, "pruning_bound").reshape(*batch, -1)

    def _most_needed(self) -> int | None:
        """The largest useful number of hypotheses; None if unbounded."""
        bounds = [self.max_hypotheses, self.prior.max_length]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _reserve(self, state: ForwardState, length: int) -> ForwardState:
        capacity, most = len(state.log_weights), self._most_needed()
        grown = capacity
        while grown < length + 1 and (most is None or grown < most):
            grown = 2 * grown if most is None else min(2 * grown, most)
        if grown == capacity:
            return state
        fresh = initial_statistics(self.segment, state.offset)
        return _with_hypotheses(state, self._started(state).filled(grown, fresh))

    def _extend(self, state: ForwardState, values: Any) -> Any:
        if self.max_hypotheses is not None:
            return self._extend_by_steps(state, values)
        return self._extend_live(state, values, self._live_slots(state))

    def _live_slots(self, state: ForwardState) -> int:
        """The number of slots among which all hypotheses are: few numbers, as each is compiled."""
        capacity = len(state.log_weights)
        arrays = (state.time.low, state.log_weights)
        if any(isinstance(a, jax.core.Tracer) for a in arrays):
            return capacity
        live = _INITIAL_CAPACITY
        while live < int(state.time) + 1:
            live *= 2
        if live >= capacity or not np.isneginf(np.asarray(state.log_weights)[live:]).all():
            return capacity
        return live

    @functools.partial(jax.jit, static_argnames="live")
    def _extend_live(
        self, state: ForwardState, values: Float[Array, "time *event"], live: int
    ) -> Any:
        check_statistics(self.segment, state.statistics, len(state.log_weights))
        whole = whole_blocks(self.segment, len(values))
        parts = []
        if whole:
            state, logs = self._extend_blocks(state, values[:whole], live)
            parts.append(logs)
        if whole < len(values):
            state, logs = self._extend_by_steps(state, values[whole:])
            parts.append(logs)
        return state, jnp.concatenate(parts)

    def _extend_blocks(
        self, state: ForwardState, values: Float[Array, "time *event"], live: int
    ) -> Any:
        """`_extend` without pruning, for many observations at once."""
        times = state.time.plus(jnp.arange(len(values) + 1, dtype=jnp.int32))
        hypotheses = jax.tree.map(lambda leaf: leaf[:live], self._started(state))
        sequences = Sequences(values[None], anchor(state.offset)[None])
        after, filtered = extend_hypotheses(
            self.prior, self.segment, hypotheses, sequences, times.low
        )
        logs = filtered.log_density if filtered.probs is None else jnp.log(filtered.probs)
        # As many as there are slots; if that is too few, the stream becomes NaN.
        capacity, number = len(state.log_weights), len(after.log_weights)
        _, kept = lax.top_k(after.log_weights, min(capacity, number))
        dropped = jnp.isneginf(after.log_weights).sum() < number - capacity
        after = jax.tree.map(lambda leaf: leaf[kept], after)
        after = after._replace(log_weights=jnp.where(dropped, jnp.nan, after.log_weights))
        after = after.filled(capacity, initial_statistics(self.segment, state.offset))
        time = jax.tree.map(lambda leaf: leaf[-1], times)
        return eqx.tree_at(lambda s: s.time, _with_hypotheses(state, after), time), logs[0]

    @staticmethod
    def _started(state: ForwardState) -> Hypotheses:
        runs = state.time.since(state.starts)
        return Hypotheses(state.starts, runs, state.log_weights, state.statistics)

    def _hypotheses(self, state: ForwardState) -> tuple[Float[Array, " hypotheses"], Statistics]:
        return state.log_weights, state.statistics

    def _observe(
        self, state: ForwardState, x: Float[Array, "*event"]
    ) -> tuple[ForwardState, Float[Array, ""]]:
        logs, statistics = absorb_each(self.segment, state.statistics, x)
        joint = state.log_weights + logs
        evidence = jax.nn.logsumexp(joint)
        seen = joint - evidence
        time = state.time.next()
        runs = time.since(state.starts)
        stays = seen + self.prior.log_survival_after(state.starts, runs)
        hazards = self.prior.hazard_after(state.starts, runs)
        starts_now = safe_log(jnp.sum(jnp.exp(seen) * hazards))
        fresh = initial_statistics(self.segment, state.offset)
        lightest = remembered(jnp.argmin(stays))
        enters = remembered(starts_now > stays[lightest])
        dropped = jnp.exp(jnp.minimum(starts_now, stays[lightest]))
        if self.max_hypotheses is None:
            # Nothing may be dropped: inside `jit`, a stream beyond its capacity becomes NaN.
            dropped = jnp.where(dropped > 0, jnp.nan, 0.0)

        def put(array: Array, value: Array) -> Array:
            return jnp.where(enters, array.at[lightest].set(value), array)

        after = ForwardState(
            time=time,
            starts=put(state.starts, time.low),
            log_weights=put(stays, starts_now) - jnp.log1p(-dropped),
            statistics=jax.tree.map(put, statistics, fresh),
            offset=state.offset,
            pruned_weight=state.pruned_weight + dropped,
            grows=state.grows,
        )
        return after, evidence

    @jax.jit
    def _log_probs(self, sequences: Sequences) -> Float[Array, "flat time alphabet"]:
        if self.max_hypotheses is not None:
            return super()._log_probs(sequences)
        return jnp.log(filter_batch(self.prior, self.segment, sequences, with_probs=True).probs)

    @jax.jit
    def _log_density(self, sequences: Sequences) -> Float[Array, "flat time"]:
        if self.max_hypotheses is not None:
            return super()._log_density(sequences)
        return filter_batch(self.prior, self.segment, sequences).log_density

    _posterior = start_posterior


def _with_hypotheses(state: ForwardState, hypotheses: Hypotheses) -> ForwardState:
    return eqx.tree_at(
        lambda s: (s.starts, s.log_weights, s.statistics),
        state,
        (hypotheses.starts, hypotheses.log_weights, hypotheses.statistics),
    )
