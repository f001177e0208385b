"""Tables and arrays in files: text, JSON, Excel, Parquet and NumPy, plain or compressed.

What a file does not state (encoding, separator, header) is guessed from its content and noted;
where the content leaves it open, the file is refused by a sentence that names the option to give.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from switchpoint import _text
from switchpoint._text import printable, read_bytes
from switchpoint.cli.cells import (
    first_of,
    is_header,
    is_missing,
    is_number,
    is_value,
    may_be_header,
)

_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".parquet", ".pq")
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "pipes", ",": "commas", " ": "spaces"}
_COMPRESSED: Mapping[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ": ("xz", lzma.open),
}
_WORKBOOK = b"xl/workbook.xml"  # a file in the archive that a workbook is
_SAMPLE = 200  # lines that show the separator


@dataclass(frozen=True)
class Layout:
    """The layout of a file as far as it is given; None is guessed."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    sheet: str | None = None
    where: tuple[str, ...] = ()
    """COLUMN=VALUE: only the rows with these values."""
    names: tuple[str, ...] = ()
    """Columns that were asked for, which a header may have."""
    labels: tuple[str, ...] = ()
    """Labels of symbols, which no header has."""

    def __post_init__(self) -> None:
        for name, mark in (("tab", "\t"), ("\\t", "\t"), ("space", " ")):
            if self.separator == name:
                object.__setattr__(self, "separator", mark)
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
    """The cells of a table: text, or typed where the format has types."""

    frame: Any
    """A DataFrame of objects, indexed by the line or the row of the file."""
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
        if column in self.names:
            return column
        if column.isascii() and column.isdigit() and int(column) < len(self.names):
            return self.names[int(column)]
        raise ValueError(f"there is no column {column!r}; the columns are: {first_of(self.names)}")

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        return f"{self.unit} {self.frame.index[row]}"

    def only(self, where: str) -> "Table":
        """The rows with a value in a column, which are given as COLUMN=VALUE."""
        column, _, value = where.partition("=")
        cells = self.frame[self.find(column)].map(str)
        if not (cells == value).any():
            raise ValueError(
                f"column {column} has no {value!r} for --where; its values are: "
                f"{first_of(dict.fromkeys(cells))}"
            )
        return replace(self, frame=self.frame[cells == value], notes=(*self.notes, where))


@dataclass(frozen=True)
class Content:
    """The bytes of a file, uncompressed, and the suffix that tells their format."""

    data: bytes
    suffix: str
    notes: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether it is JSON by its suffix, or by its first character where that tells nothing."""
        if self.suffix in (".csv", ".tsv"):
            return False
        return self.suffix in (".json", ".jsonl") or self.data.lstrip()[:1] in (b"[", b"{")

    @property
    def is_table(self) -> bool:
        """Whether it is a table whatever it holds; other texts may be lists of symbols."""
        return self.suffix in _TABLES or self.is_json or self.data.startswith((b"PAR1", b"PK"))

    @property
    def is_array(self) -> bool:
        """Whether it is a NumPy file."""
        return self.suffix in (".npy", ".npz")

    def text(self) -> tuple[str, tuple[str, ...]]:
        """The text, and a note of its encoding where that is not UTF-8."""
        encoding = "utf-8"
        if self.data.startswith((b"\xff\xfe", b"\xfe\xff")):
            encoding = "utf-16"
        elif 0 in self.data[:2]:
            encoding = "utf-16-be" if self.data[0] == 0 else "utf-16-le"
        try:
            text = self.data.decode(encoding)
        except UnicodeDecodeError as error:
            if encoding != "utf-8" or re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", self.data):
                problem = f"byte {error.start} is not {encoding[:6].upper().rstrip('-')}"
                raise ValueError(f"the file is not text ({problem})") from error
            return self.data.decode("cp1252", "replace"), ("Windows-1252",)
        return text.removeprefix("\ufeff"), () if encoding == "utf-8" else ("UTF-16",)


def read_content(path: Path) -> Content:
    """The content of a file; at most `_text.LARGEST` bytes of it, packed and unpacked."""
    data, suffix = read_bytes(path), path.suffix.lower()
    if data.startswith(b"PK") and suffix != ".npz" and _WORKBOOK not in data:
        try:
            member, data = unpack(data)
        except ValueError as error:
            raise ValueError(f"{_text.name_of(path)}: {error}") from error
        return Content(data, Path(member).suffix.lower(), ("zip",))
    for start, (name, opener) in _COMPRESSED.items():
        if data.startswith(start):
            try:
                data = opener(io.BytesIO(data)).read(_text.LARGEST + 1)
            except Exception as error:  # damaged archives fail in many ways
                raise ValueError(f"{_text.name_of(path)}: the {name} archive is damaged") from error
            if suffix in (".gz", ".bz2", ".xz"):
                suffix = Path(path.stem).suffix.lower()
            return Content(_text.check_size(data, _text.name_of(path)), suffix, (name,))
    return Content(data, suffix)


def read_table(content: Content, layout: Layout) -> Table:
    """The table in a file."""
    data = content.data
    if content.suffix in (".parquet", ".pq") or data.startswith(b"PAR1"):
        table = Table(_read_parquet(data), "row", ("Parquet",))
    elif content.is_array:
        array = read_array(data)
        columns = range(array.shape[-1] if array.ndim > 1 else 1)
        table = Table(_frame(columns, array), "row", ("NumPy",))
    elif content.suffix in (".xlsx", ".xls", ".ods") or data.startswith(b"PK"):
        sheet, rows = _read_excel(data, layout.sheet)
        table = _with_names(rows, "row", layout)
        table = replace(table, notes=(f"Excel, sheet {sheet}", *table.notes))
    else:
        text, notes = content.text()
        content = replace(content, notes=content.notes + notes)
        if content.is_json:
            table = Table(_read_json(text), "row", ("JSON",))
        else:
            table = _read_text(text, content.suffix, layout)
    for each in layout.where:
        table = table.only(each)
    return replace(table, notes=content.notes + table.notes)


def _frame(names: Sequence[Any], rows: Any, index: Any = None) -> Any:
    import pandas as pd

    names = [str(name) for name in names]
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise ValueError(f"the table has two columns called {repeated!r}")
    return pd.DataFrame(rows, index=index, columns=names, dtype=object)


# --- text -------------------------------------------------------------------------------------


def _read_text(text: str, suffix: str, layout: Layout) -> Table:
    lines = [(i, line) for i, line in enumerate(re.split(r"\r\n|\r|\n", text), 1) if line.strip()]
    kept = [(i, line) for i, line in lines if not _is_comment(line)]
    notes = (f"comment lines skipped: {len(lines) - len(kept)}",) if len(kept) < len(lines) else ()
    if not kept:
        return Table(_frame([], None))
    separator = layout.separator or ("\t" if suffix == ".tsv" else None)
    if separator is None:
        separator = _guess_separator([line for _, line in kept], layout.decimal)
    rows = _split(kept, separator)
    if len(rows) == 1 or separator == "":
        cells = [cell for row in rows.values() for cell in row]
        tokens = [token for cell in cells for token in cell.split() or [""]]
        if len(tokens) > len(rows) and all(is_number(x) or is_missing(x) for x in tokens):
            return Table(_frame(["0"], tokens), "number", (*notes, "a list of numbers"))
    table = _with_names(rows, "line", layout)
    name = _SEPARATORS.get(separator, repr(separator))
    kind = f"separated by {name}" if separator else "one column"
    return replace(table, notes=(kind, *table.notes, *notes), separator=separator)


def _is_comment(line: str) -> bool:
    """Whether a line begins with #, but not with a missing value such as #N/A."""
    line = line.lstrip()
    return line.startswith("#") and not is_missing(re.split(r"[\t;|, ]", line)[0])


def _split(lines: Sequence[tuple[int, str]], separator: str) -> dict[int, list[str]]:
    """The cells of each row by the number of its line, without empty rows at both ends."""
    numbers, texts = zip(*lines, strict=True)
    if separator == " ":
        texts = tuple(" ".join(text.split()) for text in texts)
    reader = csv.reader(
        (f"{text}\n" for text in texts), delimiter=separator or "\x1f", skipinitialspace=True
    )
    try:
        cells = [(numbers[reader.line_num - 1], [*map(str.strip, row)]) for row in reader]
    except csv.Error as error:
        raise ValueError(f"the file is not a table ({error})") from error
    full = [line for line, row in cells if any(row) or len(row) == 1]
    return {line: row for line, row in cells if full and full[0] <= line <= full[-1]}


def _guess_separator(lines: Sequence[str], decimal: str | None) -> str:
    """The separator that makes rows of equal length, most of them values; empty for one column."""
    scores = {}
    for mark in _SEPARATORS:
        if mark in lines[0] and mark != decimal:
            rows = list(_split(list(enumerate(lines[:_SAMPLE])), mark).values())
            below = [cell for row in rows[1:] or rows for cell in row]
            share = sum(is_value(cell) or is_missing(cell) for cell in below) / max(1, len(below))
            widths = {len(row) for row in rows}
            if len(widths) == 1 and widths != {1} and (share > 0 or mark != " "):
                scores[mark] = share
    if scores:
        return max(scores, key=lambda mark: scores[mark])
    return next((mark for mark in "\t;|," if mark in lines[0] and mark != decimal), "")


def _with_names(rows: Mapping[int, Sequence[Any]], unit: str, layout: Layout) -> Table:
    """A table of these rows, whose first may be names and whose second may be units."""
    if not rows:
        return Table(_frame([], None))
    numbers, (first, *rest) = list(rows), rows.values()
    for number, row in rows.items():
        if len(row) != len(first):
            raise ValueError(
                f"{unit} {number} has {len(row)} cell{'s' * (len(row) != 1)}, the first has "
                f"{len(first)}; give --separator if they are separated otherwise"
            )
    header = layout.header
    if header is None:
        header = any(is_header(first, rest, each, layout.labels) for each in (None, *layout.names))
        if not header and may_be_header(first, rest):
            raise ValueError(
                f"{unit} {numbers[0]} ({first_of(first)}) may be names of columns or values: give "
                "--header or --no-header"
            )
    if not header:
        frame = _frame(range(len(first)), list(rows.values()), numbers)
        return Table(frame, unit, ("no header",), header=False)
    names = [str(i or "index") if is_missing(name) else name for i, name in enumerate(first)]
    notes, skipped = [f"names in {unit} {numbers[0]}"], 1
    if len(rest) > 1 and _is_units(*rest[:2]):
        notes.append(f"units in {unit} {numbers[1]} ({first_of(filter(None, rest[0]))})")
        skipped = 2
    return Table(_frame(names, rest[skipped - 1 :], numbers[skipped:]), unit, tuple(notes))


def _is_units(row: Sequence[Any], below: Sequence[Any]) -> bool:
    """Whether a row has words, and no value, where the next one has several values."""
    above = [cell for cell, next_cell in zip(row, below, strict=True) if is_value(next_cell)]
    return (
        len(above) > 1
        and not any(map(is_value, row))
        and any(isinstance(cell, str) and not is_missing(cell) for cell in above)
    )


# --- other formats ----------------------------------------------------------------------------


def _read_json(text: str) -> Any:
    """A list of numbers, a list of records, columns by name, or one of the former in lines."""
    try:
        content = json.loads(text)
    except ValueError as error:
        content = _json_lines(text, error)
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        names = dict.fromkeys(name for row in content for name in row)
        content = {name: [row.get(name) for row in content] for name in names}
    elif isinstance(content, list):
        content = {"0": content}
    columns = {}
    for name, column in content.items() if isinstance(content, dict) else ():
        column = list(column.values()) if isinstance(column, dict) else column
        if isinstance(column, list) and not any(isinstance(x, list | dict) for x in column):
            columns[name] = column
    lengths = [f"{name}: {len(column)}" for name, column in columns.items()]
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(
            "JSON must be a list of numbers, a list of records, or an object of columns of equal "
            f"length{f', got columns of {first_of(lengths)}' if columns else ''}"
        )
    return _frame(list(columns), list(zip(*columns.values(), strict=True)))


def _json_lines(text: str, problem: ValueError) -> list[Any]:
    """The rows of a text that is not JSON, for this reason, but whose lines are."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            reason = f"line {number} is not JSON ({error})"
            reason = reason if rows else f"the file is not JSON ({problem})"
            raise ValueError(reason) from error
    return rows


def _read_parquet(data: bytes) -> Any:
    import pandas as pd

    frame = _with_package(lambda: pd.read_parquet(io.BytesIO(data)), "Parquet", "pyarrow")
    frame = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    return _frame(list(frame.columns), frame.astype(object).to_numpy())


def _read_excel(data: bytes, sheet: str | None) -> tuple[str, dict[int, list[Any]]]:
    """The name of a sheet, the first if not given, and its rows by their number there."""
    import pandas as pd

    if _WORKBOOK not in data:
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
        raise ValueError(f"there is no sheet {sheet!r}; the sheets are: {first_of(sheets)}")
    frame = sheets[sheet].dropna(axis=1, how="all")
    frame = frame.astype(object).where(frame.notna(), "")
    full = np.flatnonzero((frame != "").any(axis=1)).tolist()
    rows = dict(enumerate(frame.to_numpy().tolist(), 1))
    return sheet, {i: row for i, row in rows.items() if full and full[0] < i <= full[-1] + 1}


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


def read_array(data: bytes) -> np.ndarray:
    """The array of one or two dimensions in an .npy file, or `symbols` in an .npz file."""
    file = io.BytesIO(unpack(data, "symbols")[1] if data.startswith(b"PK") else data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2
            array = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # damaged files fail in many ways, some of which suggest pickle
        raise ValueError("the file is damaged, or not a NumPy file of numbers or text") from error
    if array.dtype.kind not in "biufUS" or array.itemsize == 0:
        raise ValueError(f"the array must be of numbers or text, got {printable(str(array.dtype))}")
    if array.ndim not in (1, 2):
        raise ValueError(f"the array must have one or two dimensions, got shape {array.shape}")
    return array


def unpack(data: bytes, array: str | None = None) -> tuple[str, bytes]:
    """The only file in a zip archive, or that of this array, and its name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {each.filename: each for each in archive.infolist() if not each.is_dir()}
            chosen = [name for name in names if array in (None, name.removesuffix(".npy"))]
            if len(chosen) != 1:
                kind = f"no array `{array}`, but" if array else f"{len(names)} files, not one:"
                raise ValueError(f"it has {kind} {first_of(names)}")
            # The only methods that NumPy writes, and that unpack in bounded memory.
            if names[chosen[0]].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("its compression is neither stored nor deflated")
            with archive.open(chosen[0]) as file:
                unpacked = file.read(_text.LARGEST + 1)
    except Exception as error:  # damaged archives fail in many ways
        reason = printable(str(error)) or type(error).__name__
        raise ValueError(f"the archive cannot be read: {reason}") from error
    return chosen[0], _text.check_size(unpacked, chosen[0])
