"""Pictures of results: functions take arrays, compute nothing, and return a figure."""

from switchpoint.figures.prediction import prediction_figure
from switchpoint.figures.prior import prior_figure
from switchpoint.figures.segmentation import segmentation_figure

__all__ = ["prediction_figure", "prior_figure", "segmentation_figure"]
