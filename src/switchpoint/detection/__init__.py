"""Change points of a series of numbers, for those who only want the answer."""

from switchpoint.detection.changepoints import detect
from switchpoint.detection.groups import GroupedSegmentation
from switchpoint.detection.metrics import covering, delays, f1, false_alarms
from switchpoint.detection.segmentation import Segmentation

__all__ = [
    "GroupedSegmentation",
    "Segmentation",
    "covering",
    "delays",
    "detect",
    "f1",
    "false_alarms",
]
