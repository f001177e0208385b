"""Symbols in one column of a table: CSV, TSV, and the like."""

import csv
import io
from collections.abc import Sequence

from switchpoint.cli.symbols import number, pick_row

SAMPLE_COLUMNS = ("sequence", "t", "symbol", "switch")
"""How the header of a table by `switchpoint sample` begins."""

_MOST_LISTED = 12


def table_numbers(
    text: str, origin: str, *, tabs: bool = False, column: str | None = None, row: int | None = None
) -> list[float]:
    """The numbers in a column, from a table with or without a header line.

    Of a table that `switchpoint sample` wrote, only the sequence number `row`.
    """
    lines = _lines(text, origin, tabs)
    if not lines:
        return []
    first = lines[0][1]
    header = any(cell and not _is_number(cell) for cell in first)
    names = first if header else [str(index) for index in range(len(first))]
    index = _column_index(names, column, origin)
    data = lines[1:] if header else lines
    if header and tuple(names[: len(SAMPLE_COLUMNS)]) == SAMPLE_COLUMNS:
        sequences = list(dict.fromkeys(cells[0] for _, cells in data))
        wanted = sequences[pick_row(len(sequences), row, origin)] if sequences else None
        data = [(line, cells) for line, cells in data if cells[0] == wanted]
    else:
        pick_row(1, row, origin)
    numbers = []
    for position, (line, cells) in enumerate(data):
        if index >= len(cells) or not cells[index]:
            raise ValueError(f"line {line} of {origin} has no value in column {names[index]}")
        numbers.append(number(cells[index], position))
    return numbers


def _lines(text: str, origin: str, tabs: bool) -> list[tuple[int, list[str]]]:
    """The lines that are not empty, numbered from 1, in cells."""
    head = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = "\t" if tabs else next((mark for mark in ",;\t" if mark in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        cells = [(reader.line_num, [cell.strip() for cell in line]) for line in reader]
    except csv.Error as error:
        raise ValueError(f"{origin} is not a table ({error})") from error
    return [(line, row) for line, row in cells if any(row)]


def _column_index(names: Sequence[str], column: str | None, origin: str) -> int:
    listed = ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
    if column is None:
        if len(names) == 1:
            return 0
        raise ValueError(
            f"{origin} has {len(names)} columns, choose one with --column, which are: {listed}"
        )
    if column in names:
        return names.index(column)
    if column.isascii() and column.isdigit() and int(column) < len(names):
        return int(column)
    raise ValueError(f"column {column!r} is not in {origin}, whose columns are: {listed}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
