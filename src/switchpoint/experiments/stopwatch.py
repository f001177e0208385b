"""Wall time of work that may be stopped and gone on with."""

import time
from collections.abc import Callable
from pathlib import Path

from switchpoint._files import read_json, write_json
from switchpoint.experiments.watching import Watcher

_SECONDS = 1.0  # between two notes of the time: what a killed process forgets


class Stopwatch(Watcher):
    """Passes on what it is told, and notes in a file how long that went on in all.

    `training` gives the seconds that this process has spent on training, which are counted
    apart. Time in a file that names other `work` is not counted.
    """

    def __init__(
        self,
        path: Path,
        watcher: Watcher,
        work: str = "",
        training: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._path = path
        self._watcher = watcher
        self._work = work
        self._training = training
        self.seconds = 0.0
        """Of earlier processes and of this one, without training."""
        self.training_seconds = 0.0
        if path.exists():
            self._go_on()
        self._noted, self._trained = time.monotonic(), training()
        self._told = False

    def begin(self, study: str) -> None:
        self._told = True
        self._watcher.begin(study)

    def doing(self, text: str, done: float) -> None:
        self._told = True
        self._watcher.doing(text, done)
        if time.monotonic() - self._noted > _SECONDS:
            self._note()

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def end(self, study: str, seconds: float) -> None:
        self._watcher.end(study, seconds)

    def stop(self) -> float:
        """The seconds until now, those of earlier processes too.

        Where nothing was told, nothing was done: all had been done before.
        """
        if self._told:
            self._note()
        return self.seconds

    def _go_on(self) -> None:
        try:
            kept = read_json(self._path, work=str, seconds=float, training_seconds=float)
        except ValueError as error:
            self.note(f"{error}; the time that was taken before is not counted")
            return
        if kept["work"] == self._work:
            self.seconds, self.training_seconds = kept["seconds"], kept["training_seconds"]

    def _note(self) -> None:
        now, trained = time.monotonic(), self._training()
        self.seconds += now - self._noted - (trained - self._trained)
        self.training_seconds += trained - self._trained
        self._noted, self._trained = now, trained
        self._path.parent.mkdir(parents=True, exist_ok=True)
        times = {"seconds": self.seconds, "training_seconds": self.training_seconds}
        write_json(self._path, {"work": self._work, **times})
