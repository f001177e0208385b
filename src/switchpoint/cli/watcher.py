"""A stream that is watched: its observations, its alarms, and its position."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint._text import locating, name_of
from switchpoint.cli import config_options as options
from switchpoint.cli.reader import Line, LineFormat, guess_format
from switchpoint.detection.defaults import (
    SEGMENTS,
    SENSITIVITY,
    Column,
    default_column,
    destandardise,
)
from switchpoint.exact.named import exact_predictor
from switchpoint.segments import Independent, Segment
from switchpoint.streams import Stream

KINDS = (*SEGMENTS, "symbols")
"""The kinds of segments of a stream."""

_PRIOR_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "geometric": {"hazard": SENSITIVITY / 1000},
    "ptw": {"depth": 40},
}
_CONSTANT_SCALE = 1e-6  # of a stream that begins with a constant, relative to it
_ROUNDING = 1e-12  # relative variation that is none
_DIGITS = 6
_NOTES = "watch"  # the name of what is saved with the stream


@dataclass
class Watcher:
    """A stream, and the line up to which it has been read."""

    stream: Stream
    lines: LineFormat
    settings: Mapping[str, Any]
    """The options that the stream was created with."""
    within: int = 1
    """The number of last observations in which a switch is reported."""
    alarm: float | None = None
    """The probability of such a switch that raises an alarm."""
    armed: bool = True
    """Whether there may be an alarm: not again before the probability has fallen to half."""
    last: Line | None = None
    """The last line."""
    place: Mapping[str, Any] | None = None
    """The place in the file where reading resumes, if the watcher was loaded."""

    def observe(self, line: Line, name: str) -> dict[str, Any] | None:
        """Absorb a line of the file called `name`, and report on it: only at an alarm, if set.

        A line that is refused leaves everything as it was. The header of a file that follows
        another one is skipped.
        """
        if line.number == 1 and self.lines.header and line.text.strip() == self.lines.header:
            self.last = line
            return None
        with locating(f"{name}, line {line.number}"):
            observation = self.lines.parse(line.text)
            values = observation.values
            log_density = self.stream.update(values[0] if len(values) == 1 else np.array(values))
        self.last = line
        probability = self.stream.change_probability(last=self.within)
        raised = self.alarm is not None and self.armed and probability >= self.alarm
        if self.alarm is not None:
            self.armed = not raised and (self.armed or probability < self.alarm / 2)
            if not raised:
                return None
        run, time = self.stream.run_length, observation.time
        return {
            "position": self.stream.position - 1,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds") if time is None else time,
            "value": self.lines.shown(values),
            "switch_probability": round(probability, _DIGITS),
            "run_length": run.mode,
            "run_length_mean": round(run.mean, 2),
            "surprise": round(-log_density / math.log(2), 3) + 0.0,  # never -0.0
            "code_length": round(self.stream.code_length, 3),
            **({"alarm": True} if raised else {}),
        }


def begin(name: str, first: Sequence[Line], settings: Mapping[str, Any]) -> tuple[Watcher, int]:
    """The watcher of a file with these first lines, and how many of them are its header."""
    kinds = list(settings["segment"])
    odd = next((kind for kind in kinds if kind not in KINDS), None)
    if odd is not None:
        raise ValueError(f"segment must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {odd!r}")
    real = bool(kinds) and kinds != ["symbols"]
    given = {name: settings[name] for name in ("column", "time", "alphabet", "labels")}
    with locating(name):
        texts = [line.text for line in first]
        lines, header = guess_format(texts, real=real, **given)
        if kinds == ["symbols"] and lines.alphabet is None:
            raise ValueError("symbols other than 0 and 1 need --alphabet or --labels")
        skipped = 0
        if header:
            skipped = next(i for i, text in enumerate(texts) if text.strip()) + 1
            lines = replace(lines, header=texts[skipped - 1].strip())
        stream = make_stream(lines, first[skipped:], kinds if real else ["level"], settings)
    return Watcher(stream, lines, settings), skipped


def make_stream(
    lines: LineFormat, first: Sequence[Line], kinds: Sequence[str], settings: Mapping[str, Any]
) -> Stream:
    """The stream of lines of this format, scaled by the first of them.

    `kinds` are those of the columns. Segment lengths are geometric unless the prior, or a parameter
    of another one, is among the settings.
    """
    name = str(options.prior_name(settings["prior"], settings, "geometric"))
    chosen = {key: value for key, value in settings.items() if value is not None}
    given = {**settings, **_PRIOR_DEFAULTS.get(name, {}), **chosen}
    if name == "uniform" and given["longest"] is None:
        raise ValueError("prior 'uniform' needs longest for a stream: give --longest")
    prior, segment = options.make_prior(name, 1, given), _segment(lines, first, kinds, settings)
    return Stream(exact_predictor(name, segment, prior, settings["hypotheses"]))


def _segment(
    lines: LineFormat, first: Sequence[Line], kinds: Sequence[str], given: Mapping[str, Any]
) -> Segment:
    if lines.alphabet is not None:
        return options.segment_model(given, lines.alphabet)
    odd = next((each for each in options.SEGMENT if given[each] is not None), None)
    if odd is not None:
        raise ValueError(f"{odd} is for symbols, got {given[odd]} for real values")
    if len(kinds) not in (1, len(lines.columns)):
        raise ValueError(
            f"segment must be one, or one for each of {len(lines.columns)} columns, got "
            f"{', '.join(kinds)}"
        )
    if not first:
        raise ValueError("no observation follows the header in the first lines (--warm-up)")
    values = np.full((len(first), len(lines.columns)), np.nan)
    problem = ""
    for row, line in enumerate(first):
        try:
            values[row] = lines.parse(line.text).values
        except ValueError as error:  # which is raised when the line is observed, if one is before
            problem = problem or f"line {line.number}: {error}"
    segments = []
    each = list(kinds) * (len(lines.columns) if len(kinds) == 1 else 1)
    for kind, name, column in zip(each, lines.names, values.T, strict=True):
        if np.isnan(column).all():
            raise ValueError(
                problem
                or f"{name} has no value in the first {len(first)} lines, by which it is scaled; "
                "raise --warm-up"
            )
        segments.append(destandardise(_default_column(kind, column)))
    return segments[0] if len(segments) == 1 else Independent(*segments)


def _default_column(kind: str, first: Float[np.ndarray, " time"]) -> Column:
    """The default model of a column that begins with these values.

    A constant shows no scale. A scale above the changes to come would hide them all; one below the
    noise only delays alarms, and a billion times below it by 30 observations. So it is small.
    """
    column, seen = default_column(kind, first), first[~np.isnan(first)]
    if np.allclose(seen, seen[0], rtol=_ROUNDING, atol=0.0):
        column = column._replace(scale=_CONSTANT_SCALE * (abs(float(seen[0])) or 1.0))
    return column


def save_watcher(path: Path, watcher: Watcher, place: Mapping[str, Any] | None) -> None:
    """Write the state of a watcher to a file, atomically; reading resumes at `place`."""
    notes = {
        "settings": _as_json(watcher.settings),
        "lines": watcher.lines.to_json(),
        "armed": watcher.armed,
        "place": place,
    }
    watcher.stream.notes = {_NOTES: notes}
    watcher.stream.save(path)


def load_watcher(path: Path, settings: Mapping[str, Any]) -> Watcher:
    """The watcher that was saved, which must have been created with these settings."""
    stream = Stream.load(path)
    try:
        notes = stream.notes[_NOTES]
        lines, saved = LineFormat.from_json(notes["lines"]), notes["settings"]
        armed, place = notes["armed"], notes["place"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{name_of(path)} is a saved stream, but not of switchpoint watch"
        ) from error
    for name, value in _as_json(settings).items():
        if saved.get(name) != value:
            raise ValueError(
                f"{name_of(path)} was saved with {name} {saved.get(name)}, got {value}: give the "
                "same options, or another --state"
            )
    return Watcher(stream, lines, settings, armed=armed, place=place)


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(v) if isinstance(v, Path) else v for name, v in settings.items()}
