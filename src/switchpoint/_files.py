"""Files that are written whole or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def check_writable(path: Path, name: str = "out") -> None:
    """Raise a `ValueError` where `path` cannot be written; `name` is the argument's name."""
    with _problems_named(path, name):
        if not _is_special(path):
            temporary = _temporary_beside(_target(path))
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            temporary.unlink()


@contextmanager
def replacing(path: Path, name: str = "out") -> Iterator[BinaryIO]:
    """A file to write what `path` shall hold; `path` changes when all of it is on disk.

    Without success nothing is left behind, and what `path` held before stays. Anything that
    the system refuses is a `ValueError` that gives `name`, the path and the reason.
    """
    with _problems_named(path, name):
        if _is_special(path):
            with path.open("wb") as file:
                yield file
            return
        target = _target(path)
        temporary = _temporary_beside(target)
        # Mode 0666 less the umask, as `open` would give; `tempfile` would give 0600.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                if target.exists():
                    os.chmod(temporary, target.stat().st_mode & 0o7777)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def _problems_named(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{name} cannot be written: {path} ({reason})") from error


def _target(path: Path) -> Path:
    """The file to replace: what a link points to, so that the link itself stays."""
    try:
        target = path.resolve()
    except RuntimeError as error:  # Python before 3.13 says so of links that lead in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
    if target.is_dir():
        raise IsADirectoryError(None, "Is a directory")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(None, "Permission denied")
    return target


def _is_special(path: Path) -> bool:
    """Whether `path` is a device or a pipe, which is written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _temporary_beside(target: Path) -> Path:
    return target.with_name(f".{secrets.token_hex(8)}.tmp")
