"""Text read from files, and text printed to a terminal."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

STDIN = Path("-")
"""The path that stands for standard input."""

LARGEST = 256 * 2**20
"""The maximal number of bytes read from a file or unpacked from an archive."""


def printable(text: str) -> str:
    """`text` with control characters escaped, so that a terminal prints them literally."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message with the nearest of `names`; empty if none is near."""
    import difflib  # for the message of an error

    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def name_of(path: Path | str) -> str:
    """The name of a file in messages."""
    return "standard input" if Path(path) == STDIN else printable(str(path))


@contextmanager
def locating(place: str) -> Iterator[None]:
    """Begin the message of a `ValueError` with the place where it occurs, such as a file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {printable(str(error))}") from error


def read_bytes(path: Path) -> bytes:
    """The content of a file, or of standard input if the path is `-`; at most `LARGEST` bytes."""
    try:
        if path != STDIN:
            with path.open("rb") as file:
                data = file.read(LARGEST + 1)
        elif sys.stdin is None:
            raise OSError("it is closed")
        else:
            data = sys.stdin.buffer.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{name_of(path)} cannot be read ({reason})") from error
    return check_size(data, name_of(path))


def check_size(data: bytes, name: str) -> bytes:
    """`data`, or a `ValueError` if it is larger than `LARGEST`."""
    if len(data) > LARGEST:
        raise ValueError(f"{name} holds more than {LARGEST // 2**20} MiB, the most that is read")
    return data


def read_text(path: Path) -> str:
    """The text of a file, or of standard input if the path is `-`."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name_of(path)} is not text (byte {error.start} is not UTF-8)"
        ) from error
