"""Lines of a stream as observations: numbers or labels, alone, in a table or in JSON objects."""

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from switchpoint.cli.output import shortened
from switchpoint.cli.reader.cells import MISSING, first_names, guess_header, parse_number
from switchpoint.cli.reader.series import only_numbers, time_column
from switchpoint.cli.reader.symbols import MAX_LABELS, parse_labels
from switchpoint.cli.reader.tables import Table, column_names, guess_separator, make_frame
from switchpoint.streams.engine import LARGEST

_ASSIGNMENT = re.compile(r"=\s*[+-]?\.?\d")
_MAX_SHOWN = 40  # characters of a cell in a message


class Observation(NamedTuple):
    """The observation in a line."""

    values: tuple[float, ...]
    """The value in each column; NaN where it is missing."""
    time: str | None
    """The label of its time."""
    key: str = ""
    """The name of its series, where a stream has several."""


@dataclass(frozen=True)
class LineFormat:
    """The format of the lines of a stream, each of which is an observation."""

    names: tuple[str, ...] = ("value",)
    """The names of the columns that hold values."""
    columns: tuple[int, ...] = (0,)
    """The indices of their cells in a line."""
    time: int | None = None
    """The index of the cell that is the label of the time."""
    key: int | None = None
    """The index of the cell that names the series of the line."""
    delimiter: str = ""
    """The separator of cells; empty where a line is a single value."""
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

    def cells(self, text: str) -> list[str]:
        """The cells of a line."""
        if self.fields and text.strip():
            return _field_cells(_json_object(text), self.fields)
        if not self.delimiter:
            return [text.strip()]
        try:
            return [x.strip() for x in next(csv.reader([text], delimiter=self.delimiter), [])]
        except csv.Error as error:
            raise ValueError(f"it is no line of a table ({error})") from error

    def parse(self, text: str) -> Observation:
        """The observation in a line."""
        cells = self.cells(text)
        if not any(cells):
            return Observation((math.nan,) * len(self.columns), None)
        if len(cells) != self.width:
            raise ValueError(f"it has {len(cells)} cells, the first line has {self.width}")
        values = tuple([self._value(cells[each]) for each in self.columns])
        time = None if self.time is None else cells[self.time]
        return Observation(values, time, "" if self.key is None else cells[self.key])

    def shown(self, values: Sequence[float]) -> Any:
        """The values for JSON: a number or a label, or one for each column, null where missing."""
        shown = [
            None if value != value else self.labels[int(value)] if self.labels else value
            for value in values
        ]
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
        if self.labels:
            problem = f"not one of the labels {first_names(self.labels)}; list all with --labels"
        elif number is None:
            problem = (
                "not a finite number; leave a missing observation empty, or write NA; if all are "
                "labels, list them with --labels"
            )
        elif self.alphabet is None and abs(number) > LARGEST:
            problem = f"larger than {LARGEST:g}; write each observation into a line of its own"
        elif self.alphabet is not None and number not in range(self.alphabet):
            problem = (
                f"outside the alphabet 0..{self.alphabet - 1}; give --alphabet, or --segment level "
                "for real values"
            )
        else:
            return int(number) if self.alphabet else number
        raise ValueError(f"{shortened(cell, _MAX_SHOWN)!r} is {problem}")


def guess_format(
    lines: Sequence[str],
    column: Sequence[str] = (),
    time: str | None = None,
    alphabet: int | None = None,
    labels: str | None = None,
    real: bool = False,
    key: str | None = None,
) -> tuple[LineFormat, bool]:
    """The format of a stream that begins with these lines, and whether the first one is a header.

    A line is one value, a row of a table, or a JSON object. Values are symbols if their alphabet or
    labels are given, and unless they are `real` also if the first ones are all 0 or 1, or words.
    """
    listed = () if labels is None else parse_labels(labels)
    head = next((line for line in lines if line.strip()), "")
    separator = ""
    fields: tuple[str, ...] = ()
    if head.lstrip()[:1] in ("{", "[") and head.strip() not in listed:
        fields = _json_fields(lines)
    elif head:
        separator = guess_separator([line for line in lines if line.strip()], spaces=False)
    shape = LineFormat(delimiter=separator, fields=fields)
    rows: list[list[str]] = []
    for line in lines:
        with suppress(ValueError):  # it is refused when it is observed
            rows.append(shape.cells(line))
    rows = [cells for cells in rows if any(cells)]
    if not rows and not fields:
        return LineFormat(alphabet=alphabet or len(listed) or None, labels=listed), False
    first = rows[0] if rows else []
    labelled = [*listed, *(cell for cell in first if cell and cell.lower() in MISSING)]
    header = not fields and bool(guess_header(rows, (time, key, *column), labelled))
    names = fields or tuple(column_names(first) if header else map(str, range(len(first))))
    rows = [row for row in rows[header:] if len(row) == len(names)]
    table = Table(make_frame(names, rows), header=header)
    chosen = [table.find(each) for each in column]
    keyed = None if key is None else table.find(key)
    others = table if keyed is None else replace(table, frame=table.frame.drop(columns=keyed))
    at = time_column(others, chosen, time)
    chosen = chosen or list(only_numbers(others, at))
    odd = [name for name in chosen if header and name not in column]
    _refuse_units(lines, odd, "the name of a column, give it with --column")
    if alphabet is None and not real and len(chosen) == 1:
        alphabet, listed = _guess_alphabet(table.cells(chosen[0]), listed)
        if labels is None:
            _refuse_units(lines, listed, "a label, list all labels with --labels")
    line_format = LineFormat(
        tuple(chosen) if header or fields or len(chosen) > 1 else ("value",),
        tuple(table.names.index(name) for name in chosen),
        None if at is None else table.names.index(at),
        None if keyed is None else table.names.index(keyed),
        separator if len(names) > 1 else "",
        len(names),
        alphabet,
        listed,
        fields=fields,
    )
    return line_format, header


def _json_fields(lines: Sequence[str]) -> tuple[str, ...]:
    """The fields of the JSON objects in these lines that are numbers or words."""
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
        names = first_names(dict(pairs)) if pairs else "none at all"
        raise ValueError(f"the JSON objects have no field that is a number or a word, but {names}")
    return fields


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
