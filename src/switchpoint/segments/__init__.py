"""What happens inside one segment."""

from switchpoint.segments.base import Segment
from switchpoint.segments.choice import segment_of
from switchpoint.segments.models import Bernoulli, Categorical

__all__ = ["Bernoulli", "Categorical", "Segment", "segment_of"]
