"""The process of a command: signals, standard streams, compilation cache and end."""

# Few imports: a signal that arrives before `listen` prints a traceback.
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MAX_CACHE_BYTES = 2**29
"""The size to which the compilation cache is reduced when a command starts."""

_CACHE_SETTING = "JAX_COMPILATION_CACHE_DIR"
_DESCRIPTIONS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Signals:
    """The effect of SIGINT and SIGTERM on a command.

    During imports there is nothing to save, and a half-imported module may turn an exception
    into anything: the process ends immediately. Once `unwinds` is set, the first signal raises
    a `KeyboardInterrupt`, so that files and the terminal are restored; later ones are ignored.
    """

    received: int | None = None
    unwinds = False
    hangup = False
    """Whether a service has received SIGHUP since this was last cleared."""
    _service = False
    _deferred = False

    def listen(self) -> None:
        """Handle the signals from now on, except those that were ignored (nohup, background)."""
        for number in _DESCRIPTIONS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, self._receive)
        sys.unraisablehook = self._unraisable

    def serve(self) -> None:
        """Be a service: SIGTERM is the regular end, with status 0, and SIGHUP sets `hangup`."""

        def hang_up(*_: object) -> None:
            self.hangup = True

        self._service = True
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, hang_up)

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
        if self._service and self.received == signal.SIGTERM:
            return 0
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


def use_compilation_cache() -> None:
    """Let JAX keep compiled programs in the user's cache directory.

    Does nothing if JAX is already imported, if the user has set a directory for it, or if no
    directory is writable.
    """
    if _CACHE_SETTING in os.environ or "jax" in sys.modules:
        return
    from platformdirs import user_cache_path

    directory = user_cache_path("switchpoint", appauthor=False) / "jax"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shrink_cache(directory)
    except OSError:
        return
    if not os.access(directory, os.W_OK):
        return
    os.environ[_CACHE_SETTING] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # A damaged entry, or a full disk, costs the time of a compilation and nothing else.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation")


def shrink_cache(directory: Path, limit: int = MAX_CACHE_BYTES) -> None:
    """Remove empty files, and the oldest until the rest fit into `limit` bytes."""
    # JAX's own limit locks the directory at every access.
    files = [(path.stat(), path) for path in directory.rglob("*") if path.is_file()]
    total = sum(stat.st_size for stat, _ in files)
    for stat, path in sorted(files, key=lambda each: each[0].st_mtime):
        if total > limit or stat.st_size == 0:
            path.unlink(missing_ok=True)
            total -= stat.st_size


class _Unbreakable:
    """Standard error that drops output once its reader has closed it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            _flush_or_drop(self._stream)
        return len(text)

    def flush(self) -> None:
        _flush_or_drop(self._stream)


def open_streams() -> None:
    """Make the standard streams usable: a closed one becomes the null device.

    Otherwise the next file to be opened would take its number, and receive its output.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):  # a character outside its encoding is no error
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr = _Unbreakable(sys.stderr)


def finish(status: int) -> None:
    """Flush the streams; after a signal, end the process now, since JAX's threads may be busy."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            _flush_or_drop(stream)
    if status > 128:
        os._exit(status)


def _flush_or_drop(stream: Any) -> None:
    """Flush a stream; if that fails, send this and all later output to the null device."""
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
