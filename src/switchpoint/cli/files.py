"""Checking what is to be written before the work begins."""

from pathlib import Path

from switchpoint._files import check_writable
from switchpoint._text import printable


def check_output(path: Path | None, name: str, suffixes: tuple[str, ...]) -> None:
    """Raise a `ValueError` where a file of these suffixes cannot be written to `path`."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{name} must end in {' or '.join(suffixes)}, got {printable(str(path))}")
    check_writable(path, name)
