"""The signals that stop a command."""

# Few imports: a signal that arrives before `listen` prints a traceback.
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_DESCRIPTIONS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Signals:
    """The effect of SIGINT and SIGTERM on a command.

    During imports there is nothing to save, and a half-imported module may turn an exception
    into anything: the process ends immediately. Once `unwinds` is set, the first signal raises
    a `KeyboardInterrupt`, so that files and the terminal are restored; later ones are ignored.
    """

    received: int | None = None
    unwinds = False
    _deferred = False

    def listen(self) -> None:
        """Handle the signals from now on, except those that were ignored (nohup, background)."""
        for number in _DESCRIPTIONS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, self._receive)
        sys.unraisablehook = self._unraisable

    def ignore(self) -> None:
        """Ignore signals until the interpreter exits, since the command has finished."""
        for number in _DESCRIPTIONS:
            if signal.getsignal(number) == self._receive:
                signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Delay an interrupt until the end of a block that must not be left half done."""
        before = self.received
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
            if self.received != before:
                raise KeyboardInterrupt

    @property
    def status(self) -> int:
        """The exit status of a command that was stopped."""
        return 128 + (self.received or signal.SIGINT)

    @property
    def description(self) -> str:
        """The word for it in messages."""
        return _DESCRIPTIONS[signal.Signals(self.received or signal.SIGINT)]

    def _receive(self, number: int, _: object) -> None:
        if self.received is not None:
            return
        self.received = number
        if not self.unwinds:
            with suppress(OSError):  # not `print`: the signal may have interrupted one
                os.write(2, f"switchpoint: {self.description}\n".encode())
            os._exit(self.status)
        if not self._deferred:
            raise KeyboardInterrupt

    def _unraisable(self, event: "sys.UnraisableHookArgs") -> None:
        """Raise an interrupt inside a destructor again a little later, since Python drops it."""
        if self.received is not None and issubclass(event.exc_type, KeyboardInterrupt):
            import threading

            number, self.received = self.received, None
            threading.Timer(0.01, signal.raise_signal, (number,)).start()
        else:
            sys.__unraisablehook__(event)


SIGNALS = Signals()
