"""Reading text, and checking what is to be written before the work begins."""

import sys
from pathlib import Path

from switchpoint._files import check_writable

STDIN = Path("-")


def read_text(path: Path) -> str:
    """The text in a file, or on standard input where the path is `-`."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text (byte {error.start} is not UTF-8)") from error


def check_output(path: Path | None, name: str, suffixes: tuple[str, ...]) -> None:
    """Raise a `ValueError` where a file of these suffixes cannot be written to `path`."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{name} must end in {' or '.join(suffixes)}, got {path}")
    check_writable(path, name)
