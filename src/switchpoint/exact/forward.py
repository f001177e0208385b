"""The exact predictor of any source: the forward recursion over the current segment's start."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from switchpoint import _checks
from switchpoint._batching import flat_batch, in_chunks
from switchpoint.exact.posterior import Posterior
from switchpoint.exact.recursion import forward
from switchpoint.exact.start_posterior import start_posterior
from switchpoint.predictor import Predictor
from switchpoint.priors import Prior
from switchpoint.segments import Segment

_FIRST_ROOM = 64


class ForwardState(eqx.Module):
    """The hypotheses about where the current segment started."""

    time: Int[Array, ""]
    """How many symbols were seen."""

    starts: Int[Array, " hypotheses"]
    """Where the current segment started, by each hypothesis."""

    weights: Float[Array, " hypotheses"]
    """P(the current segment started there | x_<t); they sum to 1. Free places have 0."""

    counts: Int[Array, "hypotheses alphabet"]
    """How often each symbol occurred since that start."""

    discarded: Float[Array, ""]
    """The share of probability given up so far because there were too many hypotheses.

    0 means that the prediction is exact."""


class ForwardPredictor(Predictor[ForwardState]):
    """The Bayes optimum of a source with any prior: O(n) state, O(n) work per symbol.

    With `max_hypotheses` only that many starts are kept: the lightest goes when there is one
    too many, the others are renormalised, and `discarded` says how much was lost.
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

    @property
    def alphabet(self) -> int:
        return self.segment.alphabet

    def init(self, length: int | None = None) -> ForwardState:
        """The state before the first symbol, with room for a sequence of `length`.

        Without a length the state grows when it must, outside `jit`. Inside `jit` arrays
        cannot grow: give the length, or see `discarded`.
        """
        if length is not None:
            self.prior.check_length(length)
        # After `length` symbols a new segment may start: one more hypothesis.
        room = self.max_hypotheses or (length + 1 if length else _FIRST_ROOM)
        room = min(room, self.prior.max_length or room)
        return ForwardState(
            time=jnp.zeros((), jnp.int32),
            starts=jnp.zeros(room, jnp.int32),
            weights=jnp.zeros(room).at[0].set(1),
            counts=jnp.zeros((room, self.alphabet), jnp.int32),
            discarded=jnp.zeros(()),
        )

    @jax.jit
    def predict(self, state: ForwardState) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t)."""
        probs = state.weights @ self.segment.predictive(state.counts)
        return jnp.log(probs / probs.sum())  # a sum of many weights is 1 but for rounding

    def update(self, state: ForwardState, symbol: Any) -> ForwardState:
        symbol = _checks.symbol(symbol, self.alphabet)
        if not isinstance(state.time, jax.core.Tracer):
            time = int(state.time)
            self.prior.check_length(time + 1)
            state = self._with_room(state, time + 2)
        return self._update(state, symbol)

    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        symbols = _checks.symbols(symbols, self.alphabet)
        self.prior.check_length(symbols.shape[-1])
        return self._log_probs(symbols)

    def discarded_mass(self, symbols: Any) -> Float[Array, "*batch time"]:
        """The share of probability given up before x_t was predicted; 0 where it is exact."""
        symbols = _checks.symbols(symbols, self.alphabet)
        self.prior.check_length(symbols.shape[-1])
        return self._kept(symbols)[1]

    def posterior(self, symbols: Any) -> Posterior:
        """The exact posterior over switching points of a sequence, or of a batch of them.

        It keeps all hypotheses, whatever `max_hypotheses` says of prediction.
        """
        symbols = _checks.symbols(symbols, self.alphabet)
        self.prior.check_length(symbols.shape[-1])
        return start_posterior(self.prior, self.segment, symbols)

    def _with_room(self, state: ForwardState, needed: int) -> ForwardState:
        room = len(state.weights)
        most = self.max_hypotheses or self.prior.max_length
        if room >= needed or (most is not None and room >= most):
            return state
        more = room if most is None else min(room, most - room)
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
        joint = state.weights * self.segment.predictive(state.counts)[:, symbol]
        seen = joint / joint.sum()
        time = state.time + 1
        hazard = self.prior.hazard_after(state.starts, time - state.starts)
        stays = seen * (1 - hazard)
        starts_now = jnp.sum(seen * hazard)
        lightest = jnp.argmin(stays)
        enters = starts_now > stays[lightest]
        dropped = jnp.minimum(starts_now, stays[lightest])

        def put(array: Array, value: Array | int) -> Array:
            return jnp.where(enters, array.at[lightest].set(value), array)

        return ForwardState(
            time=time,
            starts=put(state.starts, time),
            weights=put(stays, starts_now) / (1 - dropped),
            counts=put(state.counts.at[:, symbol].add(1), 0),
            discarded=state.discarded + (1 - state.discarded) * dropped,
        )

    @jax.jit
    def _log_probs(self, symbols: Int[Array, "*batch time"]) -> Float[Array, "*batch time k"]:
        if self.max_hypotheses is not None:
            return self._kept(symbols)[0]
        rows, batch = flat_batch(symbols)
        probs = in_chunks(lambda rows: forward(self.prior, self.segment, rows).probs, rows)
        return jnp.log(probs).reshape(*batch, *probs.shape[1:])

    @jax.jit
    def _kept(
        self, symbols: Int[Array, "*batch time"]
    ) -> tuple[Float[Array, "*batch time k"], Float[Array, "*batch time"]]:
        """The predictions with the kept hypotheses only, and the share given up for them."""
        rows, batch = flat_batch(symbols)

        def step(
            state: ForwardState, symbol: Int[Array, ""]
        ) -> tuple[ForwardState, tuple[Float[Array, " k"], Float[Array, ""]]]:
            return self._update(state, symbol), (self.predict(state), state.discarded)

        def one(row: Int[Array, " time"]) -> tuple[Float[Array, "time k"], Float[Array, " time"]]:
            return lax.scan(step, self.init(length=len(row)), row)[1]

        log_probs, discarded = in_chunks(jax.vmap(one), rows)
        return log_probs.reshape(*batch, *log_probs.shape[1:]), discarded.reshape(symbols.shape)
