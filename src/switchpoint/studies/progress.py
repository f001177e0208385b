"""How the studies report their progress."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from switchpoint._files import read_json, write_json
from switchpoint.training import EvalRecord, Member
from switchpoint.training.progress import Progress

_SECONDS = 1.0  # between two notes of the elapsed time: what a killed process loses


class ProgressReporter:
    """Receives the progress of the studies; this one shows nothing, and is there to be extended."""

    def begin(self, study: str) -> None:
        """A study starts."""

    def update(self, text: str, done: float) -> None:
        """The current task, and the share of it that is done, from 0 to 1."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def end(self, study: str, seconds: float) -> None:
        """The study is complete, and its result is saved."""


class TrainingProgress(Progress):
    """Passes the progress of a training run to a reporter."""

    def __init__(
        self, reporter: ProgressReporter, run: str, elapsed: Callable[[], None] = lambda: None
    ) -> None:
        self._reporter = reporter
        self._run = run
        self._elapsed = elapsed
        self._steps = 1

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        del members
        self._steps = last_step
        self.tick(first_step, 0.0)

    def note(self, text: str) -> None:
        self._reporter.note(f"{self._run}: {text}")

    def tick(self, step: int, steps_per_second: float) -> None:
        del steps_per_second
        self._elapsed()
        self._reporter.update(f"training {self._run}", step / self._steps)

    def report(self, record: EvalRecord) -> None:
        del record
        self._elapsed()

    def close(self) -> None:
        self._elapsed()


class Stopwatch(ProgressReporter):
    """Passes progress on, and keeps the elapsed time in a file, across processes that are killed.

    `training` returns the seconds of training in this process, which are counted separately. A
    file that was written for other `work` is ignored.
    """

    def __init__(
        self,
        path: Path,
        reporter: ProgressReporter,
        work: str = "",
        training: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._path, self._work = path, work
        self._training = training
        self.seconds = self.training_seconds = 0.0
        self.note, self.end = reporter.note, reporter.end  # type: ignore[method-assign]
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

    def begin(self, study: str) -> None:
        self._used = True
        self._reporter.begin(study)

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
