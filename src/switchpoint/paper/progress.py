"""Elapsed time that survives a killed process."""

import time
from pathlib import Path

from switchpoint._files import read_json, write_json
from switchpoint._progress import Progress

_SECONDS = 1.0  # between two updates of the file


class Stopwatch(Progress):
    """Passes progress on, and keeps the elapsed time in a file, across processes that are killed.

    Time counts from the first `update` of a process on.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self._path, self._progress = path, progress or Progress()
        self.seconds = 0.0
        try:
            if path.exists():
                self.seconds = read_json(path, seconds=float)["seconds"]
        except ValueError as error:
            self.note(f"{error}; the time spent before is not counted")
        self._last: float | None = None

    def update(self, text: str, done: float) -> None:
        self._progress.update(text, done)
        self._last = self._last or time.monotonic()
        if time.monotonic() - self._last > _SECONDS:
            self.save()

    def note(self, text: str) -> None:
        self._progress.note(text)

    def save(self) -> None:
        """Add the time since the last call, and write the sum to the file."""
        if self._last is not None:
            now = time.monotonic()
            self.seconds, self._last = self.seconds + now - self._last, now
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"format": 1, "seconds": self.seconds})
