"""The labels of the times of a series: numbers or dates."""

import datetime
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from switchpoint._checks import is_missing, shown

_SAMPLE = 1000  # cells that show whether a column holds dates
_TOLERANCE = 0.1  # of a step: months, rounded decimal years and changed clocks deviate by less
_HOLIDAYS = 0.1  # the share of business days that may follow a holiday
_LONGEST_HOLIDAYS = 5  # business days in a row
_YEARS = (1600, 2200)  # of dates that are written as numbers
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_TIME = r"(?:(?: |T|, )\d{1,2}:\d\d[\d:.,+ TZAPM-]*)?"
_DATE = re.compile(
    rf"\d{{4}}([-/.])\d{{1,2}}\1\d{{1,2}}{_TIME}|\d{{4}}[-/]\d{{1,2}}|\d{{4}}[- ]?Q[1-4]"
    rf"|(?=.*:)\d{{8}}{_TIME}"
    rf"|\d{{1,2}}([-/.])\d{{1,2}}\2(?:\d{{4}}|\d\d){_TIME}"
    rf"|(?=.*\d)(?:[a-z]{{3,9}},? )?[\d ,./-]*(?:{_MONTHS})[a-z]*[\d ,./'-]*{_TIME}",
    re.ASCII | re.IGNORECASE,
)
_DAY_OR_MONTH = re.compile(r"(\d{1,2})(\D)\d{1,2}\D")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?)? ?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


@dataclass(frozen=True)
class Times:
    """The times of a series, which label its positions."""

    labels: tuple[str, ...]
    """The times as they were given."""
    coordinates: Shaped[np.ndarray, " time"]
    """Numbers or dates (datetime64) for an axis."""
    column: Shaped[np.ndarray, " time"]
    """Numbers or dates as they were given, if they were in an array, for a table."""
    order: str = ""
    """The order of dates whose year is last: "day first" or "month first"."""

    def take(self, rows: Int[np.ndarray, " rows"]) -> "Times":
        """The times of some rows."""
        labels = tuple(self.labels[row] for row in rows.tolist())
        return replace(
            self, labels=labels, coordinates=self.coordinates[rows], column=self.column[rows]
        )

    @cached_property
    def irregular(self) -> bool:
        """Whether steps differ by more than rounding, and are no business days or months."""
        return not _is_regular(self.coordinates)

    @property
    def steps(self) -> Float[np.ndarray, " steps"]:
        """The times from each observation to the next, in units of their median above 0."""
        steps = np.diff(self.coordinates).astype(float)
        return steps / np.median(steps[steps > 0]) if steps.any() else steps

    @property
    def seconds(self) -> float | None:
        """The median step of dates in seconds; None for numbers."""
        if self.coordinates.dtype.kind != "M" or len(self.coordinates) < 2:
            return None
        return float(np.median(np.diff(self.coordinates) / np.timedelta64(1, "s")))

    @cached_property
    def short(self) -> tuple[str, ...]:
        """The labels without what all timestamps share: zeros, fractions and a time zone."""
        parts = [_TIMESTAMP.fullmatch(label) for label in self.labels]
        if None in parts:
            return self.labels
        days, *finer, zones = zip(*(each.groups("") for each in parts if each), strict=True)
        while finer and not any(cell.strip(".:0") for cell in finer[-1]):
            finer.pop()
        finer += [zones] * (len(set(zones)) > 1)
        cells = zip(days, *finer, strict=True)
        return tuple(f"{day} {''.join(rest)}".rstrip() for day, *rest in cells)


def holds_dates(column: Any) -> bool:
    """Whether a column of pandas or polars begins with dates, apart from missing cells.

    Dates are typed, texts such as 2024-01-31, 31/01/2024 or Jan 31 2024, or numbers 20240131.
    """
    kind = str(getattr(column, "dtype", "")).lower()
    if kind.startswith(("date", "period", "timestamp")):
        return True
    if not kind.startswith(("object", "str", "int")):
        return False
    filled = (cell for cell in column if not is_missing(cell) and cell != "")
    cells = list(islice(filled, _SAMPLE))
    if not cells or is_date(cells[0]):
        return bool(cells) and all(map(is_date, cells))
    return len(_label(cells[0])) == 8 and _dates_in_digits([*map(_label, cells)], 8) is not None


def is_date(cell: Any) -> bool:
    """Whether a cell is a date or a text that looks like one."""
    if isinstance(cell, str):
        return _DATE.fullmatch(cell) is not None
    return isinstance(cell, datetime.date)


def parse_times(times: Any, length: int) -> Times:
    """The times, which are numbers or dates in order."""
    parsed = times if isinstance(times, Times) else read_times(times)
    labels, coordinates = parsed.labels, parsed.coordinates
    check_count(parsed, length)
    steps = np.diff(coordinates)
    zero = steps[:1] - steps[:1]
    if (steps < zero).any():
        at = int(np.argmax(steps < zero)) + 1
        raise ValueError(
            f"times must be in order, got {labels[at]} after {labels[at - 1]} at position {at}; "
            "sort the rows by time"
        )
    different = length - int((steps == zero).sum())
    if different <= length / 2 and length > 1:
        raise ValueError(
            f"times must differ, got {different} different ones for {length} observations; where "
            "several series are stacked in one table, pass one of them, or leave the times out"
        )
    return parsed


def warn_of_steps(times: Times) -> None:
    """Warn that steps of time differ where the model counts observations."""
    labels, coordinates, steps = times.labels, times.coordinates, np.diff(times.coordinates)
    # A tie between most frequent steps is broken by the smaller one.
    kinds, counts = np.unique(steps, return_counts=True)
    unusual = steps != kinds[np.argmax(counts)]
    if coordinates.dtype.kind == "M" and _on_business_days(coordinates).all():
        unusual &= _business_steps(coordinates) != 1
    other = int(np.argmax(unusual))
    warnings.warn(
        f"steps of time differ, for example from {labels[other]} to {labels[other + 1]}: times are "
        "labels only here, and lengths and slopes count observations; insert missing observations "
        "as NaN if that matters",
        stacklevel=3,
    )


def check_count(times: Times, length: int) -> None:
    """Raise a `ValueError` unless there is a time for each observation."""
    if len(times.labels) != length:
        raise ValueError(
            f"times must be as many as the observations ({length}), got {len(times.labels)}"
        )


def read_times(times: Any, day_first: bool | None = None) -> Times:
    """Numbers or dates in any order; `day_first` is for dates whose year is last.

    Where it is None and both orders are possible, the one with regular steps is taken; if that
    does not decide either, a `ValueError` is raised.
    """
    import pandas as pd

    try:
        cells: Any = [times] if isinstance(times, str) else list(times)
    except TypeError as error:
        raise ValueError(f"times must be a list of numbers or dates, got {shown(times)}") from error
    texts = all(isinstance(cell, str) for cell in cells)
    labels = tuple(cells) if texts else tuple(map(_label, cells))
    if all(label.endswith(" 00:00:00") for label in labels):
        labels = tuple(label.removesuffix(" 00:00:00") for label in labels)
    if cells and all(isinstance(cell, pd.Period) for cell in cells):
        cells = pd.PeriodIndex(cells).to_timestamp()
    coordinates, order = _numbers(labels), ""
    if coordinates is None:
        coordinates, order = _dates(labels, cells, day_first)
    given = coordinates if texts else np.asarray(times)
    return Times(labels, coordinates, given if given.dtype.kind in "iufM" else coordinates, order)


def _label(cell: Any) -> str:
    if isinstance(cell, np.datetime64):
        return str(cell.astype("datetime64[us]")).replace("T", " ").removesuffix(".000000")
    cell = cell.item() if isinstance(cell, np.generic) else cell
    return f"{cell:.15g}" if isinstance(cell, float) else str(cell)


def _numbers(labels: Sequence[str]) -> np.ndarray | None:
    """The labels as numbers, or as dates if these are written as 20240131 or 202401.

    None if one of them is not a finite number.
    """
    try:
        numbers = np.array([float(label) for label in labels])
    except ValueError:
        return None
    dates = _dates_in_digits(labels, 8)
    if dates is None and not _is_even(numbers):
        dates = _dates_in_digits(labels, 6)
    return dates if dates is not None else numbers if np.isfinite(numbers).all() else None


def _dates_in_digits(labels: Sequence[str], digits: int) -> np.ndarray | None:
    """Dates written as numbers of 8 digits (a day) or of 6 (a month), if all of them are."""
    import pandas as pd

    if not labels or not all(re.fullmatch(rf"\d{{{digits}}}", each, re.ASCII) for each in labels):
        return None
    form = "%Y%m%d" if digits == 8 else "%Y%m"
    dates = pd.to_datetime(pd.Index(labels), format=form, errors="coerce")
    if dates.isna().any() or dates.year.min() < _YEARS[0] or dates.year.max() > _YEARS[1]:
        return None
    return np.asarray(dates, "datetime64[us]")


def _dates(labels: Sequence[str], cells: Any, day_first: bool | None) -> tuple[np.ndarray, str]:
    """The dates, and the order of day and month if the year is last."""
    match = _DAY_OR_MONTH.match(labels[0])
    readings: dict[str, np.ndarray] = {}
    if match is None:
        forms = {"guessed": None, "ISO": "ISO8601", "short": "%b-%y"}
        if any(map(str.isalpha, labels[0])):  # months by name have no other order
            forms["mixed"] = "mixed"
        for name, form in forms.items():
            readings[name] = _read_dates(labels, cells, format=form)
            if _oddity(readings[name]) == (0, 0, False):
                return readings[name], ""
    else:
        for name in ("day first", "month first"):
            if day_first is None or day_first == (name == "day first"):
                readings[name] = _read_in_order(labels, name == "day first")
    best, *others = sorted(readings, key=lambda name: _oddity(readings[name]))
    dates = readings[best]
    if np.isnat(dates).any():
        at = int(np.argmax(np.isnat(dates)))
        order = "" if day_first is None or match is None else f" with the {best}"
        raise ValueError(
            f"times must be numbers or dates such as 2024-12-31{order}, got {shown(labels[at])} at "
            f"position {at}"
        )
    if match is None:
        return dates, ""
    tied = [each for each in others if _oddity(readings[each]) == _oddity(dates)]
    if match[2] != "." and tied and (readings[tied[0]] != dates).any():
        raise ValueError(
            f"dates such as {labels[int(np.argmax(readings[tied[0]] != dates))]} may have the day "
            "or the month first: say which with --dayfirst or --monthfirst, or in Python with "
            "pandas.to_datetime(times, dayfirst=...)"
        )
    return dates, best


def _read_in_order(labels: Sequence[str], day_first: bool) -> np.ndarray:
    """The dates if their first number is the day, or the month; NaT where it is not."""
    dates = _read_dates(labels, labels, dayfirst=day_first)
    months = dates.astype("datetime64[M]")
    days = (dates.astype("datetime64[D]") - months).astype(int) + 1
    leading = days if day_first else months.astype(int) % 12 + 1
    firsts = [_DAY_OR_MONTH.match(label) for label in labels]
    wrong = [
        each is None or int(each[1]) != first for each, first in zip(firsts, leading, strict=True)
    ]
    return np.where(wrong, np.datetime64("NaT"), dates)


def _read_dates(labels: Sequence[str], cells: Any, **options: Any) -> np.ndarray:
    """The dates in cells, or in their labels; NaT where that is no date."""
    import pandas as pd

    options |= {"utc": True, "errors": "coerce"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, where it must guess the format
        try:
            dates = pd.to_datetime(pd.Index(cells), **options)
        except (TypeError, ValueError, OverflowError):
            dates = pd.to_datetime(pd.Index(labels), **options)
    dates = np.asarray(dates.tz_localize(None), "datetime64[us]")
    return np.where(dates < np.datetime64("1000"), np.datetime64("NaT"), dates)


def _oddity(dates: np.ndarray) -> tuple[int, int, bool]:
    """The oddity of dates as a series: how many are not read, not in order; whether irregular."""
    missing = int(np.isnat(dates).sum())
    steps = np.diff(dates)
    disorder = int((steps < np.timedelta64(0)).sum())
    distinct = dates if (steps > np.timedelta64(0)).all() else np.unique(dates)
    return missing, disorder, missing == 0 and not _is_regular(distinct)


def _is_regular(coordinates: np.ndarray) -> bool:
    """Whether times have equal steps, or are the business days of a calendar with holidays."""
    if len(coordinates) < 3 or _is_even(coordinates):
        return True
    if coordinates.dtype.kind != "M" or not _on_business_days(coordinates).all():
        return False
    steps = _business_steps(coordinates)
    return bool(
        steps.min() == 1
        and steps.max() <= 1 + _LONGEST_HOLIDAYS
        and (steps > 1).mean() <= _HOLIDAYS
    )


def _is_even(coordinates: np.ndarray) -> bool:
    """Whether times lie on an even grid; one that is missing moves others by half a step."""
    if len(coordinates) < 2:
        return True
    numbers = (coordinates - coordinates[0]).astype(float)
    grid, step = np.linspace(0, numbers[-1], len(numbers), retstep=True)
    return bool(step > 0 and np.abs(numbers - grid).max() <= _TOLERANCE * step)


def _on_business_days(dates: np.ndarray) -> Bool[np.ndarray, " time"]:
    return np.is_busday(dates.astype("datetime64[D]"))


def _business_steps(dates: np.ndarray) -> np.ndarray:
    days = dates.astype("datetime64[D]")
    return np.busday_count(days[:-1], days[1:])
