"""Predictors of stationary segments: KT, and KT that knows the switching points."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from switchpoint import _checks
from switchpoint._labels import keeps_labels
from switchpoint._prefix_sums import sum_before
from switchpoint.exact.counting import count_symbol, halved
from switchpoint.predictor import Predictor, check_state
from switchpoint.segments import Bernoulli, Dirichlet, Segment
from switchpoint.segments.dirichlet import as_dirichlet


class KTState(eqx.Module):
    """The counts of the current segment."""

    counts: Int[Array, " alphabet"]


class KT(Predictor[KTState]):
    """The Krichevsky-Trofimov (1981) estimator: the Bayes optimum for a single segment.

    With n_k the number of x_0..x_(t-1) that are k, and a_k the pseudo-counts of the segment,

        P(x_t = k | x_<t) = (n_k + a_k) / (t + sum_j a_j).

    The default `Bernoulli()` has a_0 = a_1 = 1/2, as in their paper: the code length of n bits then
    exceeds that of the best fixed probability by at most (log2 n) / 2 + 1 bits.

    `log_probs` of symbols (..., n) is (..., n, alphabet) and takes O(n alphabet) time. The state of
    a stream is the counts n_k; a symbol takes O(alphabet) time.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> print(np.exp(sp.KT().log_probs([1, 1, 0])).round(3))
        [[0.5   0.5  ]
         [0.25  0.75 ]
         [0.167 0.833]]
    """

    segment: Dirichlet = eqx.field(default=Bernoulli(), converter=as_dirichlet)

    @property
    def alphabet(self) -> int:
        return self.segment.alphabet

    def init(self, length: int | None = None) -> KTState:
        del length  # the state has a fixed size
        return KTState(jnp.zeros(self.alphabet, jnp.int32))

    @jax.jit
    def predict(self, state: KTState) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t)."""
        check_state("counts", state.counts.shape, (self.alphabet,))
        return jnp.log(self.segment.probs(state.counts))

    def update(self, state: KTState, symbol: Any) -> KTState:
        return self._update(state, _checks.symbol(symbol, self.alphabet))

    @keeps_labels("log_density")
    def extend(self, state: KTState, values: Any) -> tuple[KTState, Float[Array, "time alphabet"]]:
        return self._extend(state, _checks.chunk(values, self.alphabet))

    @keeps_labels("log_probs")
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        symbols = _checks.symbols(symbols, self.alphabet)
        return _since_start(self.segment, symbols, jnp.zeros_like(symbols))

    @jax.jit
    def _extend(
        self, state: KTState, symbols: Int[Array, " time"]
    ) -> tuple[KTState, Float[Array, "time alphabet"]]:
        check_state("counts", state.counts.shape, (self.alphabet,))
        hot = jax.nn.one_hot(symbols, self.alphabet, dtype=jnp.int32)
        after = halved(state.counts, jnp.cumsum(hot, axis=0))
        before = jnp.concatenate([state.counts[None], after[:-1]])
        return KTState(after[-1]), jnp.log(self.segment.probs(before))

    @jax.jit
    def _update(self, state: KTState, symbol: Int[ArrayLike, ""]) -> KTState:
        check_state("counts", state.counts.shape, (self.alphabet,))
        return KTState(count_symbol(state.counts, symbol))


class KTOracleState(eqx.Module):
    """The counts of the current segment, and the time, which decides when it ends."""

    time: Int[Array, ""]
    counts: Int[Array, " alphabet"]


class KTOracle(Predictor[KTOracleState]):
    """KT that restarts at the true switching points: no predictor does better.

    `switches` is True where a new segment starts, as in `Draw.switches`: one row shared by all
    sequences, or one row per sequence of the batch. Streaming needs a single row.
    """

    switches: Bool[Array, "*batch time"]
    segment: Dirichlet

    def __init__(self, switches: Any, segment: Segment | None = None) -> None:
        self.switches = jnp.asarray(switches, bool)
        self.segment = Bernoulli() if segment is None else as_dirichlet(segment)

    @property
    def alphabet(self) -> int:
        return self.segment.alphabet

    def init(self, length: int | None = None) -> KTOracleState:
        del length
        if self.switches.ndim != 1:
            raise ValueError(
                f"switches must be one row to predict one symbol at a time, "
                f"got shape {self.switches.shape}"
            )
        return KTOracleState(jnp.zeros((), jnp.int32), jnp.zeros(self.alphabet, jnp.int32))

    @jax.jit
    def predict(self, state: KTOracleState) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t, the switching points up to t)."""
        return jnp.log(self.segment.probs(self._counts(state)))

    def update(self, state: KTOracleState, symbol: Any) -> KTOracleState:
        symbol = _checks.symbol(symbol, self.alphabet)
        if not isinstance(state.time, jax.core.Tracer):
            self._check_covered(int(state.time))
        return self._update(state, symbol)

    def _check_covered(self, time: int) -> None:
        if time >= len(self.switches):
            raise ValueError(
                f"switches must cover the sequence, got {len(self.switches)} of them "
                f"for symbol {time}"
            )

    @keeps_labels("log_density")
    def extend(
        self, state: KTOracleState, values: Any
    ) -> tuple[KTOracleState, Float[Array, "time alphabet"]]:
        symbols = _checks.chunk(values, self.alphabet)
        if not isinstance(state.time, jax.core.Tracer):
            self._check_covered(int(state.time) + len(symbols) - 1)
        return super().extend(state, symbols)

    @keeps_labels("log_probs")
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        symbols = _checks.symbols(symbols, self.alphabet)
        if self.switches.shape not in (symbols.shape, symbols.shape[-1:]):
            raise ValueError(
                f"switches must have the shape of the symbols {symbols.shape}, "
                f"got {self.switches.shape}"
            )
        times = jnp.arange(symbols.shape[-1], dtype=jnp.int32)
        starts = jax.lax.cummax(jnp.where(self.switches, times, 0), axis=self.switches.ndim - 1)
        return _since_start(self.segment, symbols, jnp.broadcast_to(starts, symbols.shape))

    @jax.jit
    def _update(self, state: KTOracleState, symbol: Int[ArrayLike, ""]) -> KTOracleState:
        return KTOracleState(state.time + 1, count_symbol(self._counts(state), symbol))

    def _counts(self, state: KTOracleState) -> Int[Array, " alphabet"]:
        check_state("counts", state.counts.shape, (self.alphabet,))
        return jnp.where(self.switches[state.time], 0, state.counts)


@jax.jit
def _since_start(
    segment: Dirichlet, symbols: Int[Array, "*batch time"], starts: Int[Array, "*batch time"]
) -> Float[Array, "*batch time alphabet"]:
    """Predictions from the symbols since the start of each segment."""
    hot = jnp.moveaxis(jax.nn.one_hot(symbols, segment.alphabet), -1, 0)
    before = sum_before(hot)
    counts = before - jnp.take_along_axis(before, starts[None], axis=-1)
    return jnp.log(segment.probs(jnp.moveaxis(counts, 0, -1)))
