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

_CHUNK = 2**16  # bytes that are read at a time: nothing else is held, however slow the work is
_LONGEST = 2**20  # bytes of a line
_TAIL = 4096  # bytes by which a file is recognised
_POLL = 0.1  # seconds between looks at a file that has ended
_WAIT = 1.0  # seconds after which waiting for standard input is reported


class Line(NamedTuple):
    """A line without its end."""

    number: int
    """From 1."""
    end: int
    """The number of bytes up to the end of the line."""
    text: str


class LineReader:
    """Reads lines in order, and knows the place up to which they have been used.

    With `follow` the end of a file is where more lines will be. `place` is what `place_after` said
    about an earlier reader of the same file: lines before it are skipped. The lines of standard
    input are always new.
    """

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
        """The lines, at most so many at a time; none where there are no new ones yet."""
        rest = b""
        while True:
            data = self._read()
            if data is None:
                yield []
                continue
            *texts, rest = (rest + data).split(b"\n")
            if not data and rest:  # the last line has no end
                texts, rest = [rest], b""
            if len(rest) > _LONGEST:
                raise ValueError(
                    f"{self.name}, line {self._line + 1}: it has more than {_LONGEST} bytes"
                )
            for begin in range(0, len(texts), most):
                yield [self._next(text, bool(data)) for text in texts[begin : begin + most]]
            if not data:
                return

    def place_after(self, line: int, offset: int) -> dict[str, Any] | None:
        """What a later reader needs to go on after this line; None for what cannot be reread."""
        if not self._regular:
            return None
        return {"line": line, "offset": offset, "tail": self._tail(offset)}

    def close(self) -> None:
        """Close the file."""
        if self.path != STDIN:
            self._file.close()

    def _next(self, text: bytes, ended: bool) -> Line:
        self._line += 1
        self._offset += len(text) + ended
        try:
            return Line(self._line, self._offset, text.decode().removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.name}, line {self._line}: it is not UTF-8") from error

    def _read(self) -> bytes | None:
        """Some bytes; none at the end, None if there may be more later."""
        if self.path == STDIN:
            return self._file.read1(_CHUNK) if _is_ready(self._file) else None
        data = self._file.read(_CHUNK)
        if data or not self.follow:
            return data
        if self._regular and not self._is_same():
            raise ValueError(f"{self.name} was replaced or cut off while it was followed")
        time.sleep(_POLL)
        return None

    def _skip_to(self, place: Mapping[str, Any]) -> None:
        self._line, self._offset = place["line"], place["offset"]
        if os.fstat(self._file.fileno()).st_size < self._offset:
            problem = f"it is shorter than the {self._offset} bytes that were read"
        elif self._tail(self._offset) != place["tail"]:
            problem = f"the bytes before {self._offset} are others"
        else:
            self._file.seek(max(0, self._offset - 1))
            last = self._file.read(1) if self._offset else b"\n"
            if last != b"\n" and self._file.read(1) == b"\n":
                self._offset += 1  # the end that the last line did not have yet
            self._file.seek(self._offset)
            return
        raise ValueError(
            f"{self.name} is not the file that the state was saved for: {problem}; begin anew with "
            "another --state"
        )

    def _is_same(self) -> bool:
        """Whether the file is still at its path, and holds what has been read."""
        status = os.fstat(self._file.fileno())
        try:
            same = os.path.samestat(self.path.stat(), status)
        except OSError:
            return False
        return same and self._file.tell() <= status.st_size

    def _tail(self, offset: int) -> int:
        """A checksum of the bytes before an offset."""
        at = self._file.tell()
        self._file.seek(max(0, offset - _TAIL))
        data = self._file.read(min(offset, _TAIL))
        self._file.seek(at)
        return zlib.crc32(data)


def _is_ready(file: Any) -> bool:
    """Whether a read does not wait, or cannot be told to wait for a limited time."""
    try:
        return bool(select.select([file], [], [], _WAIT)[0])
    except (OSError, ValueError):  # not a file, or on Windows not a socket
        return True
