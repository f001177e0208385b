"""river: a drift detector and an anomaly scorer, on the exact posterior of a stream."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint.adapters import requires
from switchpoint.detection.model import SeriesModel, series_model
from switchpoint.exact import bayes_optimal
from switchpoint.priors import Geometric
from switchpoint.segments import Bernoulli
from switchpoint.segments.values import checked_value
from switchpoint.sources import Source
from switchpoint.streams import Stream
from switchpoint.streams.engine import LARGEST

with requires("river", "river"):
    from river import base

__all__ = ["SwitchpointAnomalyScorer", "SwitchpointDriftDetector"]

_SENSITIVITY = 1.0
_BITS = "bits"


@dataclass
class _FeatureStream:
    """A stream of numbers whose source and units follow from the first of them.

    A source given by the user is taken as it is. A default source that a later value contradicts,
    such as a 2 after bits, is chosen anew from the last `grace_period` values and that one.
    """

    segment: str | None
    sensitivity: float | None
    source: Source | None
    grace_period: int
    max_hypotheses: int
    recent: list[float] = field(default_factory=list)
    kind: str | None = None
    """That of a default source, unless it allows every number."""
    model: SeriesModel | None = None
    stream: Stream | None = None
    """None until the model is known."""

    def __post_init__(self) -> None:
        self.grace_period = _checks.positive_int("grace_period", self.grace_period)
        if self.source is not None:
            self._begin([])

    def log_density(self, x: Any) -> float:
        """ln p(x | all so far) in the units of the stream; 0 before they are known."""
        number = _number(x)
        if self.stream is None:
            return 0.0
        if self._is_contradicted(number):
            return self._replaced(number).log_density(number)
        predictor: Any = self.stream.predictor
        x, expected = self._standardised(number), self.stream.predict()
        with jax.enable_x64(True):
            checked_value(predictor.segment, x)
        if not isinstance(expected, np.ndarray):
            return float(expected.log_density(x))
        return 0.0 if math.isnan(x) else float(expected[int(x)])

    def update(self, x: Any) -> None:
        """Observe one more."""
        number = _number(x)
        if self._is_contradicted(number):
            self.__dict__ = self._replaced(number).__dict__
        if self.stream is not None:
            self.stream.update(self._standardised(number))
        if self.source is not None:
            return
        self.recent.append(number)
        observed = sum(not math.isnan(each) for each in self.recent)
        if self.stream is None and observed >= self.grace_period:
            self._begin(self.recent)
        if self.stream is not None:
            del self.recent[: -self.grace_period]

    def _begin(self, values: Sequence[float], *unseen: float) -> None:
        """Choose the model by values and `unseen`, and observe the values."""
        known = np.array([*values, *unseen] or [0.0])[:, None]
        segment, sensitivity, source = self.segment, self.sensitivity, self.source
        if source is None:
            sensitivity = _SENSITIVITY if sensitivity is None else sensitivity
            if segment is None:
                segment = _kind(known[~np.isnan(known)])
                self.kind = None if segment == "level" else segment
        if segment == _BITS:
            rate = _checks.positive_float("sensitivity", sensitivity) / 1000
            segment, sensitivity, source = None, None, Source(Geometric(rate), Bernoulli())
        self.model = series_model(known, segment, sensitivity, source)
        self.stream = Stream(bayes_optimal(self.model.source, self.max_hypotheses))
        self.stream.extend([self._standardised(each) for each in values])

    def _is_contradicted(self, number: float) -> bool:
        """Whether a default source gives a number no chance."""
        if self.kind is None or number != number:
            return False
        return number not in (0, 1) if self.kind == _BITS else number < 0 or number % 1 != 0

    def _replaced(self, number: float) -> "_FeatureStream":
        """A stream of the recent values whose source allows a number, too."""
        other = replace(self, recent=list(self.recent))
        other._begin(other.recent, number)
        return other

    def _standardised(self, number: float) -> float:
        assert self.model is not None
        return (number - float(self.model.centres[0])) / float(self.model.scales[0])


def _kind(values: Float[np.ndarray, " observed"]) -> str:
    """The default segment model of some values: bits, counts or level.

    Whole numbers from 0 on are counts if their variance is between half and twice their mean, as a
    Poisson variable's is close to it, or if their mean is below 1, where no Gaussian fits.
    """
    if np.isin(values, (0, 1)).all():
        return _BITS
    if (values < 0).any() or (values != np.floor(values)).any():
        return "level"
    dispersion = values.var(ddof=1) / values.mean() if len(values) > 1 else 1.0
    return "counts" if values.mean() < 1 or 0.5 < dispersion < 2 else "level"


def _number(x: Any) -> float:
    """An observation as a float; NaN for None, which is missing."""
    if x is None:
        return math.nan
    try:
        number = float(x)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"x must be a number, got {_checks.shown(x)}") from error
    if abs(number) > LARGEST:  # it would spoil the scale, too
        raise ValueError(f"x must be at most {LARGEST:g} in size, got {number}")
    return number


class SwitchpointDriftDetector(base.DriftDetector):
    """Drift by the probability that the stream has switched.

    A drift is detected where P(a switch within the last `window` observations | all so far)
    exceeds `threshold`. Each switch is reported once: after a detection only later observations
    count. The stream itself goes on, since its posterior has already forgotten the old segment.

    The first `grace_period` observations decide the model: bits, such as the errors of a
    classifier (Bernoulli segments), counts (Poisson segments), or values with a level, in units of
    their own centre and scale. After a value that the model rules out, such as a 2 after bits, it
    starts again from the last `grace_period` observations. With a `source` of your own, values are
    taken as they are, and detection starts at once. None and NaN are missing observations.

    Parameters
    ----------
    threshold
        The probability of a switch above which a drift is detected.
    window
        The number of observations among which the switch must be.
    segment
        "level", "trend", "counts" or "waiting-times", as in `switchpoint.detect`; by default bits,
        counts or "level", whichever the first observations are.
    sensitivity
        The expected number of switches per 1,000 observations; 1 if not given.
    source
        A `switchpoint.Source` in the place of `segment` and `sensitivity`.
    grace_period
        The number of observations that decide about the model.
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
        self._stream = _feature_stream(self)
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
    The first `grace_period` observations of a feature decide its model, as in
    `SwitchpointDriftDetector`; during them its score is 0. Values are in units of their own scale,
    so features of all scales count alike. After a drift the scorer soon expects the new
    values: what is rare is scored, not what is new for good.

    Parameters
    ----------
    segment
        "level", "trend", "counts" or "waiting-times", as in `switchpoint.detect`; by default bits,
        counts or "level", whichever the first observations are.
    sensitivity
        The expected number of switches per 1,000 observations; 1 if not given.
    source
        A `switchpoint.Source` of every feature in the place of both, without a grace period.
    grace_period
        The number of observations that decide about the model of a feature.
    max_hypotheses
        How many starts of the current segment are considered at a time.

    Examples
    --------
    >>> from switchpoint.adapters.river import SwitchpointAnomalyScorer

    >>> scorer = SwitchpointAnomalyScorer()
    >>> for i in range(100):
    ...     scorer.learn_one({"x": i % 5})
    >>> [round(scorer.score_one({"x": x})) for x in (2, 4, 10)]
    [2, 3, 14]

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
        self._streams: dict[Hashable, _FeatureStream] = {}

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Update the streams of the features of x."""
        for name, value in x.items():
            if name not in self._streams:
                self._streams[name] = _feature_stream(self)
            self._streams[name].update(value)

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """-log2 p(x | all so far)."""
        known = ((self._streams[name], value) for name, value in x.items() if name in self._streams)
        return 0.0 - sum(stream.log_density(value) for stream, value in known) / math.log(2)


def _feature_stream(model: Any) -> _FeatureStream:
    """The stream of one feature, with the parameters of a model."""
    return _FeatureStream(
        model.segment, model.sensitivity, model.source, model.grace_period, model.max_hypotheses
    )
