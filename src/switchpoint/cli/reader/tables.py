"""Tables in files: text, JSON, Excel, Parquet and NumPy, plain or compressed.

What a file does not state (encoding, separator, header) is guessed from its content and noted;
if the content is ambiguous, the file is refused with the option that settles it.
"""

import csv
import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from switchpoint import _text
from switchpoint._checks import is_missing as is_missing_value
from switchpoint._text import printable
from switchpoint.cli.reader.cells import first_names, guess_header, is_missing, is_number, is_value
from switchpoint.cli.reader.content import WORKBOOK, Content

SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "pipes", ",": "commas", " ": "spaces"}
"""The separators of columns that are recognised, and their names."""

_SAMPLE = 200  # lines that show the separator


@dataclass(frozen=True)
class Layout:
    """The layout of a file; None where it is to be guessed."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    sheet: str | None = None
    where: tuple[str, ...] = ()
    """COLUMN=VALUE: only the rows with these values."""

    def __post_init__(self) -> None:
        named = {"tab": "\t", "\\t": "\t", "space": " "}
        object.__setattr__(self, "separator", named.get(str(self.separator), self.separator))
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '\r\n"'):
            raise ValueError(
                f"separator must be one character, tab or space, got {self.separator!r}"
            )
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be a point or a comma, got {self.decimal!r}")
        for each in self.where:
            if "=" not in each:
                raise ValueError(f"where must be COLUMN=VALUE, got {each!r}")


GUESSED = Layout()


@dataclass(frozen=True)
class Table:
    """The cells of a table, as texts; empty where nothing is there."""

    frame: pd.DataFrame
    """Texts, indexed by the line or the row of the file."""
    unit: str = "row"
    notes: tuple[str, ...] = ()
    """How the file was read, for people."""
    header: bool = True
    separator: str = ""
    """The separator of columns in a text."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def find(self, column: str) -> str:
        """The name of a column that is given by its name, or by its number from 0."""
        names = self.names
        if column in names:
            return column
        if column.isascii() and column.isdigit() and int(column) < len(names):
            return names[int(column)]
        raise ValueError(f"there is no column {column!r}; the columns are: {first_names(names)}")

    def cells(self, column: str) -> list[str]:
        """The cells of a column."""
        return list(self.frame[column])

    def filled_cells(self, column: str, kind: str, is_missing: Callable[[str], bool]) -> list[str]:
        """The cells of a column, none of which may be missing; `kind` is what they are."""
        cells = self.cells(column)
        for row, cell in enumerate(cells):
            if is_missing(cell):
                raise ValueError(
                    f"there is no {kind} in column {printable(column)}, {self.place(row)}"
                )
        return cells

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        return f"{self.unit} {self.frame.index[row]}"

    def only(self, where: str) -> "Table":
        """The rows with a value in a column, which are given as COLUMN=VALUE."""
        column, _, value = where.partition("=")
        cells = self.frame[self.find(column)]
        if not (cells == value).any():
            raise ValueError(
                f"column {column} has no {value!r} for --where; its values are: "
                f"{first_names(dict.fromkeys(cells))}"
            )
        return replace(self, frame=self.frame[cells == value], notes=(*self.notes, where))


def read_table(
    content: Content,
    layout: Layout = GUESSED,
    names: Sequence[str | None] = (),
    labels: Sequence[str] = (),
) -> Table:
    """The table in a file.

    `names` are columns that were asked for, which a header may have, and `labels` those of symbols,
    which no header has.
    """
    kind, notes = content.kind, content.notes

    def with_names(
        rows: Sequence[Sequence[str]], numbers: Sequence[int], unit: str, note: str
    ) -> Table:
        """A table of these rows, of which the first may be names."""
        for number, row in zip(numbers, rows, strict=True):
            if len(row) != len(rows[0]):
                raise ValueError(
                    f"{unit} {number} has {len(row)} cell{'s' * (len(row) != 1)}, the first has "
                    f"{len(rows[0])}; give --separator if they are separated otherwise"
                )
        header = layout.header
        if header is None:
            header = guess_header(rows, names, labels) if rows else False
        if header is None:
            raise ValueError(
                f"{unit} {numbers[0]} ({first_names(rows[0])}) may be names of columns or values: "
                "give --header or --no-header"
            )
        columns = column_names(rows[0]) if header else range(len(rows[0]) if rows else 0)
        frame = make_frame(columns, rows[header:], numbers[header:])
        about = f"names in {unit} {numbers[0]}" if header else "no header"
        return Table(frame, unit, (note, about), header)

    if kind == "parquet":
        table = _typed_table(_read_parquet(content.data), "Parquet")
    elif kind == "array":
        table = _typed_table(pd.DataFrame(content.array()), "NumPy")
    elif kind == "excel":
        sheet, frame = _read_excel(content.data, layout.sheet)
        rows = frame.to_numpy().tolist()
        table = with_names(rows, list(frame.index + 1), "row", f"Excel, sheet {sheet}")
    else:
        text, encoding = content.text()
        notes += encoding
        if kind == "json":
            table = _typed_table(_read_json(text), "JSON")
        else:
            separator = layout.separator or ("\t" if content.suffix == ".tsv" else None)
            table = _read_text(text, separator, layout.decimal, with_names)
    for each in layout.where:
        table = table.only(each)
    return replace(table, notes=notes + table.notes)


def make_frame(names: Iterable[Any], rows: Any, index: Any = None) -> pd.DataFrame:
    """A DataFrame of texts with these columns, whose names must differ."""
    names = [str(name) for name in names]
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise ValueError(f"the table has two columns called {repeated!r}")
    return pd.DataFrame(rows, index=index, columns=names, dtype=object)


def _typed_table(frame: pd.DataFrame, note: str) -> Table:
    return Table(make_frame(frame.columns, _texts(frame).to_numpy()), notes=(note,))


def _texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Typed cells as texts."""
    return frame.astype(object).map(lambda x: "" if is_missing_value(x) else str(x).strip())


# --- text -------------------------------------------------------------------------------------


def _read_text(
    text: str, separator: str | None, decimal: str | None, with_names: Callable[..., Table]
) -> Table:
    pairs = [(i, x) for i, x in enumerate(re.split(r"\r\n|\r|\n", text), 1) if x.strip()]
    # A comment begins with #, but not with a missing value such as #N/A.
    kept = [
        (number, line)
        for number, line in pairs
        if line.lstrip()[0] != "#" or is_missing(re.split(r"[\t;|, ]", line.lstrip())[0])
    ]
    if not kept:
        return Table(make_frame([], None))
    notes = (f"comment lines skipped: {len(pairs) - len(kept)}",) if len(kept) < len(pairs) else ()
    numbers, lines = zip(*kept, strict=True)
    if separator is None:
        separator = guess_separator(lines[:_SAMPLE], decimal)
    rows, ends = split_rows(lines, separator)
    if len(rows) == 1 or separator == "":
        tokens = [token for row in rows for cell in row for token in cell.split() or [""]]
        if len(tokens) > len(rows) and all(is_number(x) or is_missing(x) for x in tokens):
            return Table(make_frame(["0"], tokens), "number", (*notes, "a list of numbers"))
    name = SEPARATORS.get(separator, repr(separator))
    kind = f"separated by {name}" if separator else "one column"
    table = with_names(rows, [numbers[end - 1] for end in ends], "line", kind)
    return replace(table, notes=table.notes + notes, separator=separator)


def split_rows(lines: Sequence[str], separator: str) -> tuple[list[list[str]], list[int]]:
    """The cells of each row, and the number of its last line from 1.

    A quoted cell may have several lines. Empty rows at both ends are left out.
    """
    if separator == " ":
        lines = [" ".join(line.split()) for line in lines]
    ended = (f"{line}\n" for line in lines)
    reader = csv.reader(ended, delimiter=separator or "\x1f", skipinitialspace=True)
    try:
        pairs = [(list(map(str.strip, row)), reader.line_num) for row in reader]
    except csv.Error as error:
        raise ValueError(f"the file is not a table ({error})") from error
    full = [i for i, (row, _) in enumerate(pairs) if len(row) == 1 or any(row)] or [0, -1]
    pairs = pairs[full[0] : full[-1] + 1]
    return [row for row, _ in pairs], [end for _, end in pairs]


def guess_separator(
    lines: Sequence[str], decimal: str | None = None, *, spaces: bool = True
) -> str:
    """The separator that makes rows of equal length, most of them values; empty for one column.

    It is never the decimal sign, and a space only if `spaces` may separate columns.
    """
    marks = [mark for mark in SEPARATORS if mark in lines[0] and mark != decimal]
    marks = marks if spaces else [mark for mark in marks if mark != " "]
    scores = {}
    for mark in marks:
        with suppress(ValueError):  # raised again if it is the separator
            rows, _ = split_rows(lines, mark)
            below = [cell for row in rows[1:] or rows for cell in row]
            share = sum(is_value(cell) or is_missing(cell) for cell in below) / max(1, len(below))
            widths = {len(row) for row in rows}
            if len(widths) == 1 and widths != {1} and (share > 0 or mark != " "):
                scores[mark] = share
    if scores:
        return max(scores, key=lambda mark: scores[mark])
    return next((mark for mark in "\t;|," if mark in marks), "")


def column_names(header: Sequence[str]) -> list[str]:
    """The names of columns in a header, of which an empty one is its number, or index."""
    return [str(i or "index") if is_missing(name) else name for i, name in enumerate(header)]


# --- other formats ----------------------------------------------------------------------------


def _read_json(text: str) -> pd.DataFrame:
    """A list of numbers, a list of records, columns by name, or one of the former in lines."""
    try:
        content = json.loads(text)
    except ValueError as error:
        content = _json_lines(text, error)
    if isinstance(content, list) and not (content and all(isinstance(x, dict) for x in content)):
        content = {"0": content}
    try:
        frame = pd.DataFrame(content, dtype=object)
        nested = frame.map(lambda cell: isinstance(cell, list | dict)).any()
        if nested.all():
            raise ValueError("all of its columns are nested")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            "JSON must be a list of numbers, a list of records, or an object of columns of equal "
            "length"
        ) from error
    return frame.loc[:, ~nested]


def _json_lines(text: str, problem: ValueError) -> list[Any]:
    """The rows of a text that is not JSON, for this reason, but whose lines are."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            place = f"line {number}" if rows else "the file"
            raise ValueError(f"{place} is not JSON ({error if rows else problem})") from error
    return rows


def _read_parquet(data: bytes) -> pd.DataFrame:
    frame = _with_package(lambda: pd.read_parquet(io.BytesIO(data)), "Parquet", "pyarrow")
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _read_excel(data: bytes, sheet: str | None) -> tuple[str, pd.DataFrame]:
    """The name of a sheet, the first by default, and its cells between empty ones."""
    if WORKBOOK not in data:
        raise ValueError("the file is not an Excel workbook (.xlsx): save it as .xlsx or .csv")
    size = 0
    with suppress(Exception), zipfile.ZipFile(io.BytesIO(data)) as archive:  # damage shows below
        size = sum(each.file_size for each in archive.infolist())
    if size > _text.LARGEST:
        raise ValueError(f"the workbook holds more than {_text.LARGEST // 2**20} MiB unpacked")
    options: Any = {"sheet_name": None, "header": None, "dtype": object, "engine": "openpyxl"}
    sheets = _with_package(lambda: pd.read_excel(io.BytesIO(data), **options), "Excel", "openpyxl")
    sheet = next(iter(sheets)) if sheet is None else sheet
    if sheet not in sheets:
        raise ValueError(f"there is no sheet {sheet!r}; the sheets are: {first_names(sheets)}")
    frame = _texts(sheets[sheet].dropna(axis=1, how="all"))
    full = np.flatnonzero((frame != "").any(axis=1)).tolist() or [0, -1]
    return sheet, frame.iloc[full[0] : full[-1] + 1]


def _with_package(read: Callable[[], Any], name: str, package: str) -> Any:
    """The result of reading a format for which pandas needs another package."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles that are unknown
            return read()
    except ImportError as error:
        extra = f"pip install 'switchpoint[{name.lower()}]'"
        raise ValueError(f"reading {name} needs the package {package}: {extra}") from error
    except Exception as error:  # damaged files fail in many ways
        raise ValueError(f"the file is damaged, or not of {name}") from error
