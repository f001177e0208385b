"""Wall time of work that may be stopped and gone on with."""

import time
from pathlib import Path

from switchpoint._files import replacing
from switchpoint.experiments.watching import Watcher

_SECONDS = 5.0  # between two notes of the time: what a killed process forgets


class Stopwatch(Watcher):
    """Passes on what it is told, and notes in a file how long that went on in all."""

    def __init__(self, path: Path, watcher: Watcher) -> None:
        self._path = path
        self._watcher = watcher
        self._seconds = float(path.read_text()) if path.exists() else 0.0
        self._noted = time.monotonic()
        self._told = False

    def doing(self, text: str, done: float) -> None:
        self._told = True
        self._watcher.doing(text, done)
        if time.monotonic() - self._noted > _SECONDS:
            self._note()

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def stop(self) -> float:
        """The seconds until now, those of earlier processes too.

        Where nothing was told, nothing was done: all had been done before.
        """
        if self._told:
            self._note()
        return self._seconds

    def _note(self) -> None:
        now = time.monotonic()
        self._seconds += now - self._noted
        self._noted = now
        with replacing(self._path) as file:
            file.write(f"{self._seconds:.3f}\n".encode())
