"""The evaluations of a run: one line of JSON for each."""

import json
import math
import re
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._text import locating

_PER_MEMBER = ("loss", "excess", "excess_error")
_CHECKSUM = re.compile(r', "crc32": "([0-9a-f]{8})"\}$')  # the last field of a line


@dataclass(frozen=True)
class EvalRecord:
    """The evaluation of all members after `step` steps.

    It has no times, so that a resumed run has the same records bit for bit.

    See `read_reports` for an example.
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
        values = {FORMAT: NEWEST, **asdict(self)}
        for name in _PER_MEMBER:
            values[name] = [x if math.isfinite(x) else None for x in values[name]]
        line = json.dumps(values, allow_nan=False)
        return f'{line[:-1]}, "crc32": "{zlib.crc32(line.encode()):08x}"}}'

    @staticmethod
    def from_json(line: str) -> "EvalRecord":
        """The record that `to_json_line` wrote; null becomes NaN."""
        checksum = _CHECKSUM.search(line)
        content = line[: checksum.start()] + "}" if checksum else ""
        if checksum is None or zlib.crc32(content.encode()) != int(checksum[1], 16):
            raise ValueError(f"its content does not match its checksum: {line[:60]!r}")
        try:
            values = json.loads(content)
            check_format(values, "the report")
            del values[FORMAT]
            for name in _PER_MEMBER:
                values[name] = tuple(math.nan if x is None else float(x) for x in values[name])
            return EvalRecord(**{**values, "diverged": tuple(values["diverged"])})
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"not a report of a training run: {line[:60]!r}") from error


def read_reports(path: Path) -> list[EvalRecord]:
    r"""All records of a run, also of one that is still running; a damaged line is refused.

    `path` is the file `metrics.jsonl` in the directory of the run, with a record in each line.

    >>> import pathlib, tempfile
    >>> from switchpoint.training import EvalRecord, read_reports
    >>> record = EvalRecord(500, loss=(0.9,), excess=(1.5,), excess_error=(0.1,), diverged=())
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = pathlib.Path(directory, "metrics.jsonl")
    ...     _ = file.write_text(record.to_json_line() + "\n")
    ...     read_reports(file) == [record]
    True
    """
    return parse_reports(path.read_bytes(), path)


def parse_reports(content: bytes, path: Path) -> list[EvalRecord]:
    """The records in `content`, of the file `path`; an unfinished last line is left out."""
    records = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        with locating(f"{path}, line {number}"):
            records.append(EvalRecord.from_json(line.decode(errors="replace")))
    return records
