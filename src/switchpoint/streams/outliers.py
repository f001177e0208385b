"""A family in which single observations may be outliers."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics
from switchpoint.segments.distributions import Distribution


class WithOutliers(Segment):
    """A family of which each observation is an outlier with probability e, for single steps.

    Of an observation x with density f given the segment and f_0 in a fresh one, the density is
    (1 - e) f(x) + e f_0(x), and x enters the statistics if the first term is the larger one. The
    statistics are then no monoid: runs of observations have none.
    """

    segment: Segment
    outliers: Parameter

    def statistic(self, x: Numbers) -> Statistics:
        return self.segment.statistic(x)

    def predictive(self, statistics: Statistics) -> Distribution:
        return self.segment.predictive(statistics)

    def empty(self) -> Statistics:
        return self.segment.empty()

    def initial(self) -> Statistics:
        return self.segment.initial()

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.segment.event_shape

    def _absorb(self, statistics: Statistics, x: Numbers) -> tuple[Numbers, Statistics]:
        logs, after = self.segment._absorb(statistics, x)
        fresh, _ = self.segment._absorb(self.segment.initial(), x)
        mixed, odd = with_outlier(logs, fresh, self.outliers)
        return mixed, _left_out(self.segment, statistics, after, odd)


def with_outlier(logs: Numbers, fresh: Numbers, outliers: Numbers) -> tuple[Numbers, Any]:
    """ln ((1 - e) f + e f_0) for ln f, ln f_0 and e, and whether the second term is the larger."""
    xp = namespace(logs, fresh)
    logs, fresh = logs + xp.log1p(-outliers), fresh + xp.log(outliers)
    return xp.logaddexp(logs, fresh), logs < fresh


def _left_out(segment: Segment, before: Any, after: Any, odd: Bool[Array, ""]) -> Statistics:
    """The statistics before an outlier, but for the fields that pass with time."""
    columns = getattr(segment, "columns", None)
    if columns is not None:
        return tuple(map(_left_out, columns, before, after, (odd,) * len(columns)))
    if segment.passing:
        before = before._replace(**{name: getattr(after, name) for name in segment.passing})
    return jax.tree.map(lambda old, new: jnp.where(odd, old, new), before, after)
