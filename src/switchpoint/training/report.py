"""What is known about every member at one step of a training run."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

_PER_MEMBER = ("loss", "excess", "excess_error")


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
        """The report as one line of JSON, without the line's end; what is not finite is null."""
        fields = asdict(self)
        for name in _PER_MEMBER:
            fields[name] = [x if math.isfinite(x) else None for x in fields[name]]
        return json.dumps(fields, allow_nan=False)

    @staticmethod
    def from_json(line: str) -> "Report":
        """The report that `to_json_line` wrote; null becomes NaN."""
        try:
            fields = json.loads(line)
            step, frozen = fields["step"], tuple(fields["frozen"])
            loss, excess, error = (tuple(map(_number, fields[name])) for name in _PER_MEMBER)
            if not all(type(number) is int for number in (step, *frozen)):
                raise TypeError("step and frozen are whole numbers")
            if not len(loss) == len(excess) == len(error):
                raise ValueError("one number for each member")
        except (ValueError, TypeError, KeyError) as problem:
            raise ValueError(f"not a report of a training run: {line[:60]!r}") from problem
        return Report(step, loss, excess, error, frozen)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
