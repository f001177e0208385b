"""Series of numbers in the columns of a table, with the labels of their times."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from switchpoint._checks import shown
from switchpoint._text import locating, name_of
from switchpoint.cli.reader.cells import (
    MARKS,
    NumberColumn,
    first_names,
    is_missing,
    is_number,
    to_number,
)
from switchpoint.cli.reader.content import read_content
from switchpoint.cli.reader.tables import GUESSED, Layout, Table, read_table
from switchpoint.detection.times import Times, holds_dates, read_times

TIME_NAMES = {"date", "datetime", "day", "hour", "month", "t", "time", "timestamp", "week", "year"}
"""Names of columns that hold times, in lower case."""

_NO_TIME = "none"
_ONE_SERIES = {
    ",": "; if a comma is the decimal sign, give --decimal ,",
    " ": "; if it is one series, write each number into a line of its own",
}


@dataclass(frozen=True)
class FileSeries:
    """The series in a file."""

    frame: pd.DataFrame
    """Floats, NaN where an observation is missing."""
    time_name: str | None
    times: Times | None
    notes: tuple[str, ...]
    """How the file was read, for people."""
    groups: pd.Series | None = None
    """The group of each row, if there are groups."""

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
    group_by: str | None = None,
) -> FileSeries:
    """The series in these columns of a table, or in its only column of numbers.

    `time` is the column of the times, or `none`. If it is not given, it is the only column of
    dates, else one that is called date, time, year or similar. `group_by` is the column that says
    of which series a row is.
    """
    content = read_content(path)
    with locating(name_of(path)):
        table = read_table(content, layout, (*columns, time, group_by))
        if table.frame.empty:
            raise ValueError("the file holds no observations")
        groups = None
        if group_by is not None:
            name = table.find(group_by)
            table.filled_cells(name, "group", is_missing)
            groups, table = table.frame[name], replace(table, frame=table.frame.drop(columns=name))
        chosen = [table.find(each) for each in columns]
        repeated = next((each for i, each in enumerate(chosen) if each in chosen[:i]), None)
        if repeated is not None:
            raise ValueError(f"column {repeated!r} is chosen twice")
        label = time_column(table, chosen, time)
        numbers = {name: NumberColumn(table.cells(name)) for name in chosen}
        numbers = numbers or only_numbers(table, label)
        decimal, notes = _settle_decimal(numbers, layout.decimal)
        if decimal == ",":
            numbers = {name: NumberColumn(each.cells, ",") for name, each in numbers.items()}
        for name, column in numbers.items():
            for row in column.invalid:
                raise ValueError(
                    f"{shown(column.cells[row])} in column {name}, {table.place(row)}, is not a "
                    f"finite number{column.unit and f' in {column.unit}'}; leave a missing "
                    "observation empty, or write NA"
                )
            notes += (f"{name} in {column.unit}",) if column.unit else ()
        cells = {cell for column in numbers.values() for cell in column.cells}
        marks = sorted(cell for cell in cells if cell.lower() in MARKS)
        notes += (f"missing: {first_names(marks)}",) if marks else ()
        times = None if label is None else _read_times(table, label, decimal, day_first)
        if times is not None and groups is None:
            _check_one_series(table, str(label), times)
        unused = [name for name in table.names if name not in (label, *numbers)]
        notes += (f"not used: {first_names(unused)}",) if unused else ()
        frame = pd.DataFrame({name: column.values for name, column in numbers.items()})
        return FileSeries(frame, label, times, table.notes + notes, groups)


def time_column(table: Table, chosen: Sequence[str], given: str | None) -> str | None:
    """The column of the times beside the chosen ones.

    If it is not given, it is the only column of dates, else the first that is called date, time,
    year or similar; None if there is none, or if `none` is given.
    """
    if given is not None:
        label = None if given == _NO_TIME not in table.names else table.find(given)
        if label in chosen:
            raise ValueError(f"column {label!r} cannot be both the series and its time")
        return label
    if len(table.names) == 1:
        return None
    names = [name for name in table.names if name not in chosen]
    dates = [name for name in names if holds_dates(table.frame[name])]
    if len(dates) > 1:
        raise ValueError(
            f"{len(dates)} columns hold dates, choose with --time: {first_names(dates)}"
        )
    named = [name for name in names if name.lower() in TIME_NAMES]
    counted = names[:1] == table.names[:1] == ["index"] and is_number(table.cells("index")[0])
    return next(iter([*dates, *named, *(["index"] if counted else [])]), None)


def only_numbers(table: Table, time: str | None) -> dict[str, NumberColumn]:
    """The only column of numbers, apart from the time."""
    others = {name: NumberColumn(table.cells(name)) for name in table.names if name != time}
    numeric = {name: column for name, column in others.items() if column.holds_numbers}
    if len(others) == 1:
        return others  # the first cell that is not a number is refused by its place
    if len(numeric) == 1:
        ((name, column),) = numeric.items()
        steps = np.diff(column.values)
        if len(steps) > 1 and steps[0] != 0 and (steps == steps[0]).all():
            raise ValueError(
                f"the only column of numbers, {name}, counts the rows; choose a column with "
                f"--column: {first_names(others)}"
            )
        return numeric
    if numeric:
        remedy = "" if table.header else _ONE_SERIES.get(table.separator, "")
        raise ValueError(
            f"there are {len(numeric)} columns of numbers, choose with --column (again for "
            f"several series with common switches): {first_names(numeric)}{remedy}"
        )
    raise ValueError(
        f"no column holds only numbers; choose one with --column: {first_names(others)}"
    )


def _settle_decimal(
    numbers: Mapping[str, NumberColumn], given: str | None
) -> tuple[str, tuple[str, ...]]:
    """The decimal sign with which all cells are numbers, and a note of it."""
    invalid = any(column.invalid for column in numbers.values())
    comma = next((column.comma for column in numbers.values() if column.comma), "")
    if given is not None or not (invalid or comma):
        return given or ".", ()
    if any(NumberColumn(column.cells, ",").invalid for column in numbers.values()):
        return ".", (("thousands separated by commas",) if comma else ())
    if not invalid:
        point, other = (next(iter(to_number(comma, sign) or ())) for sign in ".,")
        raise ValueError(
            f"{comma!r} may be {point:g} or {other:g}: give --decimal . or --decimal ,"
        )
    return ",", ("decimal commas",)


def _read_times(table: Table, name: str, decimal: str, day_first: bool | None) -> Times:
    cells = table.filled_cells(name, "time", is_missing)
    if decimal == ",":  # 1959,083
        numbers = NumberColumn(cells, ",")
        cells = cells if numbers.invalid else [f"{number:.15g}" for number in numbers.values]
    return read_times(cells, day_first)


def _check_one_series(table: Table, name: str, times: Times) -> None:
    """Raise a `ValueError` where times repeat or go back, as those of stacked series do."""
    when = pd.Series(times.coordinates)
    repeated, back = when.duplicated(), when < when.shift()
    if not (repeated | back).any():
        return
    place = table.place(int((repeated | back).argmax()))
    problem = f"times in column {name} repeat or go back in {place}"
    one = "or give --time none if all of it is one series"
    for other in table.names:
        groups = when.groupby(table.frame[other].to_numpy())
        if 1 < groups.ngroups <= len(when) / 2 and all(
            group.is_unique and group.is_monotonic_increasing for _, group in groups
        ):
            choice = shlex.quote(f"{other}={table.frame[other].iloc[0]}")
            raise ValueError(
                f"{problem}, and column {other} distinguishes {groups.ngroups} series: analyse "
                f"each with --group-by {shlex.quote(other)}, choose one, such as --where {choice}, "
                f"{one}"
            )
    if back.any() or repeated.mean() >= 0.5:
        raise ValueError(
            f"{problem}: sort the rows, or if several series are stacked, choose one with --where "
            f"COLUMN=VALUE, {one}"
        )
