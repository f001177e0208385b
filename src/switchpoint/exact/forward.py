"""The exact predictor of any source: the forward recursion over the current segment's start."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from switchpoint import _checks
from switchpoint._batching import flat_batch, in_chunks
from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.clock import Clock, count_symbol
from switchpoint.exact.posterior import Posterior
from switchpoint.exact.recursion import forward
from switchpoint.exact.start_posterior import start_posterior
from switchpoint.predictor import check_capacity, check_state
from switchpoint.priors import Prior
from switchpoint.segments import Segment

_FIRST_CAPACITY = 64


class Pruned(eqx.Module):
    """The hypotheses that were given up, taken together as one.

    It is updated like any other and takes no part in predictions. Its weight falls when the data
    refute it, and when its segment is likely to have ended.
    """

    weight: Float[Array, ""]
    """An estimate of P(the current segment started at a pruned start | x_<t)."""
    run: Float[Array, ""]
    """Symbols since their starts, in the mean."""
    counts: Float[Array, " alphabet"]
    """How often each symbol occurred since their starts, in the mean."""


class ForwardState(eqx.Module):
    """The hypotheses about where the current segment started."""

    time: Clock
    """How many symbols were seen."""

    starts: Int[Array, " hypotheses"]
    """Where the current segment started, by each hypothesis (the last 31 bits)."""

    weights: Float[Array, " hypotheses"]
    """P(the current segment started there | x_<t); they sum to 1. Free places have 0."""

    counts: Int[Array, "hypotheses alphabet"]
    """How often each symbol occurred since that start."""

    pruned: Pruned

    grows: bool = eqx.field(static=True)
    """Whether a longer stream needs more places than there are."""


class ForwardPredictor(ExactPredictor[ForwardState]):
    """The Bayes optimum of a source with any prior: O(n) state, O(n) work per symbol.

    With `max_hypotheses` only that many starts are kept: the lightest goes when there is one
    too many, the others are renormalised, and `pruning_error` estimates what that costs. The
    posterior keeps all of them.
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
        # After `length` symbols a new segment may start: one more hypothesis.
        wanted = _FIRST_CAPACITY if length is None else length + 1
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
        return jnp.log(probs / probs.sum())  # a sum of many weights is 1 but for rounding

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

        It compares the prediction with one that the pruned hypotheses still take part in, as far
        as their mean counts tell; on average it is right within a factor of about two. 0 means
        that nothing was pruned. `state.pruned.weight` is a more cautious figure: what the error
        would be if the pruned hypotheses predicted something else altogether.
        """
        without = self.segment.predictive(state.pruned.counts)
        gap = jnp.abs(jnp.exp(self.predict(state)) - without).sum()
        return 0.5 * state.pruned.weight * gap

    def pruning_errors(self, symbols: Any) -> Float[Array, "*batch time"]:
        """What `pruning_error` says when x_t is predicted, for every t."""
        return self._kept(self._checked(symbols))[1]

    def _most_needed(self) -> int | None:
        """The most hypotheses there are ever places for; None where that has no bound."""
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
            (
                jnp.pad(state.starts, (0, more)),
                jnp.pad(state.weights, (0, more)),
                jnp.pad(state.counts, ((0, more), (0, 0))),
            ),
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
            # Nothing may be dropped: a stream beyond its capacity, inside `jit`, is no number.
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
        """The pruned hypotheses after a symbol that the kept ones gave this probability."""
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
        """The pruned hypotheses with one more, which had this share of the weight of the kept."""
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
            return self._kept(symbols)[0]
        rows, batch = flat_batch(symbols)
        probs = in_chunks(
            lambda rows: forward(self.prior, self.segment, rows).probs, rows, self.alphabet // 2
        )
        return jnp.log(probs).reshape(*batch, *probs.shape[1:])

    def _posterior(self, symbols: Int[Array, "*batch time"]) -> Posterior:
        return start_posterior(self.prior, self.segment, symbols)

    @jax.jit
    def _kept(
        self, symbols: Int[Array, "*batch time"]
    ) -> tuple[Float[Array, "*batch time k"], Float[Array, "*batch time"]]:
        """The predictions with the kept hypotheses only, and the error estimated for them."""
        rows, batch = flat_batch(symbols)

        def step(
            state: ForwardState, symbol: Int[Array, ""]
        ) -> tuple[ForwardState, tuple[Float[Array, " k"], Float[Array, ""]]]:
            return self._update(state, symbol), (
                self.predict(state),
                self.pruning_error(state),
            )

        def one(row: Int[Array, " time"]) -> tuple[Float[Array, "time k"], Float[Array, " time"]]:
            return lax.scan(step, self.init(length=len(row)), row)[1]

        log_probs, error = in_chunks(jax.vmap(one), rows)
        return log_probs.reshape(*batch, *log_probs.shape[1:]), error.reshape(symbols.shape)
