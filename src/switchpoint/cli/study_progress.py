"""The progress of `switchpoint reproduce`: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from switchpoint._numbers import duration
from switchpoint.paper import ProgressReporter
from switchpoint.training.progress import TextStream

_PATIENCE = 10.0  # seconds between plain lines about the same task


class Clock(ProgressReporter):
    """Estimates the time left, from what the studies were expected to take and have taken."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._ahead = dict(expected)
        self._over = 0.0  # the expectation for what is over
        self._begun = time.monotonic()
        self.study = ""

    def begin(self, study: str) -> None:
        self.study = study

    def end(self, study: str, seconds: float) -> None:
        del seconds
        self._over += self._ahead.pop(study, 0.0)
        self.study = ""

    def left(self) -> str:
        """The time left while a study runs, in words."""
        elapsed, own = time.monotonic() - self._begun, self._ahead.get(self.study, 0.0)
        ahead = sum(self._ahead.values())
        seconds = ahead - elapsed
        if self._over:
            seconds = elapsed / (self._over + own / 2) * (ahead - own / 2)
        return f"about {duration(round(max(seconds, 0.0)))} left"


class PlainReporter(Clock):
    """Prints a line when something new begins, and now and then while it lasts."""

    def __init__(self, stream: TextStream, expected: Mapping[str, float]) -> None:
        super().__init__(expected)
        self._stream = stream
        self._total, self._count = len(expected), 0
        self._text, self._said = "", 0.0

    def begin(self, study: str) -> None:
        super().begin(study)
        self._count += 1
        self.note(f"study {self._count} of {self._total}, {self.left()}")

    def update(self, text: str, done: float) -> None:
        training = text.startswith("training")
        if (training and text != self._text) or time.monotonic() - self._said > _PATIENCE:
            self.note(f"{text}, {done:.0%}")
        self._text = text

    def note(self, text: str) -> None:
        self._said = time.monotonic()
        self._stream.write(f"{self.study}: {text}\n" if self.study else f"{text}\n")
        self._stream.flush()

    def end(self, study: str, seconds: float) -> None:
        self.note(f"done in {duration(seconds)}")
        super().end(study, seconds)


class LiveReporter(Clock):
    """Two bars: all studies with the time left, and the current task."""

    def __init__(self, console: Console, expected: Mapping[str, float]) -> None:
        super().__init__(expected)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._all = self.bars.add_task("studies", total=len(expected), left="")
        self._now = self.bars.add_task("", total=1.0, left="")

    def update(self, text: str, done: float) -> None:
        self.bars.update(self._now, description=text, completed=done)
        self.bars.update(self._all, description=self.study, left=self.left())

    def note(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False)

    def end(self, study: str, seconds: float) -> None:
        super().end(study, seconds)
        self.bars.advance(self._all)
        self.note(f"{study}: done in {duration(seconds)}")


@contextmanager
def reporter_for(stream: TextStream, expected: Mapping[str, float]) -> Iterator[ProgressReporter]:
    """A live display where `stream` is a terminal, else plain lines.

    `expected` are the studies ahead, with the seconds that each should take.
    """
    console = Console(file=cast(IO[str], stream))
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainReporter(stream, expected)
        return
    reporter = LiveReporter(console, expected)
    with reporter.bars:
        yield reporter
