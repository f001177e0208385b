"""Predictors of segments whose starts are known: KT has one segment, its oracle the true ones."""

import functools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from switchpoint._batching import in_chunks
from switchpoint.exact.base import SegmentPredictor
from switchpoint.exact.counting import Clock
from switchpoint.exact.hypotheses import Sequences
from switchpoint.exact.streams import (
    absorb_each,
    check_statistics,
    fresh_statistics,
    initial_statistics,
)
from switchpoint.segments import Bernoulli, Segment
from switchpoint.segments.base import Statistics


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
    def _starts(self, time: Clock) -> Bool[Array, ""]:
        """Whether a segment starts with the next observation."""

    def _hypotheses(self, state: KTState) -> tuple[Float[Array, " 1"], Statistics]:
        check_statistics(self.segment, state.statistics, 1)
        fresh = initial_statistics(self.segment, state.offset)
        starts = self._starts(state.time)
        return jnp.zeros(1), jax.tree.map(
            lambda new, old: jnp.where(starts, new, old), fresh, state.statistics
        )

    def _observe(
        self, state: KTState, x: Float[Array, "*event"]
    ) -> tuple[KTState, Float[Array, ""]]:
        _, before = self._hypotheses(state)
        logs, after = absorb_each(self.segment, before, x)
        return KTState(state.time.next(), after, state.offset), logs[0]


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

    def _starts(self, time: Clock) -> Bool[Array, ""]:
        del time
        return jnp.zeros((), bool)


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

    def _starts(self, time: Clock) -> Bool[Array, ""]:
        return jnp.take(self.switches, time.low, mode="fill", fill_value=False)

    @functools.partial(jax.jit, static_argnames="result")
    def _loop(self, sequences: Sequences, result: str | None = None) -> Array:
        flat, time = sequences.values.shape[:2]
        switches = self.switches[..., :time].reshape(-1, time)

        def one(row: tuple[Array, Sequences]) -> Array:
            oracle = eqx.tree_at(lambda each: each.switches, self, row[0])
            return oracle._loop_over_one(result, row[1])

        return in_chunks(jax.vmap(one), (jnp.broadcast_to(switches, (flat, time)), sequences))
