"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from rich import progress as bars
from rich.console import Console

from switchpoint._progress import Progress
from switchpoint.training.progress import TextStream

_LINE_SECONDS = 10.0  # between plain lines


class LineProgress(Progress):
    """Prints notes at once, and the current task every few seconds."""

    def __init__(self, stream: TextStream, seconds: float = _LINE_SECONDS) -> None:
        self._stream, self._seconds = stream, seconds
        self._printed = time.monotonic()

    def update(self, text: str, done: float) -> None:
        if time.monotonic() - self._printed > self._seconds:
            self.note(f"{text}, {done:.0%}")

    def note(self, text: str) -> None:
        self._printed = time.monotonic()
        self._stream.write(f"{text}\n")
        self._stream.flush()


class BarProgress(Progress):
    """One bar with the current task and the time left; notes are printed above it."""

    def __init__(self, console: Console) -> None:
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._task = self.bar.add_task("", total=1.0)

    def update(self, text: str, done: float) -> None:
        self.bar.update(self._task, description=text, completed=done)

    def note(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)


@contextmanager
def show_progress(stream: TextStream, lines: bool = True) -> Iterator[Progress]:
    """Show progress on `stream`: a bar on a terminal, elsewhere plain lines, or nothing."""
    console = Console(file=cast(IO[str], stream))
    if console.is_terminal and not console.is_dumb_terminal:
        progress = BarProgress(console)
        with progress.bar:
            yield progress
    else:
        yield LineProgress(stream) if lines else Progress()
