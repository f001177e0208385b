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
