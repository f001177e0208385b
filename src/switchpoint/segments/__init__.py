"""The distribution of symbols within one segment."""

from switchpoint.segments.base import Segment
from switchpoint.segments.models import Bernoulli, Categorical, make_segment

__all__ = ["Bernoulli", "Categorical", "Segment", "make_segment"]
