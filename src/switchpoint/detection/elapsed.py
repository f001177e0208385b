"""Time between observations: the model of a series with irregular times.

Switches come with a constant rate in time: none between two observations that are a time d apart
with probability (1 - h)^d, for a hazard h per unit of time, which is the median step. The families
count the same time: the line or the season of a segment depends on the time since its first
observation.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from switchpoint._namespace import Numbers, log_sigmoid, namespace
from switchpoint._parameters import Parameter
from switchpoint.priors import Prior
from switchpoint.priors.base import Positions
from switchpoint.sources import Source


class ElapsedGeometric(Prior):
    """A geometric law of time.

    The hazard at t is 1 - (1 - h)^d, where d is the time from the observation t - 1 to t.

    - `hazard_log_odds`: those of h, as of `Geometric`;
    - `steps`: the times from each observation to the next.
    """

    hazard_log_odds: Parameter
    steps: Float[np.ndarray, " steps"] | Float[Array, " steps"]

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        return -namespace(start, run).expm1(self.log_survival_after(start, run))

    def survival_after(self, start: Positions, run: Positions) -> Numbers:
        return namespace(start, run).exp(self.log_survival_after(start, run))

    def log_survival_after(self, start: Positions, run: Positions) -> Numbers:
        xp = namespace(start, run)
        before = xp.asarray(xp.minimum(start + run - 1, len(self.steps) - 1), int)
        return xp.asarray(self.steps)[before] * log_sigmoid(-self.hazard_log_odds)


def in_elapsed_time(source: Source, steps: Float[np.ndarray, " steps"]) -> Source:
    """A source with geometric lengths, in time rather than in observations."""
    prior: Any = source.prior
    # Programs are compiled for a number of steps: longer series share them.
    padded = np.pad(steps, (0, 2 ** len(steps).bit_length() - len(steps)), constant_values=1.0)
    return Source(ElapsedGeometric(prior.hazard_log_odds, padded), source.segment)


def steps_between(source: Source) -> Any:
    """The times from each observation to the next, where a source is in elapsed time, or None."""
    return source.prior.steps if isinstance(source.prior, ElapsedGeometric) else None


def make_clock(
    length: int, steps: Float[np.ndarray, " steps"] | None
) -> Float[np.ndarray, " length"]:
    """The times of the observations from 0, or their positions."""
    return np.arange(length, dtype=float) if steps is None else np.append(0.0, np.cumsum(steps))
