"""`switchpoint watch`: a stream as it comes, with alarms where it changes."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from switchpoint import _checks
from switchpoint._files import check_writable
from switchpoint._text import STDIN, name_of
from switchpoint.cli import config_options as options
from switchpoint.cli.json_lines import JsonLines
from switchpoint.cli.process import SIGNALS
from switchpoint.cli.reader import Line, LineReader
from switchpoint.cli.watcher import KINDS, Watcher, begin, load_watcher, save_watcher

_KINDS = " or ".join([", ".join(KINDS[:-1]), KINDS[-1]])
_BATCH = 1000  # lines, after which their records are written, and signals are handled
_SAVE_SECONDS = 10.0
_PATIENCE = 1.0  # seconds for which a reader may take nothing when the command is interrupted


@options.with_options(
    *options.PRIOR,
    *options.SEGMENT,
    alphabet="The number of symbols.",
    depth="ptw: the depth of its tree; 40 if not given.",
    longest="uniform: the longest segment.",
)
def watch(
    file: Path = typer.Argument(
        STDIN,
        metavar="FILE",
        help="A text with one observation per line: a number, a symbol, a row of a table or a JSON "
        "object. An empty line, NA or nan is a missing observation. - is standard input.",
    ),
    follow: bool = typer.Option(
        False,
        "--follow",
        help="Wait for more lines at the end of FILE, or of the file that replaces it, until "
        "interrupted.",
    ),
    state: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Save the state to this file, and resume from it if it exists, skipping the lines of "
        "the input file that it includes.",
    ),
    save_every: int = typer.Option(
        10_000,
        help="Save the state after this many observations; also every "
        f"{_SAVE_SECONDS:g} seconds, and at the end.",
    ),
    alarm: float | None = typer.Option(
        None,
        metavar="P",
        help="Write only alarms: observations at which the probability of a recent switch "
        "reaches P.",
    ),
    within: int = typer.Option(50, help="How many observations back a switch counts as recent."),
    segment: list[str] = typer.Option(
        [],
        help=f"The kind of segments: {_KINDS}. If not given, symbols if the first lines are 0 or "
        "1, or words, and otherwise level. One for all columns, or repeated for each.",
    ),
    column: list[str] = typer.Option(
        [],
        help="The column of the values in a table, by name or number from 0, or their field in "
        "JSON objects; repeat it for several series with common switches.",
    ),
    time_column: str | None = typer.Option(
        None,
        "--time",
        help="The time column, or none. If not given, the only column of dates, or one that is "
        "called date, time, year or similar.",
    ),
    labels: str | None = options.LABELS,
    warm_up: int = typer.Option(
        50, help="How many initial lines determine the kind and the scale of the values."
    ),
    hypotheses: int = options.HYPOTHESES,
    prior: str | None = typer.Option(
        None, help=f"{options.PRIOR_HELP}; if not given, geometric with hazard 0.005."
    ),
    **given: Any,
) -> None:
    """Monitor a stream, and report each observation or each change at once.

    Writes a line of JSON for each observation, or with --alarm for each alarm: position, time,
    value, the probability of a recent switch, the length of the current segment and the code
    length so far. With --state the next run resumes where this one ended: no line of a file is
    lost or counted twice, even if the process was killed.

    For example:

        sensor | switchpoint watch --alarm 0.9
        switchpoint watch --follow load.txt --state load.state --alarm 0.9
        switchpoint watch log.csv --column latency
    """
    settings = {
        "prior": prior,
        "hypotheses": hypotheses,
        "segment": segment,
        "column": column,
        "time": time_column,
        "labels": labels,
        **given,
    }
    _checks.positive_int("--within", within)
    _checks.positive_int("--warm-up", warm_up)
    _checks.positive_int("--save-every", save_every)
    if alarm is not None:
        _checks.probability("--alarm", alarm)
    watcher = None
    if state is not None:
        check_writable(state, "state")
        watcher = load_watcher(state, settings) if state.exists() else None
    lines = JsonLines()
    with LineReader(file, follow, None if watcher is None else watcher.place) as reader:
        batches = reader.batches(min(_BATCH, save_every))
        if watcher is None:
            symbols = (labels is not None or given["alphabet"] is not None) and not column
            needed = 1 if symbols else warm_up
            first = _first_lines(batches, needed)
            if not first:
                return
            watcher, skipped = begin(reader.name, first[:needed], settings)
            batches = itertools.chain([first[skipped:]], batches)
        watcher.within, watcher.alarm = within, alarm
        saver = _Saver(watcher, reader, state, save_every)
        try:
            for batch in batches:
                with SIGNALS.deferred():  # an observation is never half absorbed
                    for line in batch:
                        record = watcher.observe(line, reader.name)
                        if record is not None:
                            lines.add(record)
                lines.flush()
                saver.save_if_due()
        except (KeyboardInterrupt, ValueError, OSError) as stop:
            if isinstance(stop, KeyboardInterrupt):
                stop.add_note(_farewell(watcher, state))
            try:
                if not isinstance(stop, OSError):
                    lines.flush(_PATIENCE)
            finally:
                saver.save()
            raise
        saver.save()


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
    return f"{SIGNALS.description} after {watcher.stream.position} observations{saved}"


class _Saver:
    """Saves the state of a watcher periodically."""

    def __init__(self, watcher: Watcher, reader: LineReader, path: Path | None, every: int) -> None:
        self._watcher, self._reader, self._path, self._every = watcher, reader, path, every
        self._position, self._time = watcher.stream.position, time.monotonic()
        self._files = reader.files

    def save_if_due(self) -> None:
        """Save after enough observations, after enough time, or at the end of a file."""
        late = time.monotonic() - self._time >= _SAVE_SECONDS
        late |= self._reader.files != self._files  # the lines before cannot be read again
        if late or self._watcher.stream.position - self._position >= self._every:
            self.save()

    def save(self) -> None:
        """Save the state unless it is saved already."""
        self._time = time.monotonic()
        state = self._watcher.stream.position, self._reader.files
        if self._path is not None and state != (self._position, self._files):
            place = self._reader.place_after(self._watcher.last)
            save_watcher(self._path, self._watcher, place)
        self._position, self._files = state
