"""sktime: a change point detector."""

from typing import Any, ClassVar

from switchpoint.adapters import requires
from switchpoint.detection import Segmentation
from switchpoint.detection.model import chosen_model, series_model
from switchpoint.detection.series import Series, parse_series

with requires("sktime", "sktime"):
    import pandas as pd
    from sktime.detection.base import BaseDetector

__all__ = ["SwitchpointDetector"]

_COVERAGE = 0.9


def _series(frame: Any) -> Series:
    """A frame of sktime, whose index may be anything, without times."""
    return parse_series(frame.reset_index(drop=True))


class SwitchpointDetector(BaseDetector):
    """Change points by the exact posterior over all partitions, as in `switchpoint.detect`.

    `fit` learns the units of each column, and with `fit_source` the hyperparameters of highest
    evidence. `predict` finds the change points of a series, which need not be the one that was
    fitted: `ilocs` are the first observations of its segments, the first one excluded.
    `transform_scores` is P(a switch at t | all values), `predict_scores` the same for each change
    point. Several columns have common switches; NaN is a missing observation.

    Parameters
    ----------
    segment : str or list of str, optional (default="trend")
        "trend", "level", "counts" or "waiting-times"; for all columns, or one for each.
    sensitivity : float, optional (default=5)
        The expected number of switches per 1,000 observations.
    source : switchpoint.Source, optional
        Takes the place of `segment` and `sensitivity`, and sees the values as they are.
    fit_source : bool, default=False
        Whether `fit` chooses the hyperparameters by their evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from switchpoint.adapters.sktime import SwitchpointDetector
    >>> values = np.r_[np.zeros(20), np.ones(20)] + np.tile([0.1, -0.1], 20)
    >>> SwitchpointDetector().fit_predict(values)["ilocs"].tolist()
    [20]

    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": "switchpoint developers",
        "maintainers": "switchpoint developers",
        "python_dependencies": "switchpoint",
        "task": "change_point_detection",
        "learning_type": "unsupervised",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": True,
        "capability:missing_values": True,
        "fit_is_empty": False,
    }

    def __init__(
        self,
        segment: Any = None,
        sensitivity: Any = None,
        source: Any = None,
        fit_source: Any = False,
    ) -> None:
        self.segment = segment
        self.sensitivity = sensitivity
        self.source = source
        self.fit_source = fit_source
        super().__init__()

    def _fit(self, X: Any, y: Any = None) -> "SwitchpointDetector":  # noqa: N803
        del y
        series, fit = _series(X), bool(self.fit_source)
        if self.segment is None and self.source is None:
            self.model_ = chosen_model(series, self.sensitivity, fit=fit)
        else:
            self.model_ = series_model(
                series.values, self.segment, self.sensitivity, self.source, fit
            )
        return self

    def _predict(self, X: Any) -> Any:  # noqa: N803
        return pd.DataFrame({"ilocs": self._segmentation(X).changepoints})

    def _predict_scores(self, X: Any) -> Any:  # noqa: N803
        return pd.DataFrame({"scores": self._segmentation(X).probability})

    def _transform_scores(self, X: Any) -> Any:  # noqa: N803
        return pd.DataFrame({"scores": self._segmentation(X).switch_probability}, index=X.index)

    def _segmentation(self, X: Any) -> Segmentation:  # noqa: N803
        return self.model_.segmentation(_series(X), _COVERAGE)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> Any:
        """The parameters with which sktime's own tests make instances."""
        del parameter_set
        return [{}, {"segment": "level", "sensitivity": 20.0}]
