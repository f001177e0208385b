"""How the members of a run stood at each evaluation: records, one line of JSON each."""

import json
import math
import os
import re
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from switchpoint._files import atomic_write
from switchpoint._formats import FORMAT, Step, upgrade

_PER_MEMBER = ("loss", "excess", "excess_error")
_STEPS: tuple[Step, ...] = ({"frozen": "diverged"},)
_CHECKSUM = re.compile(r', "crc32": "([0-9a-f]{8})"\}$')  # the last field of a line


@dataclass(frozen=True)
class EvalRecord:
    """How all members do after `step` steps.

    It holds no times, so that a resumed run makes the same records bit for bit.
    """

    step: int
    loss: tuple[float, ...]
    """Bits per symbol, the mean since the last record, one for each member."""
    excess: tuple[float, ...]
    """Bits per sequence above the exact optimum, on the validation sequences."""
    excess_error: tuple[float, ...]
    """The standard error of `excess`."""
    diverged: tuple[int, ...]
    """The indices of the members that diverged; their numbers may be NaN."""

    def to_json_line(self) -> str:
        """The record as one line of JSON, without the line's end; what is not finite is null.

        The last field, `crc32`, is the checksum of the line without it.
        """
        values = {FORMAT: len(_STEPS), **asdict(self)}
        for name in _PER_MEMBER:
            values[name] = [x if math.isfinite(x) else None for x in values[name]]
        line = json.dumps(values, allow_nan=False)
        return f'{line[:-1]}, "crc32": "{zlib.crc32(line.encode()):08x}"}}'

    @staticmethod
    def from_json(line: str) -> "EvalRecord":
        """The record that `to_json_line` wrote; null becomes NaN.

        Lines of the first versions have no checksum, and are read without.
        """
        checksum = _CHECKSUM.search(line)
        if checksum is not None:
            line = line[: checksum.start()] + "}"
            if zlib.crc32(line.encode()) != int(checksum[1], 16):
                raise ValueError(f"its content does not match its checksum: {line[:60]!r}")
        foreign = f"not a report of a training run: {line[:60]!r}"
        try:
            values = dict(json.loads(line))
        except (ValueError, TypeError) as problem:
            raise ValueError(foreign) from problem
        values = upgrade(values, "the report", _STEPS)
        try:
            if set(values) != {FORMAT, *(each.name for each in fields(EvalRecord))}:
                raise KeyError("other fields than a record has")
            step, diverged = values["step"], tuple(values["diverged"])
            loss, excess, error = (
                tuple(math.nan if x is None else float(x) for x in values[name])
                for name in _PER_MEMBER
            )
            if not all(type(number) is int for number in (step, *diverged)):
                raise TypeError("step and diverged are whole numbers")
            if not len(loss) == len(excess) == len(error):
                raise ValueError("one number for each member")
        except (ValueError, TypeError, KeyError) as problem:
            raise ValueError(foreign) from problem
        return EvalRecord(step, loss, excess, error, diverged)


@dataclass(frozen=True)
class MetricsLines:
    """The whole lines of a metrics file, up to the first damaged one."""

    content: bytes
    records: tuple[EvalRecord, ...]
    damage: str | None
    """The file, the line and what is wrong with it, where there is a damaged one."""

    @staticmethod
    def of(content: bytes, path: Path) -> "MetricsLines":
        """The lines in `content`, which was read from `path`."""
        *lines, _ = content.split(b"\n")  # what comes after the last line's end is unfinished
        records: list[EvalRecord] = []
        damage = None
        for number, line in enumerate(lines, start=1):
            try:
                records.append(EvalRecord.from_json(line.decode(errors="replace")))
            except ValueError as error:
                damage = f"{path}, line {number}: {error}"
                break
        whole = b"".join(line + b"\n" for line in lines[: len(records)])
        return MetricsLines(whole, tuple(records), damage)

    def up_to(self, step: int) -> "MetricsLines":
        """The lines of the records up to `step`, byte for byte."""
        count = sum(record.step <= step for record in self.records)
        lines = self.content.splitlines(keepends=True)[:count]
        return MetricsLines(b"".join(lines), self.records[:count], None)


class MetricsLog:
    """The file that a run appends its records to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = b""  # what the run has written, even if the file has lost some of it

    def append(self, record: EvalRecord) -> None:
        """Add one record; when this returns, it is on disk."""
        line = record.to_json_line().encode() + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.content += line

    def lines(self) -> MetricsLines:
        """What the file holds; nothing if there is no file."""
        return MetricsLines.of(self._read(), self.path)

    def replace(self, content: bytes) -> None:
        """Let the file hold `content` and nothing else."""
        self.content = content
        if self._read() != content:
            with atomic_write(self.path, "metrics") as file:
                file.write(content)

    def _read(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


def read_reports(path: Path) -> list[EvalRecord]:
    """All records of a run, also of one that is still running; a damaged line is refused."""
    lines = MetricsLines.of(path.read_bytes(), path)
    if lines.damage is not None:
        raise ValueError(lines.damage)
    return list(lines.records)
