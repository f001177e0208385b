"""The cost of training and measuring, in files that survive a killed process."""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from switchpoint._files import read_json, write_json
from switchpoint._progress import Progress
from switchpoint._provenance import environment_info

TRAINING, MEASURING = "training_seconds.json", "measuring_seconds.json"
"""The files of the two times in the directory of a run."""

_SECONDS = 1.0  # between two updates of a file


class Stopwatch(Progress):
    """Passes progress on, and keeps the elapsed time in a file, across processes that are killed.

    Time counts from the first `update` of a process on.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self._path, self._progress = path, progress or Progress()
        self.seconds = 0.0
        self.machine: dict[str, Any] = {}
        """The machine of the last process that saved the time, and when it did."""
        try:
            if path.exists():
                content = read_json(path, seconds=float, machine=dict)
                self.seconds, self.machine = content["seconds"], content["machine"]
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
            finished = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            self.machine = {**_environment(), "finished": finished}
            content = {"format": 1, "seconds": self.seconds, "machine": self.machine}
            write_json(self._path, content)


_environment = lru_cache(maxsize=1)(environment_info)


def training_cost(directory: Path) -> dict[str, Any]:
    """The machine that trained the networks in a directory, and the seconds spent on them."""
    training, measuring = (Stopwatch(directory / file) for file in (TRAINING, MEASURING))
    machine = training.machine or dict.fromkeys([*_environment(), "finished"], "unknown")
    times = {"training_seconds": training.seconds, "measuring_seconds": measuring.seconds}
    return {**machine, **times}
