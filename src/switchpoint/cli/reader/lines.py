"""Lines of standard input or of a file that may still grow, each with the place where it ends."""

import os
import select
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from switchpoint._text import STDIN, name_of

_CHUNK = 2**16  # bytes that are read at a time
_LONGEST = 2**20  # bytes of a line
_TAIL = 4096  # bytes that identify a file
_POLL = 0.1  # seconds between looks at a file that has ended
_WAIT = 1.0  # seconds after which waiting for standard input is reported


class Line(NamedTuple):
    """A line without its end."""

    number: int
    """From 1."""
    end: int
    """The number of bytes up to the end of the line."""
    text: str
    file: int = 0
    """The number of files that were followed before the file of this line."""


class LineReader:
    """Reads lines in order.

    With `follow` more lines are expected at the end of a file, until another file with content has
    its path, which is then read from its beginning. `place` is the result of `place_after` of an
    earlier reader of the same file: lines before it are skipped. The lines of standard input are
    always new.
    """

    files = 0
    """The number of files that were followed before this one."""
    _successor: Any = None
    _unfinished = False  # whether the last line that was read had no end yet

    def __init__(self, path: Path, follow: bool, place: Mapping[str, Any] | None = None) -> None:
        self.path, self.name, self.follow = path, name_of(path), follow
        self._line, self._offset, self._regular = 0, 0, False
        self._file: Any
        if path == STDIN:
            if follow:
                raise ValueError("--follow is for a file: standard input is always followed")
            self._file = sys.stdin.buffer
            return
        try:
            self._file = path.open("rb", buffering=0)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"{self.name} cannot be read ({reason})") from error
        self._regular = path.is_file()
        if place is not None and self._regular:
            try:
                self._skip_to(place)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> "LineReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batches(self, most: int) -> Iterator[list[Line]]:
        """The lines, at most `most` at a time; an empty batch if there are no new ones yet."""
        rest = b""
        while True:
            data = self._read()
            if data is None:
                yield []
                continue
            *texts, rest = (rest + data).split(b"\n")
            if not data and rest:  # the last line has no end
                texts, rest = [rest], b""
            if self._unfinished and texts:
                self._finish(texts.pop(0), bool(data))
            if len(rest) > _LONGEST:
                raise ValueError(
                    f"{self.name}, line {self._line + 1}: it has more than {_LONGEST} bytes"
                )
            for begin in range(0, len(texts), most):
                yield [self._next(text, bool(data)) for text in texts[begin : begin + most]]
            if self._successor is not None:
                self._file.close()
                self._file, self._successor = self._successor, None
                self._line, self._offset, self.files = 0, 0, self.files + 1
                yield []
            elif not data:
                return

    def place_after(self, line: Line | None) -> dict[str, Any] | None:
        """The place after this line, for a later reader; None if the input cannot be read again."""
        if not self._regular:
            return None
        if line is None or line.file != self.files:
            return {"line": 0, "offset": 0, "tail": _tail(self._file, 0)}
        return {"line": line.number, "offset": line.end, "tail": _tail(self._file, line.end)}

    def close(self) -> None:
        """Close the file."""
        for file in (self._file, self._successor):
            if self.path != STDIN and file is not None:
                file.close()

    def _next(self, text: bytes, ended: bool) -> Line:
        self._line += 1
        self._offset += len(text) + ended
        try:
            decoded = text.decode("utf-8-sig" if self._line == 1 else "utf-8")
            return Line(self._line, self._offset, decoded.removesuffix("\r"), self.files)
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.name}, line {self._line}: it is not UTF-8") from error

    def _read(self) -> bytes | None:
        """Some bytes; none at the end, None if there may be more later."""
        if self.path == STDIN:
            return self._file.read1(_CHUNK) if _is_ready(self._file) else None
        data = self._file.read(_CHUNK)
        if data or not self.follow:
            return data
        other = self._other_file() if self._regular else None
        if other is None:
            time.sleep(_POLL)
            return None
        data, at = self._file.read(_CHUNK), self._file.tell()  # what came before the other file
        if data:
            other.close()
            return data
        if 0 < at <= _size(other) and _tail(other, at) == _tail(self._file, at):
            self._file.close()
            self._file = other  # a copy of what was read, perhaps with more lines
            other.seek(at)
            return None
        self._successor = other
        return b""

    def _skip_to(self, place: Mapping[str, Any]) -> None:
        self._line, self._offset = place["line"], place["offset"]
        if _size(self._file) < self._offset:
            problem = f"it is shorter than the {self._offset} bytes that were read"
        elif _tail(self._file, self._offset) != place["tail"]:
            problem = f"its first {self._offset} bytes differ"
        else:
            self._file.seek(max(0, self._offset - 1))
            self._unfinished = self._offset > 0 and self._file.read(1) != b"\n"
            return
        raise ValueError(
            f"{self.name} is not the file that the state was saved for: {problem}; start again "
            "with another --state"
        )

    def _finish(self, text: bytes, ended: bool) -> None:
        """Take the end of a line that was counted without it."""
        if text not in (b"", b"\r"):
            raise ValueError(
                f"{self.name}, line {self._line}: it was counted before it was complete; start "
                "again with another --state, and use --follow for a file that is being written"
            )
        self._offset += len(text) + ended
        self._unfinished = False

    def _other_file(self) -> Any:
        """The file that has replaced this one at its path, as log rotation does.

        Not before it has content: whatever writes the lines has then left this one.
        """
        status = os.fstat(self._file.fileno())
        if status.st_size < self._file.tell():
            raise ValueError(f"{self.name} was cut off while it was followed")
        try:
            if os.path.samestat(self.path.stat(), status):
                return None
            other = self.path.open("rb", buffering=0)
        except OSError:
            return None  # not there yet
        if _size(other) > 0:
            return other
        other.close()
        return None


def _size(file: Any) -> int:
    return os.fstat(file.fileno()).st_size


def _tail(file: Any, offset: int) -> int:
    """A checksum of the bytes before an offset."""
    at = file.tell()
    file.seek(max(0, offset - _TAIL))
    data = file.read(min(offset, _TAIL))
    file.seek(at)
    return zlib.crc32(data)


def _is_ready(file: Any) -> bool:
    """Whether a read does not block, or cannot be given a limit of time."""
    try:
        return bool(select.select([file], [], [], _WAIT)[0])
    except (OSError, ValueError):  # not a file, or on Windows not a socket
        return True
