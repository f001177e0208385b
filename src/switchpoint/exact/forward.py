"""The exact predictor of any source: the forward recursion over the current segment's start."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from switchpoint import _checks
from switchpoint._batching import flat_batch, in_chunks
from switchpoint.exact.base import ExactPredictor, Posterior
from switchpoint.exact.changepoint_posterior import changepoint_posterior
from switchpoint.exact.counting import Clock, count_symbol
from switchpoint.exact.ptw import PTWPredictor
from switchpoint.exact.recursion import forward
from switchpoint.predictor import check_capacity, check_state
from switchpoint.priors import PTW, Prior
from switchpoint.segments import Segment
from switchpoint.sources import Source

_INITIAL_CAPACITY = 64


def bayes_optimal(source: Source, max_hypotheses: int | None = None) -> ExactPredictor[Any]:
    """The exact Bayes optimum for data from `source`: no predictor has lower expected regret.

    It may be run on data from any other source too. For PTW it needs O(depth) state and work per
    symbol, so a large depth serves streams of unknown length. For every other prior it needs O(n);
    `max_hypotheses` bounds that, at the cost of an error that `pruning_error` estimates.
    """
    if not isinstance(source, Source):
        raise ValueError(
            "source must be a Source, such as switchpoint.Source(switchpoint.PTW(8)), "
            f"got {source!r}"
        )
    if isinstance(source.prior, PTW) and max_hypotheses is None:
        return PTWPredictor(source.prior, source.segment)
    return ForwardPredictor(source.prior, source.segment, max_hypotheses)


class Pruned(eqx.Module):
    """The pruned hypotheses, merged into one.

    It is updated like any other but does not contribute to predictions. Its weight falls when the
    data contradict it, and when its segment has probably ended.
    """

    weight: Float[Array, ""]
    """An estimate of P(the current segment started at a pruned start | x_<t)."""
    run: Float[Array, ""]
    """The mean number of symbols since their starts."""
    counts: Float[Array, " alphabet"]
    """The mean count of each symbol since their starts."""


class ForwardState(eqx.Module):
    """The hypotheses about where the current segment started."""

    time: Clock
    """The number of symbols seen."""

    starts: Int[Array, " hypotheses"]
    """The hypothesised starts of the current segment (their last 31 bits)."""

    weights: Float[Array, " hypotheses"]
    """P(the current segment started there | x_<t); they sum to 1. Unused slots have 0."""

    counts: Int[Array, "hypotheses alphabet"]
    """The count of each symbol since that start."""

    pruned: Pruned

    grows: bool = eqx.field(static=True)
    """Whether a longer stream needs more slots."""


class ForwardPredictor(ExactPredictor[ForwardState]):
    """The Bayes optimum of a source with any prior: O(n) state, O(n) work per symbol.

    With `max_hypotheses` only that many starts are kept: the least probable one is pruned, the
    others are renormalised, and `pruning_error` estimates the effect. The posterior keeps all.
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
        return ForwardState(
            time=Clock.start(),
            starts=jnp.zeros(capacity, jnp.int32),
            weights=jnp.zeros(capacity).at[0].set(1),
            counts=jnp.zeros((capacity, self.alphabet), jnp.int32),
            pruned=Pruned(jnp.zeros(()), jnp.zeros(()), jnp.zeros(self.alphabet)),
            grows=length is None and capacity != most,
        )

    @jax.jit
    def predict(self, state: ForwardState) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t)."""
        check_state("counts", state.counts.shape[-1:], (self.alphabet,))
        probs = state.weights @ self.segment.predictive(state.counts)
        return jnp.log(probs / probs.sum())  # the weights sum to 1 but for rounding

    def update(self, state: ForwardState, symbol: Any) -> ForwardState:
        symbol = _checks.symbol(symbol, self.alphabet)
        if isinstance(state.time.low, jax.core.Tracer):
            check_capacity(state.grows)
        else:
            time = int(state.time)
            self.prior.check_length(time + 1)
            state = self._with_capacity(state, time + 2)
        return self._update(state, symbol)

    @jax.jit
    def pruning_error(self, state: ForwardState) -> Float[Array, ""]:
        """An estimate of how far `predict(state)` is from exact, in total variation.

        It compares the prediction with one that includes the pruned hypotheses, represented by
        their mean counts; on average it is right within a factor of about two. It is 0 if nothing
        was pruned. `state.pruned.weight` is more conservative: the error if the pruned hypotheses
        predicted something else entirely.
        """
        without = self.segment.predictive(state.pruned.counts)
        gap = jnp.abs(jnp.exp(self.predict(state)) - without).sum()
        return 0.5 * state.pruned.weight * gap

    def pruning_errors(self, symbols: Any) -> Float[Array, "*batch time"]:
        """`pruning_error` at the prediction of x_t, for every t."""
        return self._predict_pruned(self._checked(symbols))[1]

    def _most_needed(self) -> int | None:
        """The largest useful number of hypotheses; None if unbounded."""
        bounds = [self.max_hypotheses, self.prior.max_length]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _with_capacity(self, state: ForwardState, needed: int) -> ForwardState:
        capacity, most = len(state.weights), self._most_needed()
        if capacity >= needed or (most is not None and capacity >= most):
            return state
        more = capacity if most is None else min(capacity, most - capacity)
        return eqx.tree_at(
            lambda s: (s.starts, s.weights, s.counts),
            state,
            replace_fn=lambda x: jnp.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1))),
        )

    @jax.jit
    def _update(self, state: ForwardState, symbol: Int[ArrayLike, ""]) -> ForwardState:
        check_state("counts", state.counts.shape[-1:], (self.alphabet,))
        joint = state.weights * self.segment.predictive(state.counts)[:, symbol]
        evidence = joint.sum()
        seen = joint / evidence
        time = state.time.next()
        runs = time.since(state.starts)
        stays = seen * self.prior.survival_after(state.starts, runs)
        starts_now = jnp.sum(seen * self.prior.hazard_after(state.starts, runs))
        counts = count_symbol(state.counts, symbol)
        lightest = jnp.argmin(stays)
        enters = starts_now > stays[lightest]
        dropped = jnp.minimum(starts_now, stays[lightest])
        pruned = state.pruned
        if self.max_hypotheses is not None:
            pruned = self._with_pruned(
                self._pruned_after(pruned, evidence, symbol, time),
                dropped,
                jnp.where(enters, runs[lightest], 0),
                jnp.where(enters, counts[lightest], 0),
            )
        else:
            # Nothing may be dropped: inside `jit`, a stream beyond its capacity becomes NaN.
            dropped = jnp.where(dropped > 0, jnp.nan, 0.0)

        def put(array: Array, value: Array | int) -> Array:
            return jnp.where(enters, array.at[lightest].set(value), array)

        return ForwardState(
            time=time,
            starts=put(state.starts, time.low),
            weights=put(stays, starts_now) / (1 - dropped),
            counts=put(counts, 0),
            pruned=pruned,
            grows=state.grows,
        )

    def _pruned_after(
        self, pruned: Pruned, evidence: Float[Array, ""], symbol: Int[ArrayLike, ""], time: Clock
    ) -> Pruned:
        """The pruned hypotheses after a symbol, to which the kept ones gave this probability."""
        own = self.segment.predictive(pruned.counts)[symbol]
        joint = pruned.weight * own
        seen = joint / (joint + (1 - pruned.weight) * evidence)
        run = pruned.run + 1
        whole = jnp.maximum(jnp.round(run).astype(jnp.int32), 1)
        survival = self.prior.survival_after(time.low - whole, whole)
        return Pruned(seen * survival, run, pruned.counts.at[symbol].add(1))

    @staticmethod
    def _with_pruned(
        pruned: Pruned,
        dropped: Float[Array, ""],
        run: Int[Array, ""],
        counts: Int[Array, " alphabet"],
    ) -> Pruned:
        """The pruned hypotheses with one more, of this weight relative to the kept ones."""
        added = dropped * (1 - pruned.weight)
        weight = pruned.weight + added
        share = jnp.where(added > 0, added / weight, 0.0)
        return Pruned(
            weight,
            pruned.run + share * (run - pruned.run),
            pruned.counts + share * (counts - pruned.counts),
        )

    @jax.jit
    def _log_probs(self, symbols: Int[Array, "*batch time"]) -> Float[Array, "*batch time k"]:
        if self.max_hypotheses is not None:
            return self._predict_pruned(symbols)[0]
        rows, batch = flat_batch(symbols)
        probs = in_chunks(
            lambda rows: forward(self.prior, self.segment, rows).probs, rows, self.alphabet // 2
        )
        return jnp.log(probs).reshape(*batch, *probs.shape[1:])

    def _posterior(self, symbols: Int[Array, "*batch time"]) -> Posterior:
        return changepoint_posterior(self.prior, self.segment, symbols)

    @jax.jit
    def _predict_pruned(
        self, symbols: Int[Array, "*batch time"]
    ) -> tuple[Float[Array, "*batch time k"], Float[Array, "*batch time"]]:
        """The predictions of the kept hypotheses, and the estimated pruning error."""
        rows, batch = flat_batch(symbols)

        def step(state: ForwardState, symbol: Int[Array, ""]) -> tuple[ForwardState, Any]:
            return self._update(state, symbol), (self.predict(state), self.pruning_error(state))

        def one(row: Int[Array, " time"]) -> Any:
            return lax.scan(step, self.init(length=len(row)), row)[1]

        log_probs, error = in_chunks(jax.vmap(one), rows)
        return log_probs.reshape(*batch, *log_probs.shape[1:]), error.reshape(symbols.shape)
