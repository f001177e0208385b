"""Lines of a stream as observations: numbers or labels, alone or in columns of a table."""

import csv
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from switchpoint.cli.output import shortened
from switchpoint.cli.sequence_io import (
    MAX_LABELS,
    first_of,
    is_header,
    parse_labels,
    parse_number,
)
from switchpoint.cli.table_io import MISSING, TIME_NAMES
from switchpoint.streams.engine import LARGEST

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?", re.ASCII)
_MAX_SHOWN = 40  # characters of a cell in a message


class Observation(NamedTuple):
    """What a line says."""

    values: tuple[float, ...]
    """The value in each column; NaN where it is missing."""
    time: str | None
    """The label of its time."""


@dataclass(frozen=True)
class LineFormat:
    """How a line is an observation."""

    names: tuple[str, ...] = ("value",)
    """The names of the columns that hold values."""
    columns: tuple[int, ...] = (0,)
    """Which cells of a line these are."""
    time: int | None = None
    """Which cell is the label of the time."""
    delimiter: str = ""
    """What separates cells; empty where a line is a single value."""
    width: int = 1
    """The number of cells."""
    alphabet: int | None = None
    """The number of symbols; None for real values."""
    labels: tuple[str, ...] = ()
    """The labels of symbols, where they are not numbers."""
    header: str = ""
    """The first line of a file, if it has the names of the columns."""

    def parse(self, text: str) -> Observation:
        """The observation in a line."""
        cells = [text.strip()]
        if self.delimiter:
            cells = _cells(text, self.delimiter)
            if not any(cells):
                return Observation((math.nan,) * len(self.columns), None)
            if len(cells) != self.width:
                raise ValueError(f"it has {len(cells)} cells, the first line has {self.width}")
        values = tuple([self._value(cells[each]) for each in self.columns])
        return Observation(values, None if self.time is None else cells[self.time])

    def shown(self, values: Sequence[float]) -> Any:
        """The values for JSON: a number or a label, or one for each column, null where missing."""
        shown = [None if value != value else self._shown(value) for value in values]
        return shown[0] if len(shown) == 1 else dict(zip(self.names, shown, strict=True))

    def to_json(self) -> dict[str, Any]:
        """The fields, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "LineFormat":
        """The format with these fields."""
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**(fields | lists))

    def _value(self, cell: str) -> float:
        if cell in self.labels:
            return self.labels.index(cell)
        if cell.lower() in MISSING:
            return math.nan
        number = None if self.labels else parse_number(cell)
        if number is None or not self._allows(number):
            raise ValueError(f"{shortened(cell, _MAX_SHOWN)!r} is {self._problem(number)}")
        return int(number) if self.alphabet else number

    def _allows(self, number: float) -> bool:
        if self.alphabet is None:
            return abs(number) <= LARGEST
        return number in range(self.alphabet)

    def _problem(self, number: float | None) -> str:
        if self.labels:
            return f"not one of the labels {first_of(self.labels)}; list all with --labels"
        if number is None:
            return "not a finite number; leave a missing observation empty, or write NA"
        if abs(number) > LARGEST:
            return f"larger than {LARGEST:g}; write each observation into a line of its own"
        return (
            f"outside the alphabet 0..{int(self.alphabet or 0) - 1}; give --alphabet, or --segment "
            "level for real values"
        )

    def _shown(self, value: float) -> float | str:
        return self.labels[int(value)] if self.labels else value


def guess_format(
    lines: Sequence[str],
    column: Sequence[str] = (),
    time: str | None = None,
    alphabet: int | None = None,
    labels: str | None = None,
    real: bool = False,
) -> tuple[LineFormat, bool]:
    """The format of a stream that begins with these lines, and whether the first one is a header.

    A line is one value, or a row of a table. Values are symbols if their alphabet or labels are
    given; unless they are known to be `real`, also where the first ones are all 0 or 1, or words.
    """
    listed = () if labels is None else parse_labels(labels)
    head = next((line for line in lines if line.strip()), "")
    delimiter = next((mark for mark in ",;\t" if mark in head), "")
    rows = []
    for line in lines:
        with suppress(ValueError):  # it is refused when it is observed
            rows.append(_cells(line, delimiter or ","))
    rows = [cells for cells in rows if any(cells)]
    if not rows:
        return LineFormat(alphabet=alphabet or len(listed) or None, labels=listed), False
    first = rows[0]
    known = [*listed, *(cell for cell in first if cell and cell.lower() in MISSING)]
    header = any(is_header(first, rows[1:], each, known) for each in (None, time, *column))
    names = first if header else [str(index) for index in range(len(first))]
    rows = rows[1:] if header else rows
    at = _time_column(names, rows, time, column)
    chosen = tuple(_find(names, each) for each in column)
    if not chosen:
        chosen = tuple(index for index in range(len(names)) if index != at)
        if len(chosen) > 1:
            raise ValueError(
                f"a line has {len(chosen)} columns of values, choose with --column (again for "
                f"several with common switches): {first_of(names[each] for each in chosen)}"
            )
    if alphabet is None and not real and len(chosen) == 1:
        cells = [row[chosen[0]] for row in rows if chosen[0] < len(row)]
        alphabet, listed = _guess_alphabet(cells, listed)
    chosen_names = tuple(names[each] for each in chosen) if header else ("value",)
    if len(chosen) > 1 and not header:
        chosen_names = tuple(str(each) for each in chosen)
    delimiter = delimiter if len(names) > 1 else ""
    made = LineFormat(chosen_names, chosen, at, delimiter, len(names), alphabet, listed)
    return made, header


def _cells(line: str, delimiter: str) -> list[str]:
    """The cells of one line of a table."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error as error:
        raise ValueError(f"it is no line of a table ({error})") from error


def _guess_alphabet(
    cells: Sequence[str], labels: tuple[str, ...]
) -> tuple[int | None, tuple[str, ...]]:
    """The alphabet and the labels of these cells; None for real values."""
    if labels:
        return len(labels), labels
    seen = dict.fromkeys(cell for cell in cells if cell.lower() not in MISSING)
    if not seen:
        return None, ()
    if set(seen) <= {"0", "1"}:
        return 2, ()
    if any(parse_number(cell) is not None for cell in seen):
        return None, ()  # a word among numbers is refused by its line
    if len(seen) > MAX_LABELS:
        raise ValueError(f"{len(seen)} labels are too many (at most {MAX_LABELS})")
    return max(2, len(seen)), tuple(seen)


def _find(names: Sequence[str], column: str) -> int:
    if column in names:
        return list(names).index(column)
    if column.isascii() and column.isdigit() and int(column) < len(names):
        return int(column)
    raise ValueError(f"there is no column {column!r}; the columns are: {first_of(names)}")


def _time_column(
    names: Sequence[str], rows: Sequence[Sequence[str]], time: str | None, columns: Sequence[str]
) -> int | None:
    """The column of the times, if not given the first one if it holds dates or is called so."""
    if time is not None:
        return _find(names, time)
    dated = names[0].lower() in TIME_NAMES or (
        bool(rows) and all(_ISO_DATE.fullmatch(row[0]) for row in rows)
    )
    return 0 if dated and len(names) > 1 and names[0] not in columns else None
