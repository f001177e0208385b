"""A stream that is watched: a monitor for each series in its lines, and its position."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._tensors import DamagedError, read_tensors, write_tensors
from switchpoint._text import locating, name_of
from switchpoint.cli import config_options as options
from switchpoint.cli.reader import Line, LineFormat, guess_format
from switchpoint.cli.reader.observations import Observation
from switchpoint.detection.defaults import SENSITIVITY
from switchpoint.detection.online import ONLINE_SEGMENTS, Monitor, Report
from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.streams import Change

KINDS = (*ONLINE_SEGMENTS, "symbols")
"""The kinds of segments of a stream."""
ON_ERROR = ("skip", "missing", "stop")
"""What to do with a line that is no observation."""
ALARMS = ("each", "common")
"""Alarms of several columns: for each of them, or for changes that they have in common."""

_PRIOR_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "geometric": {"hazard": SENSITIVITY / 1000},
    "ptw": {"depth": 40},
}
_DIGITS = 6
_KIND = "watched stream"
_FEW = 10  # models that are described on standard error


@dataclass
class Watcher:
    """Monitors of series, and the line up to which they have been read."""

    lines: LineFormat
    settings: Mapping[str, Any]
    """The options that the monitors are created with."""
    every: bool = False
    """Whether there is a record for every observation."""
    on_error: str = "stop"
    """What becomes of a line that is no observation."""
    warn: Callable[[str], None] = lambda _: None
    """Tells the operator something."""
    skipped: int = 0
    """The number of lines that were no observations."""
    last: Line | None = None
    """The last line."""
    place: Mapping[str, Any] | None = None
    """The place in the file where reading resumes, if the watcher was loaded."""
    monitors: dict[str, list[Monitor]] = field(default_factory=dict)
    """By key: one for all columns, or one for each."""

    def __post_init__(self) -> None:
        self._prior, self._segment = _make_prior(self.settings), _symbols(self.lines, self.settings)

    @property
    def position(self) -> int:
        """The number of observations of all keys so far."""
        return sum(monitors[0].position for monitors in self.monitors.values())

    def observe(self, line: Line, name: str) -> list[dict[str, Any]]:
        """Absorb a line of the file called `name`: the records of it, or of all that waited.

        A line that is refused leaves everything as it was. The header of a file that follows
        another one is skipped.
        """
        if line.number == 1 and self.lines.header and line.text.strip() == self.lines.header:
            self.last = line
            return []
        try:
            with locating(f"{name}, line {line.number}"):
                observation = self.lines.parse(line.text)
                self._check(observation)
        except ValueError as error:
            if self.on_error == "stop":
                raise
            self._report(error)
            observation = Observation((np.nan,) * len(self.lines.columns), None)
            if self.on_error == "skip" or self.lines.key is not None:
                self.last = line
                return []
        with locating(name):  # if no model can be chosen, no line is at fault
            records = self._update(observation)
        self.last = line
        return records

    def _check(self, observation: Observation) -> None:
        """Raise a `ValueError` if a model that was told does not have the values."""
        monitors = self._monitors(observation.key)
        for index, monitor in enumerate(monitors):
            monitor.check(self._part(observation.values, index, monitors))

    def _report(self, error: ValueError) -> None:
        """Count a line that is no observation, and report the first, second, fourth and so on."""
        self.skipped += 1
        if self.skipped & (self.skipped - 1) == 0:
            total = f" ({self.skipped} lines so far)" if self.skipped > 1 else ""
            verb = "skipped" if self.on_error == "skip" else "taken as missing"
            self.warn(f"{verb}: {error}{total}")

    def finish(self, name: str) -> list[dict[str, Any]]:
        """The records of series in the file called `name` that ended before their warm-up did."""
        records = []
        for key, monitors in self.monitors.items():
            for index, monitor in enumerate(monitors):
                with locating(name):
                    reports = monitor.begin()
                for report in reports:
                    records += self._records(key, index, monitor, report)
        return records

    def learn(self, lines: Sequence[Line], name: str) -> list[dict[str, Any]]:
        """Choose the models of all series by the lines of a history: the records of that."""
        rows: dict[str, list[tuple[float, ...]]] = {}
        for line in lines:
            with locating(f"{name}, line {line.number}"):
                observation = self.lines.parse(line.text)
                rows.setdefault(observation.key, []).append(observation.values)
        records = []
        for key, series in rows.items():
            monitors = self._monitors(key)
            for index, monitor in enumerate(monitors):
                monitor.learn([self._part(row, index, monitors) for row in series])
                records.append(self._model(key, index, monitor, 0))
        return records

    def _update(self, observation: Observation) -> list[dict[str, Any]]:
        key, time = observation.key, observation.time or _now()
        records, monitors = [], self._monitors(key)
        for index, monitor in enumerate(monitors):
            part = self._part(observation.values, index, monitors)
            for report in monitor.update(part, time):
                records += self._records(key, index, monitor, report)
        return records

    def _monitors(self, key: str) -> list[Monitor]:
        if key not in self.monitors:
            self.monitors[key] = self._new_monitors()
        return self.monitors[key]

    def _new_monitors(self) -> list[Monitor]:
        settings, columns = self.settings, len(self.lines.columns)
        kinds = [kind for kind in settings["segment"] if kind != "symbols"]
        common = settings["alarms"] == "common" or columns == 1
        if not common and len(kinds) not in (0, 1, columns):
            raise ValueError(
                f"segment must be one, or one for each of {columns} columns, got {', '.join(kinds)}"
            )
        each = [kinds] if common else [kinds[i : i + 1] or kinds for i in range(columns)]
        return [
            Monitor(
                self._prior,
                columns if common else 1,
                kinds=kinds,
                segment=self._segment,
                max_hypotheses=settings["hypotheses"],
                detailed=self.every,
                **{name: settings[name] for name in ("lags", "log", "warm_up", "one_in")},
            )
            for kinds in each
        ]

    def _part(
        self, values: tuple[float, ...], index: int, monitors: Sequence[Monitor]
    ) -> tuple[float, ...]:
        """The values that a monitor observes."""
        return values if len(monitors) == 1 else (values[index],)

    def _records(
        self, key: str, index: int, monitor: Monitor, report: Report
    ) -> list[dict[str, Any]]:
        """What an observation has to report."""
        whose = self._whose(key, index)
        base = {
            **whose,
            "position": report.position,
            "time": report.label,
            "value": self._shown(report.values),
        }
        records: list[dict[str, Any]] = []
        if report.chosen and monitor.models:
            records.append(self._model(key, index, monitor, report.position))
        if self.every:
            run = report.run
            assert run is not None
            records.append(
                {
                    "event": "observation",
                    **base,
                    "switch_probability": round(report.probability, _DIGITS),
                    "run_length": run.mode,
                    "run_length_mean": round(run.mean, 2),
                    "surprise": round(report.surprise, 3) + 0.0,  # never -0.0
                }
            )
        if report.outlier:
            records.append({"event": "outlier", **base})
        if report.change is not None:
            records.append({"event": "alarm", **base, **self._change(report.change, report.began)})
        return records

    def _change(self, change: Change, labels: tuple[str, str, str] | None) -> dict[str, Any]:
        began, first, last = labels or ("", "", "")
        return {
            "probability": round(change.probability, 2 * _DIGITS),
            "began": change.began,
            "began_time": began,
            "interval": list(change.interval),
            "interval_times": [first, last],
            "level_before": self._level(change.level_before),
            "level_after": self._level(change.level_after),
        }

    def _whose(self, key: str, index: int) -> dict[str, Any]:
        """The key and the metric, where there are several."""
        each = len(self.lines.columns) > 1 and self.settings["alarms"] == "each"
        return {
            **({"key": key} if self.lines.key is not None else {}),
            **({"metric": self.lines.names[index]} if each else {}),
        }

    def _shown(self, values: tuple[float, ...]) -> Any:
        if len(values) == len(self.lines.columns):
            return self.lines.shown(values)
        return values[0] if values[0] == values[0] else None

    def _level(self, level: Any) -> Any:
        """A level for JSON: a number, or the probability of each symbol, or one of each column."""
        numbers = [float(f"{x:.6g}") if np.isfinite(x) else None for x in np.ravel(level)]
        if self._segment is not None:
            return dict(
                zip(self.lines.labels or map(str, range(len(numbers))), numbers, strict=True)
            )
        return (
            numbers[0] if len(numbers) == 1 else dict(zip(self.lines.names, numbers, strict=True))
        )

    def _model(self, key: str, index: int, monitor: Monitor, position: int) -> dict[str, Any]:
        """The record of the models of a monitor, which the operator is told, too."""
        whose, texts = self._whose(key, index), [str(model) for model in monitor.models]
        if sum(map(len, self.monitors.values())) <= _FEW:
            self.warn(
                f"{''.join(f'{name}: ' for name in whose.values())}{'; '.join(texts)}; set to one "
                f"false alarm in {monitor.alarm.one_in:,.0f} observations"
            )
        model = texts[0] if len(texts) == 1 else texts
        one_in = monitor.alarm.one_in
        return {"event": "model", **whose, "position": position, "model": model, "one_in": one_in}


def begin(
    name: str, first: Sequence[Line], settings: Mapping[str, Any], **rest: Any
) -> tuple[Watcher, int]:
    """The watcher of a file with these first lines, and how many of them are its header."""
    kinds = list(settings["segment"])
    odd = next((kind for kind in kinds if kind not in KINDS), None)
    if odd is not None:
        raise ValueError(f"segment must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {odd!r}")
    symbols = kinds == ["symbols"]
    told = settings["alphabet"] is not None or settings["labels"] is not None
    given = {name: settings[name] for name in ("time", "alphabet", "labels", "key")}
    with locating(name):
        texts = [line.text for line in first]
        real = bool(kinds) and not symbols
        lines, header = guess_format(texts, column=settings["value"], real=real, **given)
        if symbols and lines.alphabet is None:
            raise ValueError("symbols other than 0 and 1 need --alphabet or --labels")
        if lines.alphabet is not None and not (symbols or told or lines.labels):
            lines = replace(lines, alphabet=None)  # bits so far, which the models choose
        skipped = 0
        if header:
            skipped = next(i for i, text in enumerate(texts) if text.strip()) + 1
            lines = replace(lines, header=texts[skipped - 1].strip())
            if skipped == len(texts):
                raise ValueError("no observation follows the header in the first lines (--warm-up)")
        return Watcher(lines, settings, **rest), skipped


def _make_prior(settings: Mapping[str, Any]) -> Prior:
    """Geometric, unless the prior or a parameter of another one is among the settings."""
    name = str(options.prior_name(settings["prior"], settings, "geometric"))
    chosen = {key: value for key, value in settings.items() if value is not None}
    given = {**settings, **_PRIOR_DEFAULTS.get(name, {}), **chosen}
    if name == "uniform" and given["longest"] is None:
        raise ValueError("prior 'uniform' needs longest for a stream: give --longest")
    return options.make_prior(name, 1, given)


def _symbols(lines: LineFormat, settings: Mapping[str, Any]) -> Segment | None:
    """The segment model of symbols; None for numbers."""
    if lines.alphabet is not None:
        return options.segment_model(settings, lines.alphabet)
    odd = next((each for each in options.SEGMENT if settings[each] is not None), None)
    if odd is not None:
        raise ValueError(f"{odd} is for symbols, got {settings[odd]} for real values")
    return None


def save_watcher(path: Path, watcher: Watcher, place: Mapping[str, Any] | None) -> None:
    """Write the state of a watcher to a file, atomically; reading resumes at `place`."""
    series: list[Any] = []
    arrays: dict[str, np.ndarray] = {}
    for key, monitors in watcher.monitors.items():
        for about, content in (monitor.state() for monitor in monitors):
            arrays[str(len(series))] = np.frombuffer(content, np.uint8)
            series.append([key, about])
    card = {
        "kind": _KIND,
        FORMAT: NEWEST,
        "settings": _as_json(watcher.settings),
        "lines": watcher.lines.to_json(),
        "place": place,
        "skipped": watcher.skipped,
        "series": series,
        "switchpoint": version("switchpoint"),
    }
    write_tensors(path, card, arrays, "state")


def load_watcher(path: Path, settings: Mapping[str, Any], **rest: Any) -> Watcher:
    """The watcher that was saved, which must have been created with these settings."""
    name = name_of(path)
    try:
        card, arrays = read_tensors(path, _KIND)
        check_format(card, name)
        for option, value in _as_json(settings).items():
            saved = card["settings"].get(option)
            if saved != value:
                raise ValueError(
                    f"{name} was saved with {option.replace('_', '-')} {saved}, got {value}: give "
                    "the same options, or another --state"
                )
        watcher = Watcher(
            LineFormat.from_json(card["lines"]),
            settings,
            skipped=card["skipped"],
            place=card["place"],
            **rest,
        )
        counts: dict[str, int] = {}
        for place, (key, about) in enumerate(card["series"]):
            index = counts[key] = counts.get(key, -1) + 1
            watcher._monitors(key)[index].restore(about, arrays[str(place)].tobytes())
    except DamagedError as error:
        raise ValueError(f"{name} is not a state of switchpoint watch: {error}") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{name} is not a state of switchpoint watch: {error!r}") from error
    return watcher


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: str(v) if isinstance(v, Path) else v for name, v in settings.items()}
    return dict(json.loads(json.dumps(plain)))
