"""scikit-learn: a transformer from columns to predictions, switch probabilities and segments."""

from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint.adapters import requires
from switchpoint.detection.changes import change_points
from switchpoint.detection.model import SeriesModel, segment_kinds, series_model
from switchpoint.detection.series import check_observations

with requires("scikit-learn", "sklearn"):
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

__all__ = ["EXPECTED_FAILED_CHECKS", "SwitchpointTransformer"]

EXPECTED_FAILED_CHECKS = {
    "check_methods_sample_order_invariance": "rows are in the order of time",
    "check_methods_subset_invariance": "what a row becomes depends on the rows before it",
}
"""The two checks of scikit-learn that no transformer of a series can pass."""

_OUTPUTS = ("prediction", "log_density", "run_length", "switch_probability", "segment")


class SwitchpointTransformer(TransformerMixin, BaseEstimator):
    """Features of a series that switches: rows are observations in the order of time.

    `outputs` are what each column becomes, any of:

    - "prediction": E[x_t | x_<t], or P(x_t = k | x_<t) of each symbol k;
    - "log_density": ln p(x_t | x_<t);
    - "run_length": E[the length of the current segment | x_<=t];
    - "switch_probability": P(a segment starts at t | all of x);
    - "segment": the number of the segment given all of x, from 0.

    The first three use no later observation, and may be features of a forecast. The last two are
    hindsight. NaN is a missing observation.

    `segment`, `sensitivity` and `source` are those of `switchpoint.detect`. `fit` learns the centre
    and the scale of each column, and with `fit_source` the hyperparameters of highest evidence;
    `transform` reads its rows as a new series from that source. Columns are separate series; with
    `common_switches` all of them switch together, and have one run length, switch probability and
    segment between them.
    """

    def __init__(
        self,
        outputs: Any = ("prediction", "switch_probability", "segment"),
        *,
        segment: Any = None,
        sensitivity: Any = None,
        source: Any = None,
        fit_source: Any = False,
        common_switches: Any = False,
    ) -> None:
        self.outputs = outputs
        self.segment = segment
        self.sensitivity = sensitivity
        self.source = source
        self.fit_source = fit_source
        self.common_switches = common_switches

    def fit(self, X: Any, y: Any = None) -> "SwitchpointTransformer":  # noqa: N803
        """Learn the units of each column, and the hyperparameters if asked to; y is not used."""
        del y
        self._outputs()
        values = self._values(X, reset=True)
        count = values.shape[1]
        check_observations(values, list(map(str, _check_feature_names_in(self))))
        own = (self.sensitivity, self.source, bool(self.fit_source))
        if self.common_switches:
            self.models_ = [series_model(values, self.segment, *own)]
        else:
            alike = self.source is not None  # which excludes `segment`
            kinds = [self.segment] * count if alike else segment_kinds(self.segment, count)
            self.models_ = [
                series_model(values[:, [i]], kind, *own) for i, kind in enumerate(kinds)
            ]
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The outputs of all columns, for every row."""
        check_is_fitted(self)
        values = self._values(X, reset=False)
        return np.concatenate(
            [self._features(model, values[:, columns]) for model, columns in self._groups()], axis=1
        )

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the outputs: that of the column, and of what it became."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        found = []
        for model, columns in self._groups():
            for output in self._outputs():
                if output != "prediction":
                    found.append(
                        output if self.common_switches else f"{names[columns][0]}_{output}"
                    )
                elif model.source.segment.finite:
                    symbols = range(model.source.segment.alphabet)
                    found += [f"{names[columns][0]}_{output}_{k}" for k in symbols]
                else:
                    found += [f"{name}_{output}" for name in names[columns]]
        return np.asarray(found, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _outputs(self) -> tuple[str, ...]:
        outputs = (self.outputs,) if isinstance(self.outputs, str) else tuple(self.outputs)
        unknown = [each for each in outputs if each not in _OUTPUTS]
        if unknown or not outputs:
            got = _checks.shown(unknown[0]) if unknown else "none"
            raise ValueError(f"outputs must be some of {', '.join(_OUTPUTS)}, got {got}")
        return outputs

    def _values(self, X: Any, reset: bool) -> Float[np.ndarray, "time columns"]:  # noqa: N803
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")

    def _groups(self) -> list[tuple[SeriesModel, Any]]:
        """The models, and the columns of each."""
        if self.common_switches:
            return [(self.models_[0], slice(None))]
        return [(model, [i]) for i, model in enumerate(self.models_)]

    def _features(
        self, model: SeriesModel, values: Float[np.ndarray, "time columns"]
    ) -> Float[np.ndarray, "time outputs"]:
        outputs, length = self._outputs(), len(values)
        found: dict[str, Any] = {}
        if {"prediction", "log_density"} & set(outputs):
            found["prediction"], found["log_density"] = model.forecasts(values)
        if {"run_length", "switch_probability", "segment"} & set(outputs):
            posterior = model.posterior(values)
            found["run_length"] = posterior.run_length_mean
            found["switch_probability"] = posterior.switch_probability
            switches = np.zeros(length)
            switches[change_points(posterior.switch_probability, ~np.isnan(values).all(1))] = 1
            found["segment"] = np.cumsum(switches)
        return np.column_stack([np.asarray(found[each], float)[:length] for each in outputs])
