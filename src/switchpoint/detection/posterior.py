"""The posterior over switching points, by reading the forward recursion backwards.

Let r_e(s) be the probability that a segment which ends just before e started at s, given x_<e. The
end of the series ends the last segment, so B(n) = 1, and

    B(s) = sum over e > s of B(e) r_e(s)

is the probability of a switch at s given all of x. For the ends in a block of observations these
are triangular equations. The segment of x_t started at s with probability

    g_t(s) = sum over e > t of B(e) r_e(s),

and there is no switch at a..b if the segment of x_b started before a: sum over s < a of g_b(s).
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from switchpoint._progress import Part, Progress
from switchpoint.detection.forward import LONGEST_EXACT, ExactForward, MergingForward
from switchpoint.segments.values import checked_values
from switchpoint.sources import Source


class SwitchPosterior:
    """The posterior over switching points of one sequence, under any source.

    Exact in O(n^2) time up to `longest_exact` observations. A longer series takes O(n) time:
    neighbouring starts of segments are merged once they hardly differ
    (`switchpoint.detection.forward`).
    """

    log_evidence: float
    """ln p(x)."""
    switch_probability: Float[np.ndarray, " time"]
    """P(a switch at t | x)."""
    run_length_mean: Float[np.ndarray, " time"]
    """E[the number of observations of the segment of x_t up to x_t | x_<=t]."""

    def __init__(
        self,
        source: Source,
        values: Float[np.ndarray, "time *columns"],
        progress: Progress | None = None,
        longest_exact: int = LONGEST_EXACT,
    ) -> None:
        checked_values(source.segment, values)
        length = len(values)
        source.prior.check_length(length)
        progress = progress or Progress()
        self._forward = (
            ExactForward(source, values)
            if length <= longest_exact
            else MergingForward(source, values, Part(progress, 0.0, 0.5))
        )
        self.log_evidence = self._forward.log_evidence
        self.run_length_mean = self._forward.run_length_mean
        block, kept = self._forward.block, self._forward.kept
        self._boundary = np.zeros(length + 1)
        self._boundary[-1] = 1.0
        count = -(-length // block)
        self._received = np.zeros((count, kept + block))
        """By block and slot, sum of B(e) r_e over the ends e after the block."""
        for number, rows in self._forward.rows(range(count)):
            begin, end = number * block, min((number + 1) * block, length)
            own, rows = slice(kept, kept + end - begin), rows[: end - begin]
            received = self._received[number]
            known = received[own] + self._boundary[end] * rows[-1, own]
            equations = np.eye(end - begin)
            equations[:, 1:] -= rows[:-1, own].T
            solution = solve_triangular(
                equations, known, unit_diagonal=True, overwrite_b=True, check_finite=False
            )
            self._boundary[begin:end] = solution
            if number:
                total = received[:kept] + self._boundary[begin + 1 : end + 1] @ rows[:, :kept]
                self._received[number - 1] = self._forward.divide(number - 1, total)
            progress.update("smoothing", 1 - 0.5 * number / count)
        self.switch_probability = np.append(0.0, np.minimum(self._boundary[1:-1], 1.0))

    def no_switch_within(self, windows: Int[np.ndarray, "windows 2"]) -> Float[np.ndarray, " w"]:
        """P(no switch at begin..end, both included | x) for each window, exact where it is tiny.

        Windows begin after the position 0. Blocks in which some end are filtered again.
        """
        block, kept = self._forward.block, self._forward.kept
        first, last = windows.T // block
        without, active = np.zeros(len(windows)), np.zeros(0, int)
        received = np.zeros((0, kept + block))
        ending = {number: np.flatnonzero(last == number) for number in np.unique(last).tolist()}
        rows_by_block = self._forward.rows(ending)
        for number in reversed(range(len(self._received))):
            if len(active):
                received = self._forward.divide(number, received[:, :kept])
            if number in ending:
                _, rows = next(rows_by_block)
                begin = number * block
                boundary = self._boundary[begin + 1 : begin + 1 + block]
                shares = boundary[:, None] * rows[: len(boundary)]
                lasts = windows[ending[number], 1] - begin
                since = (lasts[:, None] <= np.arange(len(shares))).astype(float)
                active = np.append(active, ending[number])
                received = np.append(received, since @ shares + self._received[number], axis=0)
            done = first[active] == number
            if done.any():
                before = kept + windows[active[done], 0] - number * block
                earlier = np.arange(kept + block) < before[:, None]
                without[active[done]] = (received[done] * earlier).sum(1)
                active, received = active[~done], received[~done]
        return without
