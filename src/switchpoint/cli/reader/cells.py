"""Cells of a table, which are texts: numbers as people write them, missing ones, and names."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from switchpoint._text import printable
from switchpoint.detection.times import is_date

MISSING = {"", "na", "n/a", "nan", "nat", "null", "none", "<na>"}
"""Words for a missing observation, in lower case."""
_MARKS = {"-", "--", "?", ".", "..", "...", "#n/a", "#na", "#value!", "#div/0!", "#ref!"}

DECIMALS = (".", ",")
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
    return cell.lower() in MISSING or cell.lower() in _MARKS


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
    return any(to_number(cell, decimal) is not None for decimal in DECIMALS)


@dataclass(frozen=True)
class Numbers:
    """The cells of a column as numbers."""

    values: Float[np.ndarray, " rows"]
    """NaN where an observation is missing, or the cell is not a number."""
    invalid: list[int]
    """The rows of the cells that are neither missing nor numbers of one unit."""
    unit: str
    """The percent or currency sign of the numbers."""
    marks: set[str]
    """The marks, such as ?, of missing observations."""
    comma: str
    """The first number with a comma that is not the decimal sign."""


def parse_numbers(cells: Sequence[str], decimal: str = ".") -> Numbers:
    """The numbers in a column with this decimal sign."""
    found = [to_number(cell, decimal) for cell in cells]
    unit = next((number[1] for number in found if number is not None), "")
    pairs = list(zip(cells, found, strict=True))
    return Numbers(
        np.array([math.nan if number is None else number[0] for number in found]),
        [
            row
            for row, (cell, number) in enumerate(pairs)
            if (not is_missing(cell) if number is None else number[1] != unit)
        ],
        unit,
        {cell for cell, number in pairs if number is None and cell.lower() in _MARKS},
        next((cell for cell, number in pairs if number is not None and "," in cell), ""),
    )


# --- names of columns -------------------------------------------------------------------------


def is_value(cell: str) -> bool:
    """Whether a cell is a number or a date."""
    return is_number(cell) or is_date(cell)


def is_header(
    first: Sequence[str],
    rest: Sequence[Sequence[str]],
    names: Sequence[str | None] = (),
    labels: Sequence[str] = (),
) -> bool:
    """Whether the first row of a table names its columns, of which `names` are expected.

    Names are words above numbers or dates, numbers above dates, or a cell that is left empty above
    dates or counted rows. Without any such column, a name does not recur below.
    """
    words = {i: cell for i, cell in enumerate(first) if not is_missing(cell) and not is_value(cell)}
    if any(name in words.values() for name in names):
        return True
    if any(word in labels or is_boolean(word) for word in words.values()):
        return False
    values = False
    for i, cell in enumerate(first):
        below = [row[i] for row in rest[:_SAMPLE] if i < len(row) and not is_missing(row[i])]
        dates = bool(below) and all(map(is_date, below))
        if dates or 2 * sum(map(is_value, below)) > len(below):
            if i in words or (dates and not is_date(cell)) or (cell == "" and _step(below) == 1):
                return True
            values = True
    recurring = (row[i] == word for i, word in words.items() for row in rest if i < len(row))
    return bool(words) and not values and not any(recurring)


def may_be_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of a table of several columns may name them although it is numbers.

    It counts the columns, leaves the first cell empty, does not continue a column that counts its
    rows, or has whole numbers where there are only fractions below.
    """
    if len(first) < 2 or not rest:
        return False
    columns = list(zip(*rest[:_SAMPLE], strict=True))
    steps = [_step(column) for column in columns]
    for cell, column, step in zip(first, columns, steps, strict=True):
        if is_date(cell) or (step and _step([cell, *column]) == step):
            return False  # its row is like those below
        if not is_number(cell) and not is_missing(cell) and cell in column:
            return False
    numbers = [cell for cell in first if is_number(cell)]
    counts = len(numbers) > 1 and numbers == [str(i) for i in range(len(numbers))]
    below = [cell for column in columns for cell in column if is_number(cell)]
    fractions = all(map(str.isdigit, numbers)) and not any(map(str.isdigit, below))
    skips = len(rest) > 2 and any(steps)
    return bool(numbers) and (counts or first[0] == "" or skips or (fractions and below != []))


def _step(column: Sequence[str]) -> int:
    """The step of a column that counts its rows; otherwise 0."""
    if len(column) < 2 or not all(re.fullmatch(r"\d{1,9}", cell, re.ASCII) for cell in column):
        return 0
    steps = np.diff([int(cell) for cell in column])
    return int(steps[0]) if (steps == steps[0]).all() else 0


def is_boolean(word: str) -> bool:
    """Whether a word is False or True."""
    return word.lower() in ("false", "true")


def first_names(names: Iterable[str]) -> str:
    """The first of many names, for a message."""
    names = list(names)
    more = ", ..." if len(names) > _SHOWN else ""
    return printable(", ".join(names[:_SHOWN])) + more
