"""The signals that stop a command."""

# Little is imported here: a signal that comes before `listen` is a traceback of Python's.
import os
import signal
import sys
from contextlib import suppress

_STOPPING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Signals:
    """What SIGINT and SIGTERM do to a command.

    While modules are imported there is nothing to save, and a half-imported module may turn an
    exception into anything: the process ends at once. From `unwind` on, the first signal raises
    a `KeyboardInterrupt`, so that files and the terminal are put in order; the others do nothing.
    """

    received: int | None = None
    _unwinds = False

    def listen(self) -> None:
        """Take the signals from here on; one that is ignored stays ignored."""
        for number in _STOPPING:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, self._receive)
        sys.unraisablehook = self._unraisable

    def unwind(self) -> None:
        """From here on a signal raises `KeyboardInterrupt`."""
        self._unwinds = True

    def ignore(self) -> None:
        """The command is over, and only the interpreter has to end."""
        for number in _STOPPING:
            if signal.getsignal(number) == self._receive:
                signal.signal(number, signal.SIG_IGN)

    @property
    def status(self) -> int:
        """The exit status of a command that was stopped."""
        return 128 + (self.received or signal.SIGINT)

    @property
    def description(self) -> str:
        """What happened to a command that was stopped."""
        return _STOPPING[signal.Signals(self.received or signal.SIGINT)]

    def _receive(self, number: int, _: object) -> None:
        if self.received is not None:
            return
        self.received = number
        if not self._unwinds:
            with suppress(OSError):  # not `print`: the signal may have come in the middle of one
                os.write(2, f"switchpoint: {self.description}\n".encode())
            os._exit(self.status)
        raise KeyboardInterrupt

    def _unraisable(self, event: "sys.UnraisableHookArgs") -> None:
        """An interrupt inside a destructor is lost there: let it come again, a little later."""
        if self.received is not None and issubclass(event.exc_type, KeyboardInterrupt):
            import threading

            number, self.received = self.received, None
            threading.Timer(0.01, signal.raise_signal, (number,)).start()
        else:
            sys.__unraisablehook__(event)


SIGNALS = Signals()
