"""Change points of a series of numbers, for those who only want the answer."""

from switchpoint.detection.changepoints import detect
from switchpoint.detection.segmentation import Segmentation

__all__ = ["Segmentation", "detect"]
