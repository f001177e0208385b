"""Lines of standard input or of a file that may still grow, each with the place where it ends."""

import os
import select
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
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
    its path, which is then read from its beginning, as is a file that was truncated; a file that
    does not exist is waited for. `place` is the result of `place_after` of an earlier reader of the
    same file: lines before it are skipped. If the file was rotated meanwhile, the rest of PATH.1 is
    read first. The lines of standard input are always new. `warn` receives what an operator should
    know.
    """

    files = 0
    """The number of files that were followed before this one."""
    _successor: Any = None
    _reopening = False  # whether another file at the path is read even without content
    _unfinished = False  # whether the last line that was read had no end yet

    def __init__(
        self,
        path: Path,
        follow: bool,
        place: Mapping[str, Any] | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.path, self.name, self.follow = path, name_of(path), follow
        self._line, self._offset, self._regular, self._warn = 0, 0, False, warn
        self._place = place
        self._dropped = 0  # bytes of a line that is too long
        self._file: Any = None
        if path == STDIN:
            if follow:
                raise ValueError("--follow is for a file: standard input is always followed")
            self._file = sys.stdin.buffer
            return
        try:
            self._open()
        except FileNotFoundError as error:
            if not follow:
                raise ValueError(f"{self.name} cannot be read ({error.strerror})") from error
            warn(f"waiting for {self.name}, which does not exist")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"{self.name} cannot be read ({reason})") from error

    def _open(self) -> None:
        """Open the file, or the one that it was renamed to, and skip what was read before."""
        self._file = self.path.open("rb", buffering=0)
        self._regular = self.path.is_file()
        place, self._place = self._place, None
        if place is None or not self._regular or self._skip_to(place):
            return
        current, self._file = self._file, None
        with suppress(OSError):
            self._file = Path(f"{self.path}.1").open("rb", buffering=0)  # noqa: SIM115
            if self._skip_to(place):
                current.close()
                self._warn(f"{self.name} was rotated: reading the rest of {self.name}.1 first")
                return
            self._file.close()
        self._file = current
        self._warn(
            f"{self.name} is not the file that was read before: reading it from its beginning, "
            "with the model of the state"
        )

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
            if len(rest) > _LONGEST:  # the line is refused as it is, whatever follows
                self._dropped += len(rest) - _LONGEST
                rest = rest[:_LONGEST]
            for begin in range(0, len(texts), most):
                yield [self._next(text, bool(data)) for text in texts[begin : begin + most]]
            if self._successor is not None:
                self._file.close()
                self._file, self._successor = self._successor, None
                self._restart()
                yield []
            elif not data:
                return

    def place_after(self, line: Line | None) -> Mapping[str, Any] | None:
        """The place after this line, for a later reader; None if the input cannot be read again."""
        if not self._regular or self._file is None:
            return self._place
        if line is None or line.file != self.files:
            return {"line": 0, "offset": 0, "tail": _tail(self._file, 0)}
        return {"line": line.number, "offset": line.end, "tail": _tail(self._file, line.end)}

    def reopen(self) -> None:
        """Read what has the path now, once the open file has been read to its end."""
        self._reopening = self._file is not None and self._is_renamed()

    def close(self) -> None:
        """Close the file."""
        for file in (self._file, self._successor):
            if self.path != STDIN and file is not None:
                file.close()

    def _next(self, text: bytes, ended: bool) -> Line:
        self._line += 1
        self._offset += len(text) + self._dropped + ended
        self._dropped = 0
        decoded = text.decode("utf-8-sig" if self._line == 1 else "utf-8", "replace")
        return Line(self._line, self._offset, decoded.removesuffix("\r"), self.files)

    def _restart(self) -> None:
        """Count lines from the beginning of another file."""
        self._line, self._offset, self.files = 0, 0, self.files + 1

    def _read(self) -> bytes | None:
        """Some bytes; none at the end, None if there may be more later."""
        if self.path == STDIN:
            return self._file.read1(_CHUNK) if _is_ready(self._file) else None
        if self._file is None:
            with suppress(FileNotFoundError):
                self._open()
            if self._file is None:
                time.sleep(_POLL)
                return None
        data = self._file.read(_CHUNK)
        if data:
            return data
        if self._regular and _size(self._file) < self._file.tell():
            self._warn(f"{self.name} was truncated: reading it from its beginning")
            self._file.seek(0)
            self._restart()
            return None
        if not self.follow and not self._is_renamed():
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

    def _skip_to(self, place: Mapping[str, Any]) -> bool:
        """Go to a place; False if the file is not the one that the place is in."""
        offset = place["offset"]
        if _size(self._file) < offset or _tail(self._file, offset) != place["tail"]:
            return False
        self._line, self._offset = place["line"], offset
        self._file.seek(max(0, offset - 1))
        self._unfinished = offset > 0 and self._file.read(1) != b"\n"
        return True

    def _is_renamed(self) -> bool:
        """Whether the open file no longer has the path, but another one does."""
        with suppress(OSError):
            status = os.fstat(self._file.fileno())
            return self._regular and not os.path.samestat(self.path.stat(), status)
        return False

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
        if not self._is_renamed():
            return None
        try:
            other = self.path.open("rb", buffering=0)
        except OSError:
            return None  # not there yet
        if _size(other) > 0 or self._reopening:
            self._reopening = False
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
