"""Cells of a table, which are texts: numbers as people write them, missing ones, and names."""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from switchpoint._text import printable
from switchpoint.detection.times import is_date

MISSING = {"", "na", "n/a", "nan", "nat", "null", "none", "<na>"}
"""Words for a missing observation, in lower case."""
MARKS = {"-", "--", "?", ".", "..", "...", "#n/a", "#na", "#value!", "#div/0!", "#ref!"}
"""Marks, in lower case, that are a missing observation among numbers."""

_CURRENCY = "[$€£¥₹]"
_SPACE = " '’\u00a0\u202f"  # between groups of three digits, beside a comma or a point
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_SAMPLE = 1000  # rows that show the kind of a column
_SHOWN = 12  # names in a message


def _number_pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:[{thousands}{_SPACE}]\d{{3}})+)"
    number = rf"(?:{whole}(?:[{decimal}]\d*)?|[{decimal}]\d+)(?:e[+-]?\d+)?"
    return re.compile(
        rf"([+-]?)({_CURRENCY}?)([+-]?)[{_SPACE}]?({number})[{_SPACE}]?(%|{_CURRENCY}|)",
        re.ASCII | re.IGNORECASE,
    )


_NUMBER = {".": _number_pattern(".", ","), ",": _number_pattern(",", ".")}


def parse_number(token: str) -> float | None:
    """The finite number that `token` is; stricter than `float`, which accepts nan and 0_1."""
    value = float(token) if _PLAIN.fullmatch(token) else math.inf
    return value if math.isfinite(value) else None


def is_missing(cell: str) -> bool:
    """Whether a cell of a column of numbers is a missing observation."""
    return cell.lower() in MISSING or cell.lower() in MARKS


def to_number(cell: str, decimal: str) -> tuple[float, str] | None:
    """The finite number in a cell, and the percent or currency sign beside it."""
    if decimal == "." and (number := parse_number(cell)) is not None:
        return number, ""
    match = _NUMBER[decimal].fullmatch(cell.replace("\u2212", "-"))
    if match is None:
        return None
    digits = re.sub(rf"[^\de{decimal}+-]", "", match[4].lower()).replace(decimal, ".")
    number = parse_number(match[1] + match[3] + digits)
    return None if number is None else (number, match[2] + match[5])


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number with either decimal sign."""
    return any(to_number(cell, decimal) is not None for decimal in _NUMBER)


def is_value(cell: str) -> bool:
    """Whether a cell is a number or a date."""
    return is_number(cell) or is_date(cell)


class NumberColumn:
    """The cells of a column, read as numbers with this decimal sign."""

    def __init__(self, cells: Sequence[str], decimal: str = ".") -> None:
        parsed = [to_number(cell, decimal) for cell in cells]
        pairs = list(zip(cells, parsed, strict=True))
        self.cells = cells
        self.values = np.array([math.nan if each is None else each[0] for each in parsed])
        """The numbers; NaN where an observation is missing."""
        self.unit = next((each[1] for each in parsed if each is not None), "")
        """The percent or currency sign of the first number."""
        self.invalid = [
            row
            for row, (cell, each) in enumerate(pairs)
            if (not is_missing(cell) if each is None else each[1] != self.unit)
        ]
        """The rows of the cells that are neither missing nor numbers of this unit."""
        self.comma = next((cell for cell, each in pairs if each is not None and "," in cell), "")
        """The first number with a comma that is not the decimal sign; empty if there is none."""

    @property
    def holds_numbers(self) -> bool:
        """Whether there are numbers, and nothing else with either decimal sign."""
        filled = bool(self.invalid) or not np.isnan(self.values).all()
        return filled and all(is_number(self.cells[row]) for row in self.invalid)


def guess_header(
    rows: Sequence[Sequence[str]],
    names: Sequence[str | None] = (),
    labels: Sequence[str] = (),
) -> bool | None:
    """Whether the first row names the columns, of which `names` are expected; None if unclear.

    Names are words above numbers or dates, numbers above dates, or whole numbers that follow an
    empty cell. Without any column of values, a name does not recur below. `labels` are symbols,
    hence no names. Numbers may be names if they count the columns, or are whole above fractions.
    """
    first, rest = rows[0], rows[1:]
    words = {i: cell for i, cell in enumerate(first) if not is_missing(cell) and not is_value(cell)}
    if any(name in words.values() for name in names):
        return True
    if any(word in labels or is_boolean(word) for word in words.values()):
        return False
    indexed = first[0] == "" and first[1:] != [] and all(map(str.isdigit, first[1:]))
    values: list[str] = []
    for i, cell in enumerate(first):
        below = [row[i] for row in rest[:_SAMPLE] if i < len(row) and not is_missing(row[i])]
        dates = bool(below) and all(map(is_date, below))
        if dates or 2 * sum(map(is_value, below)) > len(below):
            if i in words or (dates and not is_date(cell)) or (indexed and i == 0):
                return True
            values += below
    if words:
        recur = (row[i] == word for i, word in words.items() for row in rest if i < len(row))
        return not values and not any(recur)
    numbers = [cell for cell in first if cell.isdigit()]
    counts = numbers == [str(i) for i in range(len(first))]
    fractions = len(numbers) == len(first) and not any(map(str.isdigit, values))
    return None if len(first) > 1 and values and (counts or fractions) else False


def is_boolean(word: str) -> bool:
    """Whether a word is False or True."""
    return word.lower() in ("false", "true")


def first_names(names: Iterable[str]) -> str:
    """The first of many names, for a message."""
    names = list(names)
    more = ", ..." if len(names) > _SHOWN else ""
    return printable(", ".join(names[:_SHOWN])) + more
