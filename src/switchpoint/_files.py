"""Atomic file writes, and JSON files with a checksum."""

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from switchpoint._formats import FORMAT, check_format

_CHECKSUM = "sha256"


def check_writable(path: Path, name: str = "out") -> None:
    """Raise a `ValueError` if `path` cannot be written; `name` is the name of the argument."""
    with _problems_named(path, name):
        if not _is_special(path):
            temporary = _temporary_beside(_target(path))
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            temporary.unlink()


def make_directory(path: Path, name: str = "out") -> None:
    """Create a directory with its parents; a `ValueError` with `name` if that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name} cannot be created: {path} ({error.strerror or error})") from error


@contextmanager
def atomic_write(path: Path, name: str = "out") -> Iterator[BinaryIO]:
    """A temporary file that replaces `path` once everything written to it is on disk.

    On failure nothing is left behind, and the previous content of `path` stays. Operating system
    errors become a `ValueError` with `name`, the path and the reason.
    """
    with _problems_named(path, name):
        if _is_special(path):
            with path.open("wb") as file:
                yield file
            return
        target = _target(path)
        temporary = _temporary_beside(target)
        try:
            # Mode 0666 minus the umask; `tempfile` would use 0600.
            with temporary.open("xb") as file:
                if target.exists():
                    os.chmod(temporary, target.stat().st_mode & 0o7777)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            sync_directory(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def sync_directory(directory: Path) -> None:
    """Flush the entries of a directory to disk, so that a power cut cannot undo a rename."""
    if os.name == "nt":
        return  # Windows cannot open directories
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, content: Mapping[str, Any], name: str = "out") -> None:
    """Write a JSON object with its checksum, atomically."""
    text = json.dumps({**content, _CHECKSUM: json_digest(content)}, indent=2)
    with atomic_write(path, name) as file:
        file.write((text + "\n").encode())


def read_json(path: Path, **types: Any) -> dict[str, Any]:
    """The object written by `write_json`, which must have exactly these keys, of these types.

    Raises a `ValueError` that names the file otherwise. The format number (see
    `switchpoint._formats`) is checked and left out.
    """
    try:
        content = json.loads(path.read_bytes())
        checksum = content.pop(_CHECKSUM, None)
        whole = checksum == json_digest(content)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged: it is not a JSON object written by switchpoint"
        ) from error
    if not whole:
        raise ValueError(f"{path} is damaged: its content does not match its checksum")
    check_format(content, str(path))
    del content[FORMAT]
    if set(content) != set(types) or any(
        not isinstance(content[key], kind) for key, kind in types.items()
    ):
        raise ValueError(f"{path} is not a switchpoint file with {' and '.join(types)}")
    return content


def json_digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of the content of a JSON object, independent of its formatting."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextmanager
def _problems_named(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{name} cannot be written: {path} ({reason})") from error


def _target(path: Path) -> Path:
    """The file to replace: the target of a link, so that the link itself stays."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # circular links have no target
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.is_dir():
        raise IsADirectoryError(None, "Is a directory")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(None, "Permission denied")
    return target


def _is_special(path: Path) -> bool:
    """Whether `path` is a device or a pipe, which cannot be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _temporary_beside(target: Path) -> Path:
    return target.with_name(f".{secrets.token_hex(8)}.tmp")
