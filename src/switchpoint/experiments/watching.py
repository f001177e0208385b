"""What is told to whoever watches the studies."""

from collections.abc import Sequence

from switchpoint.training import EvalRecord, Member
from switchpoint.training.progress import Progress


class Watcher:
    """Is told how the studies go; this one shows nothing, and is there to be extended."""

    def begin(self, study: str) -> None:
        """A study is begun."""

    def doing(self, text: str, done: float) -> None:
        """What is being done for it; `done` is the part of that which is over, from 0 to 1."""

    def note(self, text: str) -> None:
        """Something happened that the user should know."""

    def end(self, study: str, seconds: float) -> None:
        """The study is done, and its results are saved."""


class WatchedTraining(Progress):
    """Passes on to a watcher how a training run goes."""

    _watcher: Watcher
    _run: str
    _steps: int

    def __init__(self, watcher: Watcher, run: str) -> None:
        self._watcher = watcher
        self._run = run
        self._steps = 0

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        del members
        self._steps = last_step
        self._tell(first_step)

    def note(self, text: str) -> None:
        self._watcher.note(f"{self._run}: {text}")

    def tick(self, step: int, steps_per_second: float) -> None:
        del steps_per_second
        self._tell(step)

    def report(self, report: EvalRecord) -> None:
        pass

    def close(self) -> None:
        pass

    def _tell(self, step: int) -> None:
        self._watcher.doing(f"training {self._run}", step / self._steps)
