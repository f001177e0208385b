"""What is known about every member at one step of a training run."""

import json
import math
import re
import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any

_PER_MEMBER = ("loss", "excess", "excess_error")
_CHECKSUM = re.compile(r', "crc32": "([0-9a-f]{8})"\}$')  # the last field of a line


@dataclass(frozen=True)
class Report:
    """The standing of all members after `step` steps.

    It holds no times, so that a resumed run makes the same reports bit for bit.
    """

    step: int
    loss: tuple[float, ...]
    """Bits per symbol, the mean since the last report, one for each member."""
    excess: tuple[float, ...]
    """Bits per sequence above the exact optimum, on the validation sequences."""
    excess_error: tuple[float, ...]
    """The standard error of `excess`."""
    frozen: tuple[int, ...]
    """The indices of the members whose loss was not finite; their numbers may be NaN."""

    def to_json_line(self) -> str:
        """The report as one line of JSON, without the line's end; what is not finite is null.

        The last field, `crc32`, is the checksum of the line without it.
        """
        values = asdict(self)
        for name in _PER_MEMBER:
            values[name] = [x if math.isfinite(x) else None for x in values[name]]
        line = json.dumps(values, allow_nan=False)
        return f'{line[:-1]}, "crc32": "{zlib.crc32(line.encode()):08x}"}}'

    @staticmethod
    def from_json(line: str) -> "Report":
        """The report that `to_json_line` wrote; null becomes NaN.

        Lines of earlier versions have no checksum, and are read without.
        """
        checksum = _CHECKSUM.search(line)
        if checksum is not None:
            line = line[: checksum.start()] + "}"
            if zlib.crc32(line.encode()) != int(checksum[1], 16):
                raise ValueError(f"its content does not match its checksum: {line[:60]!r}")
        try:
            values = json.loads(line)
            if set(values) != _FIELDS:
                raise KeyError("other fields than a report has")
            step, frozen = values["step"], tuple(values["frozen"])
            loss, excess, error = (tuple(map(_number, values[name])) for name in _PER_MEMBER)
            if not all(type(number) is int for number in (step, *frozen)):
                raise TypeError("step and frozen are whole numbers")
            if not len(loss) == len(excess) == len(error):
                raise ValueError("one number for each member")
        except (ValueError, TypeError, KeyError) as problem:
            raise ValueError(f"not a report of a training run: {line[:60]!r}") from problem
        return Report(step, loss, excess, error, frozen)


_FIELDS = {each.name for each in fields(Report)}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
