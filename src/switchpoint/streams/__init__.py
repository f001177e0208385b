"""One observation at a time at full speed on the host, with states that can be saved."""

from switchpoint.streams.alarms import Alarm, Change
from switchpoint.streams.many import Streams, Updates
from switchpoint.streams.predictive import Predictive
from switchpoint.streams.stream import RunLength, Stream

__all__ = ["Alarm", "Change", "Predictive", "RunLength", "Stream", "Streams", "Updates"]
