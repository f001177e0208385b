"""Series of numbers in files: columns of CSV, JSON and Parquet tables, with labels of time."""

import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint._text import name_of, read_bytes
from switchpoint.cli.output import shortened
from switchpoint.cli.sequence_io import first_of, is_header, parse_number, table_lines

MISSING = {"", "na", "n/a", "nan", "nat", "null", "none", "<na>"}
"""What stands for a missing observation, in lower case."""

TIME_NAMES = {"date", "datetime", "day", "hour", "month", "time", "timestamp", "week", "year"}
"""Names of columns that hold times, in lower case."""

_ISO_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([ T].*)?)?", re.ASCII)
_MAX_SHOWN = 40  # characters of a cell in a message
_PARQUET = b"PAR1"

Cell = str | float | None
"""A cell of a table: None where it is missing, a float only where it came as one."""


@dataclass(frozen=True)
class SeriesTable:
    """The columns of a table that hold the series, and the labels of its times."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "time columns"]
    """NaN where an observation is missing."""
    time_name: str | None = None
    times: tuple[str, ...] | None = None
    """The label of each time as the file has it; None where there is no such column."""


@dataclass(frozen=True)
class _Table:
    columns: Mapping[str, Sequence[Cell]]
    place: Callable[[int], str]  # where a row is, in the words of its format


def read_series(path: Path, columns: Sequence[str] = (), time: str | None = None) -> SeriesTable:
    """The series in these columns of a table, or in its only column of numbers.

    `time` is the column with the labels of time. If it is not given, a first column that holds
    dates, or is called date, time, year or the like, has them.
    """
    data = read_bytes(path)
    try:
        table = _read_table(data, path.suffix.lower(), [*columns, *([time] if time else [])])
        if not table.columns or not next(iter(table.columns.values())):
            raise ValueError("the file holds no observations")
        chosen = [_find(table, each) for each in columns]
        repeated = next((each for i, each in enumerate(chosen) if each in chosen[:i]), None)
        if repeated is not None:
            raise ValueError(f"column {repeated!r} is chosen twice")
        label = _time_column(table, chosen) if time is None else _find(table, time)
        if label in chosen:
            raise ValueError(f"column {label!r} cannot be both the series and its time")
        chosen = chosen or [_only_numbers(table, label)]
        values = np.stack([_numbers(table, each) for each in chosen], axis=-1)
        return SeriesTable(
            tuple(chosen), values, label, None if label is None else _labels(table, label)
        )
    except ValueError as error:
        raise ValueError(f"{name_of(path)}: {error}") from error


def _read_table(data: bytes, suffix: str, wanted: Sequence[str]) -> _Table:
    if suffix in (".parquet", ".pq") or data.startswith(_PARQUET):
        return _read_parquet(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is not text (byte {error.start} is not UTF-8)") from error
    if suffix == ".json" or (suffix not in (".csv", ".tsv") and text.lstrip()[:1] in ("{", "[")):
        return _read_json(text)
    return _read_csv(text, "\t" if suffix == ".tsv" else ",;\t", wanted)


def _read_csv(text: str, delimiters: str, wanted: Sequence[str]) -> _Table:
    lines = table_lines(text, delimiters, gaps=True)
    if not lines:
        return _Table({}, str)
    if len(lines) == 1 or all(len(cells) == 1 for _, cells in lines):
        # A list rather than a table: numbers in one line, or separated by spaces.
        tokens = [token for _, cells in lines for cell in cells for token in cell.split() or [""]]
        if len(tokens) > 1 and all(map(_is_number, tokens)):
            return _Table({"0": tokens}, lambda i: f"number {i}")
    first, rest = lines[0][1], [cells for _, cells in lines[1:]]
    missing = [cell for cell in first if cell and cell.lower() in MISSING]  # these are no names
    header = any(is_header(first, rest, each, missing) for each in (None, *wanted))
    names = first if header else [str(index) for index in range(len(first))]
    rows = lines[1:] if header else lines
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise ValueError(f"the table has two columns called {repeated!r}")
    for line, cells in rows:
        if len(cells) != len(names):
            raise ValueError(f"line {line} has {len(cells)} cells, the first has {len(names)}")
    columns = {name: [cells[i] for _, cells in rows] for i, name in enumerate(names)}
    return _Table(columns, lambda i: f"line {rows[i][0]}")


def _read_json(text: str) -> _Table:
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
            columns[name] = [_json_cell(cell) for cell in column]
    lengths = {name: len(column) for name, column in columns.items()}
    if not columns or len(set(lengths.values())) > 1:
        found = f", got columns of {first_of([f'{k}: {n}' for k, n in lengths.items()])}"
        raise ValueError(
            "JSON must be a list of numbers, a list of records, or an object of columns of equal "
            f"length{found if columns else ''}"
        )
    return _Table(columns, lambda i: f"row {i}")


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


def _json_cell(cell: Any) -> Cell:
    try:
        return cell if cell is None or isinstance(cell, str) else float(cell)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if cell > 0 else -math.inf


def _read_parquet(data: bytes) -> _Table:
    import pandas as pd

    try:
        frame = pd.read_parquet(io.BytesIO(data))
    except ImportError as error:
        raise ValueError(
            "reading Parquet needs the package pyarrow: pip install 'switchpoint[parquet]'"
        ) from error
    except Exception as error:  # damaged files fail in many ways
        raise ValueError("the file is damaged, or not a Parquet file") from error
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    columns: dict[str, list[Cell]] = {}
    for name, column in frame.items():
        is_number = pd.api.types.is_numeric_dtype(column)
        columns[str(name)] = [
            None if missing else float(cell) if is_number else str(cell)
            for cell, missing in zip(column, column.isna(), strict=True)
        ]
    return _Table(columns, lambda i: f"row {i}")


def _find(table: _Table, column: str) -> str:
    """The name of a column that is given by its name, or by its number from 0."""
    names = list(table.columns)
    if column in names:
        return column
    if column.isascii() and column.isdigit() and int(column) < len(names):
        return names[int(column)]
    raise ValueError(f"there is no column {column!r}; the columns are: {first_of(names)}")


def _time_column(table: _Table, chosen: Sequence[str]) -> str | None:
    first = next(iter(table.columns))
    cells = table.columns[first]
    is_time = first.lower() in TIME_NAMES or all(
        isinstance(cell, str) and _ISO_DATE.fullmatch(cell) for cell in cells
    )
    return first if is_time and first not in chosen and len(table.columns) > 1 else None


def _only_numbers(table: _Table, time: str | None) -> str:
    """The only column of numbers, apart from the time."""
    others = {name: cells for name, cells in table.columns.items() if name != time}
    found = [name for name, cells in others.items() if all(map(_is_number, cells))]
    if len(found) == 1:
        return found[0]
    if len(others) == 1:
        return next(iter(others))  # its first cell that is no number is refused by its place
    if found:
        raise ValueError(
            f"the table has {len(found)} columns of numbers, choose with --column (again for "
            f"several series with common switches): {first_of(found)}"
        )
    raise ValueError(f"no column holds only numbers; choose one with --column: {first_of(others)}")


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or cell.lower() in MISSING or parse_number(cell) is not None


def _numbers(table: _Table, name: str) -> Float[np.ndarray, " time"]:
    values = np.empty(len(table.columns[name]))
    for index, cell in enumerate(table.columns[name]):
        number: float | None = cell if isinstance(cell, float) else math.nan
        if isinstance(cell, str) and cell.lower() not in MISSING:
            number = parse_number(cell)
        if number is None or math.isinf(number):
            shown = shortened(cell, _MAX_SHOWN) if isinstance(cell, str) else cell
            raise ValueError(
                f"{shown!r} in column {name}, {table.place(index)}, is not a finite number; leave "
                "a missing observation empty, or write NA"
            )
        values[index] = number
    return values


def _labels(table: _Table, name: str) -> tuple[str, ...]:
    """The labels of time as text; a float that is whole is written as one."""
    labels = []
    for index, cell in enumerate(table.columns[name]):
        if cell is None or (isinstance(cell, str) and cell.lower() in MISSING):
            raise ValueError(f"there is no time in column {name}, {table.place(index)}")
        labels.append(cell if isinstance(cell, str) else f"{cell:.15g}")
    return tuple(labels)
