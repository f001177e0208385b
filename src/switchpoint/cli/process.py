"""The standard streams of a process, and its end."""

import os
import sys
from contextlib import suppress
from typing import Any


class _Unbreakable:
    """Standard error, which nobody has to read: what cannot be written to it is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            drop_output(self._stream)
        return len(text)

    def flush(self) -> None:
        drop_output(self._stream)


def open_streams() -> None:
    """Make the standard streams fit for use: a closed one becomes the null device.

    Else the next file that is opened would take its place, and get what others write to it.
    """
    for handle, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != handle:
                os.dup2(null, handle)
                os.close(null)
            setattr(sys, name, os.fdopen(handle, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):  # a character that it has no code for ends no command
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr = _Unbreakable(sys.stderr)


def drop_output(stream: Any) -> None:
    """Write what the stream holds, or drop it and all that follows where nobody takes it."""
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()


def leave(status: int) -> None:
    """End the process now, without the interpreter's own end: JAX's threads may be at work."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            drop_output(stream)
    os._exit(status)
