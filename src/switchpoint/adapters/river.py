"""river: a drift detector and an anomaly scorer, on the exact posterior of a stream."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from switchpoint import _checks
from switchpoint.adapters import requires
from switchpoint.detection.model import SeriesModel, series_model
from switchpoint.exact import bayes_optimal
from switchpoint.segments.values import checked_value
from switchpoint.sources import Source
from switchpoint.streams import Stream
from switchpoint.streams.engine import LARGEST

with requires("river", "river"):
    from river import base

__all__ = ["SwitchpointAnomalyScorer", "SwitchpointDriftDetector"]

_SENSITIVITY = 1.0


class _ScaledStream:
    """A stream of numbers, in units that are learned from the first of them.

    With a source of one's own there is nothing to learn.
    """

    def __init__(
        self,
        segment: str | None,
        sensitivity: float | None,
        source: Source | None,
        grace_period: int,
        max_hypotheses: int,
    ) -> None:
        default = None if source is not None else _SENSITIVITY
        self._settings = segment, default if sensitivity is None else sensitivity, source
        self._grace_period = _checks.positive_int("grace_period", grace_period)
        self._max_hypotheses = max_hypotheses
        self._first: list[float] = []
        self._centre, self._scale = 0.0, 1.0
        self.stream: Stream | None = None
        if source is not None:
            self._begin(series_model(np.zeros((1, 1)), *self._settings))

    def log_density(self, x: Any) -> float:
        """ln p(x | all so far) in the units of the stream; 0 before they are known."""
        if self.stream is None:
            return 0.0
        predictor: Any = self.stream.predictor
        x, expected = self._standardised(x), self.stream.predict()
        with jax.enable_x64(True):
            checked_value(predictor.segment, x)
        if not isinstance(expected, np.ndarray):
            return float(expected.log_density(x))
        return 0.0 if math.isnan(x) else float(expected[int(x)])

    def update(self, x: Any) -> None:
        """Observe one more."""
        if self.stream is not None:
            self.stream.update(self._standardised(x))
            return
        self._first.append(self._standardised(x))
        known = sum(not math.isnan(each) for each in self._first)
        if known >= self._grace_period:
            values, self._first = np.array(self._first), []
            self._begin(series_model(values[:, None], *self._settings))
            for each in values.tolist():
                self.update(each)

    def _begin(self, model: SeriesModel) -> None:
        self._centre, self._scale = float(model.centres[0]), float(model.scales[0])
        self.stream = Stream(bayes_optimal(model.source, max_hypotheses=self._max_hypotheses))

    def _standardised(self, x: Any) -> float:
        if x is None:
            return math.nan
        try:
            number = float(x)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"x must be a number, got {_checks.shown(x)}") from error
        if abs(number) > LARGEST:  # it would spoil the scale, too
            raise ValueError(f"x must be at most {LARGEST:g} in size, got {number}")
        return (number - self._centre) / self._scale


class SwitchpointDriftDetector(base.DriftDetector):
    """Drift by the probability that the stream has switched.

    A drift is detected where P(a switch within the last `window` observations | all so far)
    exceeds `threshold`. Each switch is reported once: after a detection only later observations
    count. The stream itself goes on, since its posterior has already forgotten the old segment.

    The first `grace_period` observations only decide the centre and the scale of the values. With
    a `source` of your own, such as one of bits for the errors of a classifier, values are taken as
    they are, and detection starts at once. None and NaN are missing observations.

    Parameters
    ----------
    threshold
        The probability of a switch above which a drift is detected.
    window
        The number of observations among which the switch must be.
    segment
        "level" if not given, "trend", "counts" or "waiting-times", as in `switchpoint.detect`.
    sensitivity
        The expected number of switches per 1,000 observations; 1 if not given.
    source
        A `switchpoint.Source` in the place of `segment` and `sensitivity`.
    grace_period
        The number of observations that decide about the units.
    max_hypotheses
        How many starts of the current segment are considered at a time.

    Examples
    --------
    >>> import random
    >>> from switchpoint.adapters.river import SwitchpointDriftDetector

    >>> rng = random.Random(12345)
    >>> values = [rng.gauss(0 if i < 1000 else 2, 1) for i in range(2000)]
    >>> detector = SwitchpointDriftDetector()
    >>> for i, x in enumerate(values):
    ...     detector.update(x)
    ...     if detector.drift_detected:
    ...         print(f"Drift at index {i}, since index {i + 1 - detector.run_length}")
    Drift at index 1007, since index 1000

    """

    def __init__(
        self,
        threshold: float = 0.99,
        window: int = 1000,
        segment: str | None = None,
        sensitivity: float | None = None,
        source: Source | None = None,
        grace_period: int = 30,
        max_hypotheses: int = 100,
    ) -> None:
        super().__init__()
        self.threshold = _checks.probability("threshold", threshold, below_one=True)
        self.window = _checks.positive_int("window", window)
        self.segment = segment
        self.sensitivity = sensitivity
        self.source = source
        self.grace_period = grace_period
        self.max_hypotheses = max_hypotheses
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._stream = _scaled_stream(self)
        self._since_drift = 0

    def update(self, x: Any) -> None:
        """Update the detector with a single data point."""
        self._stream.update(x)
        self._since_drift += 1
        self._drift_detected = self.change_probability > self.threshold
        if self._drift_detected:
            self._since_drift = 0

    @property
    def change_probability(self) -> float:
        """P(a switch within the window, after the last detection | all so far)."""
        stream = self._stream.stream
        if stream is None or self._since_drift == 0:
            return 0.0
        return stream.change_probability(last=min(self.window, self._since_drift))

    @property
    def run_length(self) -> int:
        """The most probable length of the current segment; 0 in the grace period."""
        return 0 if self._stream.stream is None else self._stream.stream.run_length.mode


class SwitchpointAnomalyScorer(base.AnomalyDetector):
    """The surprise of an observation in bits, under a predictor that expects switches.

    The score is -log2 p(x | all so far), added up over the features. Each feature is a stream of
    its own, which begins where the feature first appears; one that is absent or None is missing.
    Values are in the units of the first `grace_period` of each feature, during which its score is
    0, so features of all scales count alike. After a drift the scorer soon expects the new
    values: what is rare is scored, not what is new for good.

    Parameters
    ----------
    segment
        "level" if not given, "trend", "counts" or "waiting-times", as in `switchpoint.detect`.
    sensitivity
        The expected number of switches per 1,000 observations; 1 if not given.
    source
        A `switchpoint.Source` of every feature in the place of both, without a grace period.
    grace_period
        The number of observations that decide about the units of a feature.
    max_hypotheses
        How many starts of the current segment are considered at a time.

    Examples
    --------
    >>> from switchpoint.adapters.river import SwitchpointAnomalyScorer

    >>> scorer = SwitchpointAnomalyScorer()
    >>> for i in range(100):
    ...     scorer.learn_one({"x": i % 5})
    >>> [round(scorer.score_one({"x": x})) for x in (2, 4, 10)]
    [1, 3, 18]

    """

    def __init__(
        self,
        segment: str | None = None,
        sensitivity: float | None = None,
        source: Source | None = None,
        grace_period: int = 30,
        max_hypotheses: int = 100,
    ) -> None:
        self.segment = segment
        self.sensitivity = sensitivity
        self.source = source
        self.grace_period = grace_period
        self.max_hypotheses = max_hypotheses
        self._streams: dict[Hashable, _ScaledStream] = {}

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Update the streams of the features of x."""
        for name, value in x.items():
            if name not in self._streams:
                self._streams[name] = _scaled_stream(self)
            self._streams[name].update(value)

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """-log2 p(x | all so far)."""
        known = ((self._streams[name], value) for name, value in x.items() if name in self._streams)
        return 0.0 - sum(stream.log_density(value) for stream, value in known) / math.log(2)


def _scaled_stream(model: Any) -> _ScaledStream:
    """The stream of one feature, with the parameters of a model."""
    segment = "level" if model.segment is None and model.source is None else model.segment
    return _ScaledStream(
        segment, model.sensitivity, model.source, model.grace_period, model.max_hypotheses
    )
