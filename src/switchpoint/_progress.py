"""The progress protocol of everything that takes long."""


class Progress:
    """Receives the progress of a computation.

    This class ignores it. Extend it to show progress, in any process: `done` is absolute, so a
    call may be dropped, and implementations limit how often they draw.
    """

    def update(self, text: str, done: float) -> None:
        """Set the current task, and the share of it that is done, from 0 to 1."""

    def note(self, text: str) -> None:
        """Pass on a message that the user should see."""


class Part(Progress):
    """The progress of a part of a computation: the `share` of it that begins at `start`."""

    def __init__(self, whole: Progress, start: float, share: float, prefix: str = "") -> None:
        self._whole, self._start, self._share, self._prefix = whole, start, share, prefix

    def update(self, text: str, done: float) -> None:
        self._whole.update(f"{self._prefix}{text}", self._start + self._share * done)

    def note(self, text: str) -> None:
        self._whole.note(f"{self._prefix}{text}")
