"""`switchpoint watch`: a stream as it comes, with alarms where it changes."""

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from switchpoint import _checks
from switchpoint._files import check_writable
from switchpoint._text import STDIN, name_of, printable
from switchpoint.cli import config_options as options
from switchpoint.cli.json_lines import JsonLines
from switchpoint.cli.process import SIGNALS
from switchpoint.cli.reader import Line, LineReader
from switchpoint.cli.watcher import (
    ALARMS,
    KINDS,
    ON_ERROR,
    Watcher,
    begin,
    load_watcher,
    save_watcher,
)

_KINDS = " or ".join([", ".join(KINDS[:-1]), KINDS[-1]])
_BATCH = 1000  # lines, after which their records are written, and signals are handled
_SAVE_SECONDS = 10.0
_PATIENCE = 1.0  # seconds for which a reader may take nothing when the command is interrupted
_SERVICE: Any = {"rich_help_panel": "As a service"}
_MODEL: Any = {"rich_help_panel": "The model (by default, chosen by the first observations)"}


@options.with_options(
    *options.PRIOR,
    *options.SEGMENT,
    alphabet="The number of symbols.",
    depth="ptw: the depth of its tree; by default, 40.",
    longest="uniform: the longest segment.",
)
def watch(
    file: Path = typer.Argument(
        STDIN,
        metavar="FILE",
        help="A text with one observation per line: a number, a symbol, a row of a table or a JSON "
        "object. An empty line, NA or nan is a missing observation. - is standard input.",
    ),
    one_in: float = typer.Option(
        100_000,
        metavar="N",
        help="Set the alarm so that a stream without changes raises about one in N observations.",
    ),
    every: bool = typer.Option(
        False, "--all", help="Write a record for every observation, not only alarms and outliers."
    ),
    follow: bool = typer.Option(
        False,
        "--follow",
        help="Wait for FILE if it does not exist, and for more lines at its end, or at the end of "
        "the file that replaces it, until interrupted.",
    ),
    value: list[str] = typer.Option(
        [],
        "--value",
        "--column",
        metavar="FIELD",
        help="The field of the values in JSON objects, or their column in a table, by name or "
        "number from 0; repeat it for several series.",
    ),
    time_field: str | None = typer.Option(
        None,
        "--time",
        metavar="FIELD",
        help="The field or column of the time, or none. By default, the only column of dates, or "
        "one that is called date, time, year or similar.",
    ),
    key: str | None = typer.Option(
        None,
        metavar="FIELD",
        help="The field or column that says which series a line is of: each has a model and alarms "
        "of its own.",
    ),
    alarms: str = typer.Option(
        "each",
        metavar="|".join(ALARMS),
        help="Of several values in a line: alarms for each of them, or for common changes.",
    ),
    state: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Save the state to this file, and resume from it if it exists, skipping the lines of "
        "the input file that it includes.",
        **_SERVICE,
    ),
    save_every: int = typer.Option(
        10_000,
        help="Save the state after this many observations; also every "
        f"{_SAVE_SECONDS:g} seconds, and at the end.",
        **_SERVICE,
    ),
    on_error: str = typer.Option(
        "skip",
        metavar="|".join(ON_ERROR),
        help="What to do with a line that is no observation: skip it and report how many there "
        "were, take it as missing, or stop.",
        **_SERVICE,
    ),
    service: bool = typer.Option(
        False,
        "--service",
        help="End with status 0 at SIGTERM, and save the state and reopen FILE at SIGHUP.",
        **_SERVICE,
    ),
    segment: list[str] = typer.Option(
        [], help=f"The kind of segments: {_KINDS}; one for all columns, or for each.", **_MODEL
    ),
    lags: int | None = typer.Option(
        None, help="The number of previous values that a value depends on.", **_MODEL
    ),
    log: bool | None = typer.Option(
        None, "--log/--no-log", help="Whether to watch logarithms of the values.", **_MODEL
    ),
    history: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Choose the model by the lines of this file, and learn the level from them, instead "
        "of the first observations.",
        **_MODEL,
    ),
    warm_up: int = typer.Option(
        100, help="The number of first observations that choose the model.", **_MODEL
    ),
    labels: str | None = options.LABELS,
    hypotheses: int = options.HYPOTHESES,
    prior: str | None = typer.Option(
        None, help=f"{options.PRIOR_HELP}; by default, geometric with hazard 0.005."
    ),
    **given: Any,
) -> None:
    """Monitor a stream, and report its changes at once.

    Writes a line of JSON for each alarm: position and time, where the change probably began, with
    an interval, and the levels before and after it; and one for each outlier, a single value far
    from the others. The first observations decide what is normal. With --state the next run
    resumes where this one ended: no line of a file is lost or counted twice, even if the process
    was killed.

    For example:

        sensor | switchpoint watch
        switchpoint watch --follow load.txt --state load.state --service
        switchpoint watch log.jsonl --value latency --time at --key host --one-in 1e6
    """
    if service:
        SIGNALS.serve()
    settings = {
        "prior": prior,
        "hypotheses": hypotheses,
        "segment": segment,
        "value": value,
        "time": time_field,
        "key": key,
        "alarms": alarms,
        "labels": labels,
        "lags": lags,
        "log": log,
        "warm_up": _checks.positive_int("--warm-up", warm_up),
        "one_in": one_in,
        **given,
    }
    _checks.positive_int("--save-every", save_every)
    for name, choice, choices in (("alarms", alarms, ALARMS), ("on-error", on_error, ON_ERROR)):
        if choice not in choices:
            raise ValueError(f"--{name} must be one of {', '.join(choices)}, got {choice!r}")
    running: dict[str, Any] = {"every": every, "on_error": on_error, "warn": _warn}
    watcher = None
    if state is not None:
        check_writable(state, "state")
        watcher = load_watcher(state, settings, **running) if state.exists() else None
    lines = JsonLines()
    with LineReader(file, follow, None if watcher is None else watcher.place, _warn) as reader:
        batches = reader.batches(min(_BATCH, save_every))
        if watcher is None and history is not None:
            with LineReader(history, False) as past:
                before = list(itertools.chain.from_iterable(past.batches(_BATCH)))
                watcher, skipped = begin(past.name, before, settings, **running)
                for record in watcher.learn(before[skipped:], past.name):
                    lines.add(record)
        if watcher is None:
            symbols = (labels is not None or given["alphabet"] is not None) and not value
            needed = 1 if symbols else warm_up
            first = _first_lines(batches, needed)
            if not first:
                return
            watcher, skipped = begin(reader.name, first[:needed], settings, **running)
            batches = itertools.chain([first[skipped:]], batches)
        saver = _Saver(watcher, reader, state, save_every)
        try:
            for batch in batches:
                with SIGNALS.deferred():  # an observation is never half absorbed
                    for line in batch:
                        for record in watcher.observe(line, reader.name):
                            lines.add(record)
                lines.flush()
                saver.save_if_due()
            for record in watcher.finish(reader.name):
                lines.add(record)
            lines.flush()
        except (KeyboardInterrupt, ValueError, OSError) as stop:
            if isinstance(stop, KeyboardInterrupt):
                stop.add_note(_farewell(watcher, state))
            try:
                if isinstance(stop, ValueError):
                    for record in watcher.finish(reader.name):
                        lines.add(record)
                if not isinstance(stop, OSError):
                    lines.flush(_PATIENCE)
            finally:
                saver.save()
            raise
        saver.save()


def _warn(message: str) -> None:
    """Tell the operator something."""
    print(f"switchpoint: {printable(message)}", file=sys.stderr, flush=True)


def _first_lines(batches: Iterator[list[Line]], count: int) -> list[Line]:
    """The first lines: at least `count`, unless there are fewer."""
    first: list[Line] = []
    for batch in batches:
        first += batch
        if len(first) >= count:
            break
    return first


def _farewell(watcher: Watcher, state: Path | None) -> str:
    saved = "" if state is None else f"; the state is in {name_of(state)}"
    skipped = f", {watcher.skipped} lines skipped" if watcher.skipped else ""
    return f"{SIGNALS.description} after {watcher.position} observations{skipped}{saved}"


class _Saver:
    """Saves the state of a watcher periodically."""

    def __init__(self, watcher: Watcher, reader: LineReader, path: Path | None, every: int) -> None:
        self._watcher, self._reader, self._path, self._every = watcher, reader, path, every
        self._line, self._time = watcher.last, time.monotonic()
        self._files = reader.files

    def save_if_due(self) -> None:
        """Save after enough lines or time, at the end of a file, or if a service is told to."""
        due = time.monotonic() - self._time >= _SAVE_SECONDS or SIGNALS.hangup
        due |= self._reader.files != self._files  # the lines before cannot be read again
        line, saved = self._watcher.last, self._line
        if line is not None and saved is not None and line.file == saved.file:
            due |= line.number - saved.number >= self._every
        else:
            due |= line is not None and line.number >= self._every
        if SIGNALS.hangup:
            SIGNALS.hangup = False
            self._reader.reopen()
        if due:
            self.save()

    def save(self) -> None:
        """Save the state unless it is saved already."""
        self._time = time.monotonic()
        state = self._watcher.last, self._reader.files
        if self._path is not None and state != (self._line, self._files):
            place = self._reader.place_after(self._watcher.last)
            save_watcher(self._path, self._watcher, place)
        self._line, self._files = state
