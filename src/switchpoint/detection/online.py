"""Streams of numbers whose model follows from their first observations, and their alarms."""

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint.detection.defaults import centre_and_scale
from switchpoint.exact import bayes_optimal
from switchpoint.priors import PTW, Prior
from switchpoint.segments import (
    Bernoulli,
    Exponential,
    Independent,
    NegativeBinomial,
    NormalGamma,
    Poisson,
    Regression,
    Segment,
    Trend,
    estimate_dispersion,
)
from switchpoint.segments.values import checked_value
from switchpoint.sources import Source
from switchpoint.streams import Alarm, Change, RunLength, Stream

ONLINE_SEGMENTS = ("level", "trend", "bits", "counts", "waiting-times")
"""The kinds of segments of a stream of numbers."""

OUTLIERS = 0.02
"""The share of outliers that streams of values allow for."""

# In units of the first values: levels lie within a few standard deviations of each other, and the
# prior of the noise is worth 20 observations.
_STRENGTH, _SHAPE, _RATE, _SLOPE_SCALE, _LAG_SCALE = 0.5, 10.0, 9.0, 0.1, 0.5

_GAIN = 3.0  # nats by which another scale must fit better than the linear one
_CORRELATION = 2.0  # standard errors of an autocorrelation that is noticed
_DISPERSION = 3.0  # standard errors of a variance that is not Poisson's
_MANY_COUNTS = 50.0  # a mean above which whole numbers are levels
_OUTLIER_EVIDENCE = 0.5  # times ln one_in: on these families rarer than 1 in one_in, by far
_LABELS = 256  # that are kept before those that no segment may have begun with are dropped
_CLIP = 3.0  # standard deviations
_CONSTANT_SCALE = 1e-6  # of a stream that begins with a constant, relative to it
_ROUNDING = 1e-12  # relative variation that is none

_SCALES: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "linear": (lambda x: x, lambda y: y),
    "cube-root": (np.cbrt, lambda y: y**3),
    "sixth-root": (lambda x: x ** (1 / 6), lambda y: max(y, 0.0) ** 6),
    "log": (np.log, np.exp),
}


@dataclass(frozen=True)
class OnlineModel:
    """Segments of one kind on a scale of the values: z = (g(x) - centre) / unit.

    The scale g is linear, the cube root, which makes the exponential and chi-square distributions
    nearly Gaussian (Wilson and Hilferty, 1931), the sixth root, for distributions between these and
    the lognormal one, or the logarithm. The scale asinh is linear near the centre and logarithmic
    far from it: z = asinh((x - centre) / unit).
    """

    kind: str
    scale: str = "linear"
    lags: int = 0
    centre: float = 0.0
    unit: float = 1.0
    mean: float = 1.0
    """The mean of counts or waiting times."""
    dispersion: float | None = None
    """Of counts with more variance than Poisson's, as in `NegativeBinomial`."""

    def encode(self, x: float) -> float:
        """x on the scale and in the unit of the model."""
        if self.kind == "level" and self.scale == "linear":
            return (x - self.centre) / self.unit
        if self.scale == "asinh":
            return math.asinh((x - self.centre) / self.unit)
        return (float(_SCALES[self.scale][0](x)) - self.centre) / self.unit

    def decode(self, z: float) -> float:
        """The value with this place on the scale."""
        if self.scale == "asinh":
            return self.centre + self.unit * float(np.sinh(z))
        return float(_SCALES[self.scale][1](self.centre + self.unit * z))

    def allows(self, x: float) -> bool:
        """Whether x is missing or a value of this kind and scale."""
        if x != x:
            return True
        if self.kind == "bits":
            return x in (0, 1)
        if self.kind == "counts":
            return x >= 0 and x == math.floor(x)
        if self.scale == "log":
            return x > 0
        return x >= 0 or (self.kind != "waiting-times" and self.scale != "sixth-root")

    @property
    def segment(self) -> Segment:
        """The segment model of the values on the scale."""
        if self.kind == "bits":
            return Bernoulli()
        if self.dispersion is not None:
            return NegativeBinomial(self.dispersion, 1.0, self.mean / self.dispersion)
        if self.lags:
            return Regression(
                slope=self.kind == "trend",
                lags=self.lags,
                level_scale=_STRENGTH**-0.5,
                slope_scale=_SLOPE_SCALE,
                lag_scale=_LAG_SCALE,
                shape=_SHAPE,
                rate=_RATE,
            )
        if self.kind == "trend":
            return Trend(_STRENGTH**-0.5, _SLOPE_SCALE, _SHAPE, _RATE)
        if self.kind == "level":
            return NormalGamma(0.0, _STRENGTH, _SHAPE, _RATE)
        # The prior of the rate is exponential, the broadest of its kind.
        return Poisson(1.0, 1 / self.mean) if self.kind == "counts" else Exponential(1.0, self.mean)

    def __str__(self) -> str:
        names = {"log": "logarithms", "asinh": "values, by asinh"}
        text = f"{self.kind} segments"
        text += f" of {names.get(self.scale, f'{self.scale}s')}" if self.scale != "linear" else ""
        text += f" with {self.lags} lag{'s' * (self.lags > 1)}" if self.lags else ""
        return text + (", overdispersed" if self.dispersion is not None else "")


def choose_model(
    values: Float[np.ndarray, " time"],
    kind: str | None = None,
    lags: int | None = None,
    log: bool | None = None,
    also: float = math.nan,
) -> OnlineModel:
    """The model of a stream that begins with these values; it allows the value `also`, too.

    Bits and small counts are seen by the values: whole numbers from 0 on without autocorrelation,
    of at least Poisson's variance. For other values the scale is that under which a Gaussian AR(1)
    process has the highest likelihood, if it is `_GAIN` nats better than the linear scale. There is
    a lag if the autocorrelation of the values on the scale is above 2 standard errors, and not
    only by changes of the level.
    """
    seen = values[~np.isnan(values)]
    if not len(seen):
        raise ValueError(f"there is no value among the first {len(values)} observations")
    mean = float(seen.mean())
    if kind is None:
        kind = "level" if lags or log is not None else _guess_kind(values, seen, also)
    if kind not in ("level", "trend"):
        told = "log" if log else "lags" if lags else None
        if told:
            raise ValueError(f"{told} is for segments with a level or a trend, got segment {kind}")
        if kind not in ONLINE_SEGMENTS:
            raise ValueError(f"segment must be {' or '.join(ONLINE_SEGMENTS)}, got {kind!r}")
        # The prior of the mean of rare counts is worth one of them.
        default = OnlineModel(kind, mean=max(mean, 1.0) if kind == "counts" else mean or 1.0)
        odd = next((x for x in seen.tolist() if not default.allows(x)), None)
        if odd is not None:
            raise ValueError(f"segment {kind} has no value {odd:g}")
        if kind == "counts" and _excess_variance(seen) > _DISPERSION:
            return replace(default, dispersion=float(f"{estimate_dispersion(seen):.3g}"))
        return default
    if log and seen.min() <= 0:
        raise ValueError(f"log needs values above 0, got {seen.min():g}")
    scale = _best_scale(seen, also) if log is None else "log" if log else "linear"
    model = OnlineModel(kind, scale)
    model = _standardised(model, seen)
    if lags is None:
        lags = int(_autocorrelation(np.array([model.encode(x) for x in values.tolist()])))
    return replace(model, lags=_checks.whole_number("lags", lags))


def _standardised(model: OnlineModel, seen: Float[np.ndarray, " seen"]) -> OnlineModel:
    """The model in the units of these values.

    A constant shows no scale. A scale above the changes to come would hide them all; one below the
    noise only delays alarms, and a billion times below it by 30 observations. So it is small.
    """
    if np.allclose(seen, seen[0], rtol=_ROUNDING, atol=0.0):
        first = float(seen[0])
        return replace(
            model, scale="linear", centre=first, unit=_CONSTANT_SCALE * (abs(first) or 1.0)
        )
    places = seen if model.scale == "asinh" else _SCALES[model.scale][0](seen)
    centre, unit = _centre_and_unit(places)
    return replace(model, centre=centre, unit=unit)


def _centre_and_unit(places: Float[np.ndarray, " seen"]) -> tuple[float, float]:
    """The median, and the noise by the differences of neighbours, which hardly see the level."""
    centre, scale = centre_and_scale(places)
    differences = np.diff(places)
    if not differences.any():
        return centre, scale
    return centre, centre_and_scale(differences)[1] / math.sqrt(2)


def _guess_kind(
    values: Float[np.ndarray, " time"], seen: Float[np.ndarray, " seen"], also: float
) -> str:
    """Bits, counts or level."""
    every = seen if also != also else np.append(seen, also)
    if np.isin(every, (0, 1)).all():
        return "bits"
    whole = (every >= 0).all() and (every == np.floor(every)).all()
    if not whole or seen.mean() > _MANY_COUNTS or _autocorrelation(values):
        return "level"
    return "counts" if _excess_variance(seen) > -_DISPERSION else "level"


def _excess_variance(seen: Float[np.ndarray, " seen"]) -> float:
    """The variance over the mean, less 1, in standard errors of Poisson counts."""
    if len(seen) < 2 or not seen.any():
        return 0.0
    return float(seen.var(ddof=1) / seen.mean() - 1) * math.sqrt((len(seen) - 1) / 2)


def _autocorrelation(values: Float[np.ndarray, " time"]) -> bool:
    """Whether neighbouring values are correlated, and not only because the level changes.

    Differences of an AR(1) process with coefficient phi have the autocorrelation -(1 - phi) / 2 at
    lag 1, whatever its level. The largest values count as 3 standard deviations.
    """
    centre, scale = centre_and_scale(values[~np.isnan(values)])
    standard = np.clip((values - centre) / scale, -_CLIP, _CLIP)
    correlation, pairs = _lag_1(standard)
    of_differences, _ = _lag_1(np.diff(standard))
    if pairs < 2 or correlation <= _CORRELATION / math.sqrt(pairs):
        return False
    return 1 + 2 * of_differences > math.sqrt(2 / pairs)


def _lag_1(values: Float[np.ndarray, " time"]) -> tuple[float, int]:
    """The autocorrelation of centred values at lag 1, and the number of pairs."""
    products = values[1:] * values[:-1]
    seen = products[~np.isnan(products)]
    square = float(np.nanmean(values**2)) if len(seen) else 0.0
    return float(seen.mean()) / square if square > 0 else 0.0, len(seen)


def _best_scale(seen: Float[np.ndarray, " seen"], also: float) -> str:
    """The scale under which these values are most nearly Gaussian."""
    centre, unit = _centre_and_unit(seen)
    standard = (seen - centre) / unit
    logs = {
        "linear": _log_likelihood(seen / unit, 0.0),
        "asinh": _log_likelihood(np.arcsinh(standard), -0.5 * np.log1p(standard**2)),
    }
    if (seen > 0).all() and not also <= 0:
        shares = seen / unit
        for scale, power in (("cube-root", 1 / 3), ("sixth-root", 1 / 6)):
            slopes = math.log(power) + (power - 1) * np.log(shares)
            logs[scale] = _log_likelihood(shares**power, slopes)
        logs["log"] = _log_likelihood(np.log(shares), -np.log(shares))
    best = max(logs, key=logs.__getitem__)
    return best if logs[best] > logs["linear"] + _GAIN else "linear"


def _log_likelihood(places: Float[np.ndarray, " seen"], log_slopes: Any) -> float:
    """The highest log-likelihood of Gaussian AR(1) on a scale with these slopes, but a constant."""
    standard = (places - places.mean()) / (places.std() or _ROUNDING)
    correlation = float(np.mean(standard[1:] * standard[:-1])) if len(standard) > 1 else 0.0
    noise = places.std() * math.sqrt(max(1 - correlation**2, _ROUNDING))
    return float(np.sum(log_slopes)) - len(places) * math.log(noise or _ROUNDING)


@dataclass(frozen=True)
class Report:
    """What a monitor says of one observation."""

    position: int
    """The number of the observation, from 0."""
    values: tuple[float, ...]
    """The value of each column; NaN where missing."""
    label: str
    """The label that it was observed with."""
    surprise: float
    """-log2 p(x | all before), in the units of the model."""
    change: Change | None
    """The alarm that it raises, with levels in the units of the values."""
    probability: float
    """P(a switch since the last alarm | all so far), as in `Alarm`."""
    began: tuple[str, str, str] | None
    """The labels of the most probable start of the change, and of both ends of its interval."""
    outlier: bool
    """Whether it is a single value far from its segment."""
    chosen: bool
    """Whether the model was chosen before it, by the observations so far."""
    run: RunLength | None
    """The length of the current segment, if the monitor is `detailed`."""


class Monitor:
    """A stream of numbers, or of rows of them, and the rule for its alarms.

    The model of each column follows from the first `warm_up` observed rows (`choose_model`), unless
    `segment` is given, which sees values as they are. If a later value contradicts a model that was
    not told, such as a 2 after bits, the models are chosen anew from the last `warm_up` rows and
    that one. An outlier is reported if its density in a fresh segment is sqrt(one_in) times that in
    the most probable segment so far.
    """

    def __init__(
        self,
        prior: Prior,
        columns: int = 1,
        *,
        kinds: Sequence[str] = (),
        lags: int | None = None,
        log: bool | None = None,
        segment: Segment | None = None,
        warm_up: int = 100,
        one_in: float = 100_000,
        horizon: int = 1000,
        max_hypotheses: int | None = 100,
        detailed: bool = False,
    ) -> None:
        if len(kinds) not in (0, 1, columns):
            raise ValueError(
                f"segment must be one, or one for each of {columns} columns, got {', '.join(kinds)}"
            )
        self.detailed = detailed
        self.warm_up = _checks.positive_int("warm_up", warm_up)
        self.alarm = Alarm(one_in, horizon)
        self.models: tuple[OnlineModel, ...] = ()
        """The model of each column, once it is chosen."""
        self.stream: Stream | None = None
        self.position = 0
        """The number of observations so far."""
        self._prior, self._most = prior, None if isinstance(prior, PTW) else max_hypotheses
        self._kinds: list[str | None] = [*kinds] * (columns if len(kinds) == 1 else 1)
        self._kinds = self._kinds or [None] * columns
        self._told: dict[str, Any] = {"lags": lags, "log": log}
        self._segment = segment
        self._recent: deque[tuple[tuple[float, ...], str]] = deque()
        self._labels: dict[int, str] = {}
        self._most_labels = _LABELS
        """The labels of the possible starts of the current segment, by position."""
        if segment is not None:
            self.stream = self._new_stream(segment)

    def update(self, values: Sequence[float], label: str = "") -> list[Report]:
        """Observe a row: the reports of all rows that were waiting for the model, and its own."""
        row = tuple(map(float, values))
        if self._segment is not None:
            return [self._observe(row, label)]
        chosen = self.stream is not None and not self._allows(row)
        if chosen:
            self._restart(row)
        self._recent.append((row, label))
        if self.stream is None:
            observed = sum(any(x == x for x in each) for each, _ in self._recent)
            return self.begin() if observed >= self.warm_up else []
        while len(self._recent) > self.warm_up:
            self._recent.popleft()
        return [self._observe(row, label, chosen)]

    def check(self, values: Sequence[float]) -> None:
        """Raise a `ValueError` if a model that was told does not have these values."""
        self._allows(tuple(values))

    def begin(self) -> list[Report]:
        """Choose the models by the rows so far, and report these; nothing if there are none."""
        recent = list(self._recent)
        if self.stream is not None or not recent:
            return []
        self._choose([row for row, _ in recent], (math.nan,) * len(self._kinds))
        return [self._observe(*each, chosen=index == 0) for index, each in enumerate(recent)]

    def learn(self, rows: Iterable[Sequence[float]]) -> None:
        """Choose the models by a history, and observe it without reports and positions."""
        self._recent.extend((tuple(row), "") for row in rows)
        self.begin()
        self.position = 0
        self._labels.clear()
        if self.stream is not None:
            self.alarm.reset(self.stream)

    def state(self) -> tuple[dict[str, Any], bytes]:
        """What it remembers, as JSON has it, and the state of the stream, if there is one."""
        about = {
            "position": self.position,
            "models": [asdict(model) for model in self.models],
            "recent": [[list(row), label] for row, label in self._recent],
            "alarm": self.alarm.state(),
            "labels": list(self._labels.items()),
        }
        return about, b"" if self.stream is None else self.stream.dumps()

    def restore(self, about: Mapping[str, Any], content: bytes) -> None:
        """Continue from the `state` of a monitor that was created alike."""
        self.position = about["position"]
        self.models = tuple(OnlineModel(**model) for model in about["models"])
        self._recent = deque((tuple(row), label) for row, label in about["recent"])
        self.alarm = Alarm.from_state(about["alarm"])
        self._labels = dict(map(tuple, about["labels"]))
        self.stream = Stream.loads(content) if content else None

    def log_density(self, values: Sequence[float]) -> float:
        """ln p(x | all so far) of a row in the units of the models; 0 before they are chosen."""
        row = tuple(values)
        if self.stream is None:
            return 0.0
        if not self._allows(row):
            other = copy.deepcopy(self)
            other._restart(row)
            return other.log_density(row)
        x, expected = self._encode(row), self.stream.predict()
        if self._segment is not None:
            with jax.enable_x64(True):
                checked_value(self._segment, x)
        if not isinstance(expected, np.ndarray):
            return float(expected.log_density(x))
        return 0.0 if math.isnan(x) else float(expected[int(x)])

    def _choose(self, rows: Sequence[tuple[float, ...]], also: tuple[float, ...]) -> None:
        """Begin with models for these rows that allow one more."""
        columns = zip(np.array(rows).T, self._kinds, also, strict=True)
        self.models = tuple(
            choose_model(values, kind, **self._told, also=x) for values, kind, x in columns
        )
        segments = [model.segment for model in self.models]
        self.stream = self._new_stream(
            segments[0] if len(segments) == 1 else Independent(*segments)
        )

    def _restart(self, row: tuple[float, ...]) -> None:
        """Begin anew with models for the recent rows that allow this one, and observe those."""
        assert self.stream is not None
        recent, end = [each for each, _ in self._recent], self.stream.position
        self._choose(recent, row)
        self.stream.extend([self._encode(each) for each in recent])
        self.alarm.reset(self.stream, max(0, self.alarm.after - end + len(recent)))

    def _new_stream(self, segment: Segment) -> Stream:
        robust = self.models and not segment.finite
        predictor = bayes_optimal(Source(self._prior, segment), self._most)
        return Stream(predictor, outliers=OUTLIERS if robust else None)

    def _allows(self, row: tuple[float, ...]) -> bool:
        """Whether the models have these values; a `ValueError` if they were told."""
        for x, kind, model in zip(row, self._kinds, self.models, strict=False):
            if not model.allows(x):
                if kind is not None or self._told["log"]:
                    raise ValueError(f"{model} have no value {x:g}")
                return False
        return True

    def _encode(self, row: tuple[float, ...]) -> Any:
        if self.models:
            row = tuple([model.encode(x) for model, x in zip(self.models, row, strict=True)])
        return row[0] if len(row) == 1 else np.array(row)

    def _observe(self, row: tuple[float, ...], label: str, chosen: bool = False) -> Report:
        stream, x = self.stream, self._encode(row)
        assert stream is not None
        surprise = -stream.update(x) / math.log(2)
        change, began = self.alarm.check(stream, x), None
        self._keep_label(label)
        if change is not None:
            change = self._in_units(change, stream.position)
            first, last = change.interval
            began = self._label(change.began), self._label(first), self._label(last)
        report = Report(
            self.position,
            row,
            label,
            surprise,
            change,
            self.alarm.probability,
            began,
            stream.outlier_evidence > _OUTLIER_EVIDENCE * math.log(self.alarm.one_in),
            chosen,
            stream.run_length if self.detailed else None,
        )
        self.position += 1
        return report

    def _keep_label(self, label: str) -> None:
        """Keep the label of this observation, and of those that a segment may have begun with."""
        assert self.stream is not None
        if label:
            self._labels[self.position] = label
        if len(self._labels) > self._most_labels:
            starts, _ = self.stream.starts()
            alive = starts + self.position + 1 - self.stream.position
            kept = {int(start) for start in alive} | {self.position}
            self._labels = {k: v for k, v in self._labels.items() if k in kept}
            self._most_labels = 2 * len(self._labels) + _LABELS

    def _label(self, position: int) -> str:
        """The label of a position, or of the last one before it that is known."""
        before = [each for each in self._labels if each <= position]
        return self._labels[max(before)] if before else ""

    def _in_units(self, change: Change, position: int) -> Change:
        """A change of the stream, at this position of it, as a change of the values."""
        offset = self.position + 1 - position
        first, last = change.interval
        return replace(
            change,
            position=change.position + offset,
            began=change.began + offset,
            interval=(first + offset, last + offset),
            level_before=self._decode(change.level_before),
            level_after=self._decode(change.level_after),
        )

    def _decode(self, level: Any) -> Any:
        if not self.models:
            return level
        if self.models[0].kind == "bits" and len(self.models) == 1:
            return float(level[1])
        levels = np.ravel(level).tolist()
        values = [model.decode(z) for model, z in zip(self.models, levels, strict=True)]
        return values[0] if len(values) == 1 else np.array(values)
