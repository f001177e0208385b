"""What `switchpoint reproduce` shows while it works: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from switchpoint.experiments import Watcher
from switchpoint.training.progress import TextStream

_PATIENCE = 10.0  # seconds between plain lines about the same thing


class Clock:
    """How much time is left, from what the studies were expected to take and have taken."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._left = dict(expected)
        self._over = 0.0  # the expectation for what is over
        self._begun = time.monotonic()

    def end(self, study: str) -> None:
        """A study is over."""
        self._over += self._left.pop(study, 0.0)

    def left(self, study: str) -> float:
        """The seconds that are left while `study` is going on."""
        elapsed = time.monotonic() - self._begun
        ahead = sum(self._left.values())
        if self._over == 0:
            return max(ahead - elapsed, 0.0)
        pace = elapsed / (self._over + self._left.get(study, 0.0) / 2)
        return pace * max(ahead - self._left.get(study, 0.0) / 2, 0.0)


class PlainWatcher(Watcher):
    """Prints a line when something new begins, and now and then while it lasts."""

    def __init__(self, stream: TextStream, expected: Mapping[str, float]) -> None:
        self._stream = stream
        self._total = len(expected)
        self._count = 0
        self._clock = Clock(expected)
        self._study = ""
        self._text = ""
        self._said = 0.0

    def begin(self, study: str) -> None:
        self._count += 1
        self._study = study
        self._say(f"study {self._count} of {self._total}, about {self._left()} left")

    def doing(self, text: str, done: float) -> None:
        training = text.startswith("training")
        if (training and text != self._text) or time.monotonic() - self._said > _PATIENCE:
            self._say(f"{text}, {done:.0%}")
        self._text = text

    def note(self, text: str) -> None:
        self._say(text)

    def end(self, study: str, seconds: float) -> None:
        self._clock.end(study)
        self._say(f"done in {duration(seconds)}")
        self._study = ""  # what is noted next is not about it

    def _left(self) -> str:
        return duration(self._clock.left(self._study))

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._stream.write(f"{self._study}: {text}\n" if self._study else f"{text}\n")
        self._stream.flush()


class LiveWatcher(Watcher):
    """Two bars: all studies with the time that is left, and what is being done now."""

    def __init__(self, console: Console, expected: Mapping[str, float]) -> None:
        self._clock = Clock(expected)
        self._study = ""
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

    def begin(self, study: str) -> None:
        self._study = study
        self._show_time()

    def doing(self, text: str, done: float) -> None:
        self.bars.update(self._now, description=text, completed=done)
        self._show_time()

    def note(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False)

    def end(self, study: str, seconds: float) -> None:
        self._clock.end(study)
        self.bars.advance(self._all)
        self.note(f"{study}: done in {duration(seconds)}")

    def _show_time(self) -> None:
        left = duration(self._clock.left(self._study))
        self.bars.update(self._all, description=self._study, left=f"about {left} left")


@contextmanager
def watcher_for(stream: TextStream, expected: Mapping[str, float]) -> Iterator[Watcher]:
    """A live display where `stream` is a terminal, else plain lines.

    `expected` are the studies ahead, with the seconds that each should take.
    """
    console = Console(file=cast(IO[str], stream))
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainWatcher(stream, expected)
        return
    watcher = LiveWatcher(console, expected)
    with watcher.bars:
        yield watcher


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
