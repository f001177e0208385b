"""Series of numbers in the columns of a table, with the labels of their times."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from switchpoint._text import name_of, printable
from switchpoint.cli.cells import DECIMALS, first_of, is_mark, is_missing, is_number, to_number
from switchpoint.cli.output import shortened
from switchpoint.cli.reading import GUESSED, Layout, Table, read_content, read_table
from switchpoint.detection.times import Times, holds_dates, read_times

TIME_NAMES = {"date", "datetime", "day", "hour", "month", "time", "timestamp", "week", "year"}
"""Names of columns that hold times, in lower case."""

_NO_TIME = "none"
_ONE_SERIES = {
    ",": "; if a comma is the decimal sign, give --decimal ,",
    " ": "; if it is one series, write each number into a line of its own",
}
_MAX_SHOWN = 40  # characters of a cell in a message


@dataclass(frozen=True)
class FileSeries:
    """The series in a file."""

    frame: Any
    """A DataFrame of floats, NaN where an observation is missing."""
    time_name: str | None
    times: Times | None
    notes: tuple[str, ...]
    """How the file was read, for people."""

    @property
    def time(self) -> str:
        """The column of the times and the order of its dates, for people."""
        if self.times is None or not self.times.order:
            return self.time_name or "no column of times"
        days = self.times.coordinates.astype("datetime64[D]")
        at = next((i for i, day in enumerate(days) if day.item().day != day.item().month), 0)
        return f"{self.time_name}, {self.times.order} ({self.times.labels[at]} is {days[at]})"

    @property
    def read_as(self) -> list[str]:
        """Everything that was guessed."""
        return [*self.notes, f"time: {self.time}"]


def read_series(
    path: Path,
    columns: Sequence[str] = (),
    time: str | None = None,
    day_first: bool | None = None,
    layout: Layout = GUESSED,
) -> FileSeries:
    """The series in these columns of a table, or in its only column of numbers.

    `time` is the column of the times, or `none`. If it is not given, it is the only column of
    dates, else one that is called date, time, year or the like.
    """
    import pandas as pd

    content = read_content(path)
    try:
        table = read_table(content, replace(layout, names=(*columns, *([time] if time else []))))
        if table.frame.empty:
            raise ValueError("the file holds no observations")
        chosen = [table.find(each) for each in columns]
        repeated = next((each for i, each in enumerate(chosen) if each in chosen[:i]), None)
        if repeated is not None:
            raise ValueError(f"column {repeated!r} is chosen twice")
        label = _time_column(table, chosen) if time is None else _given_time(table, time)
        if label in chosen:
            raise ValueError(f"column {label!r} cannot be both the series and its time")
        chosen = chosen or [_only_numbers(table, label)]
        decimal, notes = _decimal_sign(table, chosen, layout.decimal)
        values = {}
        for name in chosen:
            values[name], unit = _numbers(table, name, decimal)
            notes += (f"{name} in {unit}",) if unit else ()
        marks = {str(cell) for name in chosen for cell in table.frame[name] if is_mark(cell)}
        notes += (f"missing: {first_of(sorted(marks))}",) if marks else ()
        times = None if label is None else _times(table, label, decimal, day_first)
        if times is not None:
            _check_one_series(table, str(label), times)
        unused = [name for name in table.names if name not in (label, *chosen)]
        notes += (f"not used: {first_of(unused)}",) if unused else ()
        return FileSeries(pd.DataFrame(values), label, times, table.notes + notes)
    except ValueError as error:
        raise ValueError(f"{name_of(path)}: {printable(str(error))}") from error


def _given_time(table: Table, time: str) -> str | None:
    return None if time == _NO_TIME and _NO_TIME not in table.names else table.find(time)


def _time_column(table: Table, chosen: Sequence[str]) -> str | None:
    names = [name for name in table.names if name not in chosen]
    if len(table.names) == 1:
        return None
    dates = [name for name in names if holds_dates(table.frame[name])]
    if len(dates) > 1:
        raise ValueError(f"{len(dates)} columns hold dates, choose with --time: {first_of(dates)}")
    counted = names[:1] == table.names[:1] == ["index"] and is_number(table.frame["index"].iloc[0])
    named = [name for name in names if name.lower() in TIME_NAMES]
    return next(iter([*dates, *named, *(["index"] if counted else [])]), None)


def _only_numbers(table: Table, time: str | None) -> str:
    """The only column of numbers, apart from the time."""
    others = [name for name in table.names if name != time]
    found = [
        name
        for name in others
        if not all(map(is_missing, table.frame[name]))
        and all(is_missing(cell) or is_number(cell) for cell in table.frame[name])
    ]
    if len(found) == 1:
        return found[0]
    if len(others) == 1:
        return others[0]  # its first cell that is no number is refused by its place
    if found:
        remedy = "" if table.header else _ONE_SERIES.get(table.separator, "")
        raise ValueError(
            f"the table has {len(found)} columns of numbers, choose with --column (again for "
            f"several series with common switches): {first_of(found)}{remedy}"
        )
    raise ValueError(f"no column holds only numbers; choose one with --column: {first_of(others)}")


def _decimal_sign(
    table: Table, columns: Sequence[str], given: str | None
) -> tuple[str, tuple[str, ...]]:
    """The decimal sign with which all cells are numbers, and a note if it is not the point."""
    if given is not None:
        return given, ()
    cells = [cell for name in columns for cell in table.frame[name] if not is_missing(cell)]
    commas = [cell for cell in cells if isinstance(cell, str) and "," in cell]
    fitting = [each for each in DECIMALS if all(to_number(cell, each) for cell in cells)]
    if len(fitting) > 1 and commas:
        point, comma = (next(iter(to_number(commas[0], each) or ())) for each in DECIMALS)
        raise ValueError(
            f"{commas[0]!r} may be {point:g} or {comma:g}: give --decimal . or --decimal ,"
        )
    if "." not in fitting and "," in fitting:
        return ",", ("decimal commas",)
    return ".", (("thousands separated by commas",) if commas else ())


def _numbers(table: Table, name: str, decimal: str) -> tuple[list[float], str]:
    """The numbers of a column, NaN where they are missing, and their common unit."""
    values: list[float] = []
    unit = ""
    for row, cell in enumerate(table.frame[name]):
        number = (math.nan, unit) if is_missing(cell) else to_number(cell, decimal)
        if number is None:
            shown = shortened(repr(cell), _MAX_SHOWN)
            raise ValueError(
                f"{shown} in column {name}, {table.place(row)}, is not a finite number; leave a "
                "missing observation empty, or write NA"
            )
        if number[1] != unit and any(value == value for value in values):
            raise ValueError(
                f"{cell!r} in column {name}, {table.place(row)}, has another unit than those above"
            )
        values.append(number[0])
        unit = number[1]
    return values, unit


def _times(table: Table, name: str, decimal: str, day_first: bool | None) -> Times:
    cells = table.frame[name].tolist()
    for row, cell in enumerate(cells):
        if is_missing(cell):
            raise ValueError(f"there is no time in column {name}, {table.place(row)}")
    numbers = [to_number(cell, decimal) for cell in cells if decimal == ","]
    if all(numbers):  # 1959,083
        cells = [number[0] for number in numbers if number] or cells
    return read_times(cells, day_first)


def _check_one_series(table: Table, name: str, times: Times) -> None:
    """Raise a `ValueError` where times repeat or go back, as those of stacked series do."""
    import pandas as pd

    when = pd.Series(times.coordinates)
    repeated, back = when.duplicated(), when < when.shift()
    if not (repeated | back).any():
        return
    place = table.place(int((repeated | back).argmax()))
    problem = f"times in column {name} repeat or go back in {place}"
    one = "or give --time none if all of it is one series"
    for other in table.names:
        groups = when.groupby(table.frame[other].map(str).to_numpy())
        if 1 < groups.ngroups <= len(when) / 2 and all(
            group.is_unique and group.is_monotonic_increasing for _, group in groups
        ):
            choice = shlex.quote(f"{other}={table.frame[other].iloc[0]}")
            raise ValueError(
                f"{problem}, and column {other} tells {groups.ngroups} series apart: choose one, "
                f"such as --where {choice}, {one}"
            )
    if back.any() or repeated.mean() >= 0.5:
        raise ValueError(
            f"{problem}: sort the rows, or if several series are stacked, choose one with --where "
            f"COLUMN=VALUE, {one}"
        )
