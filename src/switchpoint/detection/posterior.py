"""The posterior over switching points, by reading a stream of the series backwards.

Let r_e(s) be the probability that a segment which ends just before e started at s, given x_<e. The
stream of the source has it after every observation, in double precision and without compiling. The
end of the series ends the last segment, so B(n) = 1, and

    B(s) = sum over e > s of B(e) r_e(s)

is the probability of a switch at s given all of x. A segment that covers a..b starts before a and
ends after b, which has probability sum over e > b of B(e) sum over s < a of r_e(s).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from switchpoint.exact import bayes_optimal
from switchpoint.segments.values import checked_values
from switchpoint.sources import Source
from switchpoint.streams.forward import FamilyHypotheses

_NUMBERS = 2**24  # probabilities of starts that are in memory at a time
_NEGLIGIBLE = 1e-18

State = dict[str, np.ndarray]


class SwitchPosterior:
    """The exact posterior over switching points of one sequence, under any source.

    O(n^2) time. Beyond 4,096 observations the probabilities of starts are not kept: the stream is
    resumed from states that were saved on the way.
    """

    log_evidence: float
    """ln p(x)."""
    switch_probability: Float[np.ndarray, " time"]
    """P(a switch at t | x)."""
    run_length_mean: Float[np.ndarray, " time"]
    """E[the number of observations of the segment of x_t up to x_t | x_<=t]."""

    def __init__(self, source: Source, values: Float[np.ndarray, "time *columns"]) -> None:
        checked_values(source.segment, values)
        length = len(values)
        source.prior.check_length(length)
        self._source = source
        self._values: Any = values if values.ndim > 1 else values.tolist()
        self._block = min(length, max(64, _NUMBERS // length))
        self._states: list[State] = []
        self.run_length_mean = np.zeros(length)
        engine = self._engine(None)
        for begin in range(0, length, self._block):
            self._states.append({key: each.copy() for key, each in engine.arrays().items()})
            self._held = begin, self._rows(engine, begin)
        self.log_evidence = engine.log_evidence
        self._boundary = np.zeros(length + 1)
        self._boundary[-1] = 1.0
        for end, row in self._last_starts():
            if self._boundary[end] > _NEGLIGIBLE:
                self._boundary[:end] += self._boundary[end] * row
        self.switch_probability = np.append(0.0, np.minimum(self._boundary[1:-1], 1.0))

    def no_switch_within(self, windows: Int[np.ndarray, "windows 2"]) -> Float[np.ndarray, " w"]:
        """P(no switch at begin..end, both included | x) for each window, exact where it is tiny.

        O(n (n + windows)) time; windows begin after the position 0.
        """
        order = np.argsort(windows[:, 1])
        begins, ends = windows[order].T
        without = np.zeros(len(windows))
        for end, row in self._last_starts():
            count = np.searchsorted(ends, end)
            if count and self._boundary[end] > _NEGLIGIBLE:
                without[:count] += self._boundary[end] * np.cumsum(row)[begins[:count] - 1]
        return without[np.argsort(order)]

    def _last_starts(self) -> Iterator[tuple[int, Float[np.ndarray, " end"]]]:
        """Every end e from the last, and r_e(s) for each s < e."""
        for begin in reversed(range(0, len(self._values), self._block)):
            if begin != self._held[0]:
                self._held = begin, self._rows(self._engine(begin), begin)
            for offset, row in reversed([*enumerate(self._held[1])]):
                yield begin + offset + 1, row

    def _engine(self, begin: int | None) -> FamilyHypotheses:
        """The stream before the observation `begin`, which is the first of a block."""
        engine = FamilyHypotheses(bayes_optimal(self._source), None)
        if begin is not None:
            engine.restore(self._states[begin // self._block])
            engine.position = begin
        return engine

    def _rows(self, engine: FamilyHypotheses, begin: int) -> list[Float[np.ndarray, " end"]]:
        """r_e for each end in a block, after which the stream is."""
        rows = []
        for x in self._values[begin : begin + self._block]:
            engine.log_evidence += engine.step(x)
            lengths, probs, _ = engine.runs()
            self.run_length_mean[engine.position - 1] = lengths @ probs
            starts = (engine.position - lengths).astype(int)
            if not engine.memoryless and engine.position < len(self._values):
                probs = probs * engine.law(starts.astype(float), lengths)[0]
                probs = probs / probs.sum()
            rows.append(np.bincount(starts, probs, engine.position))
        return rows
