"""Progress on a terminal, in a notebook, or as plain lines."""

import importlib.util
import io
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TextIO, TypeAlias, cast

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from switchpoint._numbers import duration
from switchpoint._progress import Progress
from switchpoint._text import printable

TextStream: TypeAlias = TextIO | io.TextIOBase
"""Standard output and error, a text file, or an `io.StringIO`."""


class LineProgress(Progress):
    """Prints notes at once, and the current task every few seconds; no control characters."""

    def __init__(self, stream: TextStream, seconds: float = 10.0) -> None:
        self._stream, self._seconds = stream, seconds
        self._first: tuple[float, float] | None = None  # the time and the share of the first update
        self._printed = time.monotonic()

    def update(self, text: str, done: float) -> None:
        now = time.monotonic()
        begun, share = self._first = self._first or (now, done)
        if now - self._printed >= self._seconds:
            left = (now - begun) * (1 - done) / (done - share) if done > share else math.nan
            self.note(f"{text}, {done:.0%}" + ("" if left != left else f", {duration(left)} left"))

    def note(self, text: str) -> None:
        self._printed = time.monotonic()
        encoding = self._stream.encoding or "utf-8"
        line = "".join(c if c.isprintable() else " " for c in text)
        # A stream that cannot encode ± must not end the run.
        print(line.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)


class BarProgress(Progress):
    """A bar with the current task and the time left; notes are printed above it."""

    def __init__(self, console: Console) -> None:
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._task = self.bar.add_task("preparing", total=1.0)

    def update(self, text: str, done: float) -> None:
        self.bar.update(self._task, description=text, completed=done)

    def note(self, text: str) -> None:
        self.bar.console.print(Text(printable(text)))


@contextmanager
def show_progress(stream: TextStream | None, lines: bool = True) -> Iterator[Progress]:
    """A bar if `stream` is a terminal that can show one; elsewhere plain lines, or nothing.

    None is a notebook, which shows a bar if it has widgets.
    """
    console = Console(file=cast(IO[str] | None, stream))
    if stream is None:
        able = importlib.util.find_spec("ipywidgets") is not None
    else:
        able = stream.isatty() and not (console.is_dumb_terminal or console.options.ascii_only)
    if able:
        progress = BarProgress(console)
        with progress.bar:
            yield progress
    else:
        yield LineProgress(stream or sys.stdout) if lines else Progress()
