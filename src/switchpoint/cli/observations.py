"""Lines of a stream as observations: numbers or labels, alone, in a table or in JSON objects."""

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from switchpoint.cli.cells import MISSING, first_of, is_header, parse_number
from switchpoint.cli.output import shortened
from switchpoint.cli.series import TIME_NAMES
from switchpoint.cli.symbols import MAX_LABELS, parse_labels
from switchpoint.streams.engine import LARGEST

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?", re.ASCII)
_ASSIGNMENT = re.compile(r"=\s*[+-]?\.?\d")
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
    fields: tuple[str, ...] = ()
    """The fields that are the cells, where a line is a JSON object."""

    def parse(self, text: str) -> Observation:
        """The observation in a line."""
        cells = [text.strip()]
        if self.delimiter or self.fields:
            if self.fields:
                cells = _field_cells(_json_object(text), self.fields) if cells[0] else []
            else:
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
            return (
                "not a finite number; leave a missing observation empty, or write NA; if all are "
                "labels, list them with --labels"
            )
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

    A line is one value, a row of a table, or a JSON object. Values are symbols if their alphabet or
    labels are given; unless they are known to be `real`, also where the first ones are all 0 or 1,
    or words.
    """
    listed = () if labels is None else parse_labels(labels)
    head = next((line for line in lines if line.strip()), "")
    delimiter = next((mark for mark in ",;\t" if mark in head), "")
    fields: tuple[str, ...] = ()
    if head.lstrip()[:1] in ("{", "[") and head.strip() not in listed:
        delimiter, fields, rows = "", *_json_rows(lines)
    else:
        rows = []
        for line in lines:
            with suppress(ValueError):  # it is refused when it is observed
                rows.append(_cells(line, delimiter or ","))
    rows = [cells for cells in rows if any(cells)]
    if not rows and not fields:
        return LineFormat(alphabet=alphabet or len(listed) or None, labels=listed), False
    first = rows[0] if rows else []
    known = [*listed, *(cell for cell in first if cell and cell.lower() in MISSING)]
    header = not fields and any(
        is_header(first, rows[1:], each, known) for each in (None, time, *column)
    )
    names = fields or (first if header else [str(index) for index in range(len(first))])
    rows = rows[1:] if header else rows
    at = _time_column(names, rows, time, column, anywhere=bool(fields))
    chosen = tuple(_find(names, each) for each in column) or _values(names, rows, at, fields)
    odd = [names[each] for each in chosen if header and names[each] not in column]
    _refuse_units(lines, odd, "the name of a column, give it with --column")
    if alphabet is None and not real and len(chosen) == 1:
        cells = [row[chosen[0]] for row in rows if chosen[0] < len(row)]
        alphabet, listed = _guess_alphabet(cells, listed)
        if labels is None:
            _refuse_units(lines, listed, "a label, list all labels with --labels")
    chosen_names = tuple(names[each] for each in chosen) if header or fields else ("value",)
    if len(chosen) > 1 and not (header or fields):
        chosen_names = tuple(str(each) for each in chosen)
    delimiter = delimiter if len(names) > 1 else ""
    made = LineFormat(
        chosen_names, chosen, at, delimiter, len(names), alphabet, listed, fields=fields
    )
    return made, header


def _json_rows(lines: Sequence[str]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The fields of the JSON objects in these lines that are numbers or words, and their cells."""
    objects, problem = [], ""
    for number, line in enumerate(lines, 1):
        try:
            objects += [_json_object(line)] if line.strip() else []
        except ValueError as error:  # raised when the line is observed, if an object is before it
            problem = problem or f"line {number}: {error}"
    if problem and not objects:
        raise ValueError(problem)
    pairs = [pair for each in objects for pair in each.items()]
    fields = tuple(dict.fromkeys(k for k, value in pairs if not isinstance(value, list | dict)))
    if not fields:
        names = first_of(dict(pairs)) if pairs else "none at all"
        raise ValueError(f"the JSON objects have no field that is a number or a word, but {names}")
    rows = []
    for each in objects:
        with suppress(ValueError):
            rows.append(_field_cells(each, fields))
    return fields, rows


def _json_object(line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, list):
        raise ValueError(
            "it is a JSON list; write each observation into a line of its own, as a number or as a "
            'JSON object such as {"value": 1.5}'
        )
    if not isinstance(content, dict):
        raise ValueError(f"it is not a JSON object: {shortened(line.strip(), _MAX_SHOWN)}")
    return content


def _field_cells(content: Mapping[str, Any], fields: Sequence[str]) -> list[str]:
    """The fields of a JSON object as cells of a table, empty where there is none."""
    cells = []
    for name in fields:
        value = content.get(name)
        if isinstance(value, list | dict):
            kind = "a list" if isinstance(value, list) else "an object"
            raise ValueError(f"its field {name} is {kind}, not a number or a word")
        is_text = isinstance(value, str)
        cells.append("" if value is None else value.strip() if is_text else json.dumps(value))
    return cells


def _values(
    names: Sequence[str], rows: Sequence[Sequence[str]], at: int | None, fields: Sequence[str]
) -> tuple[int, ...]:
    """The only column of values beside the times; of the fields of JSON, that of numbers."""
    chosen = [index for index in range(len(names)) if index != at]
    kind = "columns of values"
    if fields and len(chosen) > 1:
        chosen = [index for index in chosen if _is_numeric([row[index] for row in rows])] or chosen
        kind = "fields of numbers" if _is_numeric([row[chosen[0]] for row in rows]) else "fields"
    if len(chosen) > 1:
        raise ValueError(
            f"a line has {len(chosen)} {kind}, choose with --column (again for several with common "
            f"switches): {first_of(names[each] for each in chosen)}"
        )
    return tuple(chosen)


def _is_numeric(cells: Sequence[str]) -> bool:
    seen = [cell for cell in cells if cell.lower() not in MISSING]
    return bool(seen) and all(parse_number(cell) is not None for cell in seen)


def _refuse_units(lines: Sequence[str], words: Iterable[str], remedy: str) -> None:
    """Refuse words of these lines that may be meant as numbers: 3 ms, $3, 40%, load=3."""
    for word in words:
        first = next((character for character in word if character.isalnum()), "")
        if first.isdigit() or _ASSIGNMENT.search(word):
            place = next((f"line {i}: " for i, line in enumerate(lines, 1) if word in line), "")
            raise ValueError(
                f"{place}{shortened(word, _MAX_SHOWN)!r} looks like a number with something beside "
                f"it: write numbers alone, or if it is {remedy}"
            )


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
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    time: str | None,
    columns: Sequence[str],
    anywhere: bool,
) -> int | None:
    """The column of the times: if not given, one that holds dates or is called so, if any.

    Only the first column is looked at, unless it may be anywhere.
    """
    if time is not None:
        return _find(names, time)
    for index, name in enumerate(names if anywhere else names[:1]):
        cells = [row[index] for row in rows if row[index]]
        dated = bool(cells) and all(map(_ISO_DATE.fullmatch, cells))
        if (dated or name.lower() in TIME_NAMES) and len(names) > 1 and name not in columns:
            return index
    return None
