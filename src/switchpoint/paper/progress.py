"""How the studies report their progress."""

import time
from collections.abc import Callable
from pathlib import Path

from switchpoint._files import read_json, write_json
from switchpoint._progress import Progress

_SECONDS = 1.0  # between two notes of the elapsed time: what a killed process loses


class ProgressReporter(Progress):
    """Receives the progress of the studies; this one shows nothing, and is there to be extended."""

    def begin(self, study: str) -> None:
        """A study starts."""

    def end(self, study: str, seconds: float) -> None:
        """The study is complete, and its result is saved."""


class Stopwatch(Progress):
    """Passes progress on, and keeps the elapsed time in a file, across processes that are killed.

    `training` returns the seconds of training in this process, which are counted separately. A
    file that was written for other `work` is ignored.
    """

    def __init__(
        self,
        path: Path,
        reporter: Progress,
        work: str = "",
        training: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._path, self._work = path, work
        self._training = training
        self.seconds = self.training_seconds = 0.0
        self.note = reporter.note  # type: ignore[method-assign]
        self._reporter = reporter
        if path.exists():
            try:
                kept = read_json(path, steps=[{}], work=str, seconds=float, training_seconds=float)
                if kept["work"] == work:
                    self.seconds, self.training_seconds = kept["seconds"], kept["training_seconds"]
            except ValueError as error:
                reporter.note(f"{error}; the time spent before is not counted")
        self._last = time.monotonic(), training()
        self._used = False

    def begin(self) -> None:
        """Count from now on, even if there is no progress to pass on."""
        self._used = True

    def update(self, text: str, done: float) -> None:
        self._used = True
        self._reporter.update(text, done)
        if time.monotonic() - self._last[0] > _SECONDS:
            self.save()

    def save(self) -> None:
        """Write the time to the file, unless nothing was done."""
        if not self._used:
            return
        now, trained = time.monotonic(), self._training()
        training = trained - self._last[1]
        self.seconds += now - self._last[0] - training
        self.training_seconds += training
        self._last = now, trained
        self._path.parent.mkdir(parents=True, exist_ok=True)
        times = {"seconds": self.seconds, "training_seconds": self.training_seconds}
        write_json(self._path, {"format": 1, "work": self._work, **times})
