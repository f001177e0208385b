"""The process of a command: its compilation cache, its standard streams, and its end."""

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_CACHE_BYTES = 2**29
"""The size to which the compilation cache is reduced when a command starts."""

_CACHE_SETTING = "JAX_COMPILATION_CACHE_DIR"


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
    # JAX's own limit needs a package that may be missing, and a lock that may be taken.
    files = [(path.stat(), path) for path in directory.rglob("*") if path.is_file()]
    total = sum(stat.st_size for stat, _ in files)
    for stat, path in sorted(files, key=lambda each: each[0].st_mtime):
        if total > limit or stat.st_size == 0:
            path.unlink(missing_ok=True)
            total -= stat.st_size


class _Unbreakable:
    """Standard error that may lose its reader; output that cannot be written is dropped."""

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
