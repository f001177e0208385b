"""river: a drift detector and an anomaly scorer, on the exact posterior of a stream."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

from switchpoint import _checks
from switchpoint.adapters import requires
from switchpoint.detection.online import Monitor
from switchpoint.priors import Geometric
from switchpoint.sources import Source
from switchpoint.streams import Change
from switchpoint.streams.engine import LARGEST

with requires("river", "river"):
    from river import base

__all__ = ["SwitchpointAnomalyScorer", "SwitchpointDriftDetector"]

_SENSITIVITY = 1.0


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


def _new_monitor(model: Any, one_in: float = 100_000.0, horizon: int = 1000) -> Monitor:
    """The monitor of a stream of numbers, with the parameters of a detector or scorer."""
    if model.source is not None:
        if model.segment is not None or model.sensitivity is not None:
            given = "segment" if model.segment is not None else "sensitivity"
            raise ValueError(f"{given} cannot be given with a source, which has one")
        prior, segment = model.source.prior, model.source.segment
    else:
        sensitivity = _SENSITIVITY if model.sensitivity is None else model.sensitivity
        prior, segment = Geometric(_checks.positive_float("sensitivity", sensitivity) / 1000), None
    return Monitor(
        prior,
        kinds=() if model.segment is None else (model.segment,),
        segment=segment,
        warm_up=model.grace_period,
        one_in=one_in,
        horizon=horizon,
        max_hypotheses=model.max_hypotheses,
    )


class SwitchpointDriftDetector(base.DriftDetector):
    """Drift by the alarms of `switchpoint.Alarm`, with a rate of false ones that one sets.

    A drift is detected where the probability of a switch since the last detection, at most
    `horizon` observations back, is so high that a stream without changes would reach it about once
    in `one_in` observations. Each switch is reported once. The stream itself goes on, since its
    posterior has already forgotten the old segment.

    The first `grace_period` observations decide the model: bits, such as the errors of a
    classifier, counts, or values with a level, on a scale and with a lag if these say so
    (docs/watch.md). It allows for outliers: a single value far from all others is no drift. After a
    value that the model rules out, such as a 2 after bits, it starts again from the last
    `grace_period` observations. With a `source` of your own, values are taken as they are, and
    detection starts at once. None and NaN are missing observations.

    Parameters
    ----------
    one_in
        The expected number of observations between two false detections.
    horizon
        The number of observations over which a small change adds up.
    segment
        "level", "trend", "bits", "counts" or "waiting-times"; by default bits, counts or "level",
        whichever the first observations are.
    sensitivity
        The expected number of switches per 1,000 observations; 1 by default.
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
    ...         print(f"Drift at index {i}, since index {detector.change.began}")
    Drift at index 1007, since index 1000

    """

    def __init__(
        self,
        one_in: float = 100_000.0,
        horizon: int = 1000,
        segment: str | None = None,
        sensitivity: float | None = None,
        source: Source | None = None,
        grace_period: int = 50,
        max_hypotheses: int = 100,
    ) -> None:
        super().__init__()
        self.one_in = one_in
        self.horizon = horizon
        self.segment = segment
        self.sensitivity = sensitivity
        self.source = source
        self.grace_period = grace_period
        self.max_hypotheses = max_hypotheses
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self.change: Change | None = None
        """The last drift: where it began, with an interval, and the levels before and after."""
        self._monitor = _new_monitor(self, self.one_in, self.horizon)

    def update(self, x: Any) -> None:
        """Update the detector with a single data point."""
        changes = [report.change for report in self._monitor.update((_number(x),))]
        self._drift_detected = any(changes)
        self.change = next(filter(None, reversed(changes)), self.change)

    @property
    def change_probability(self) -> float:
        """P(a switch within the horizon, after the last detection | all so far)."""
        return self._monitor.alarm.probability

    @property
    def run_length(self) -> int:
        """The most probable length of the current segment; 0 in the grace period."""
        return 0 if self._monitor.stream is None else self._monitor.stream.run_length.mode


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
        The expected number of switches per 1,000 observations; 1 by default.
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
        self._monitors: dict[Hashable, Monitor] = {}

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Update the streams of the features of x."""
        for name, value in x.items():
            if name not in self._monitors:
                self._monitors[name] = _new_monitor(self)
            self._monitors[name].update((_number(value),))

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """-log2 p(x | all so far)."""
        monitors = ((self._monitors.get(name), value) for name, value in x.items())
        pairs = [(monitor, _number(value)) for monitor, value in monitors if monitor is not None]
        return 0.0 - sum(monitor.log_density((x,)) for monitor, x in pairs) / math.log(2)
