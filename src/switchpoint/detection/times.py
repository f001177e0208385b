"""The labels of the times of a series: numbers or dates."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Shaped

from switchpoint._checks import shown

_STEP_TOLERANCE = 1e-6  # relative: numbers such as 0.1, 0.2, 0.3 differ in their last digits


@dataclass(frozen=True)
class Times:
    """The times of a series; they label positions, and do not enter the model."""

    labels: tuple[str, ...]
    coordinates: Shaped[np.ndarray, " time"]
    """Numbers or dates (datetime64) for an axis."""
    column: Shaped[np.ndarray, " time"]
    """Numbers or dates as they were given, if they were in an array, for a table."""


def parse_times(times: Any, length: int) -> Times:
    """The labels of the times, which are numbers or dates in order.

    Warns if the steps between them differ, since the model counts observations.
    """
    import pandas as pd

    try:
        cells: Any = [times] if isinstance(times, str) else list(times)
    except TypeError as error:
        raise ValueError(f"times must be a list of numbers or dates, got {shown(times)}") from error
    labels = tuple(map(_label, cells))
    if cells and all(isinstance(cell, pd.Period) for cell in cells):
        cells = pd.PeriodIndex(cells).to_timestamp()
    if len(labels) != length:
        raise ValueError(f"times must be as many as the observations ({length}), got {len(labels)}")
    numbers = _numbers(labels)
    coordinates = _dates(labels, cells) if numbers is None else numbers
    steps = np.diff(coordinates)
    zero = steps[:1] - steps[:1]
    if (steps < zero).any():
        at = int(np.argmax(steps < zero)) + 1
        raise ValueError(
            f"times must be in order, got {labels[at]} after {labels[at - 1]} at position {at}; "
            "sort the rows by time"
        )
    regular = _even(steps) if numbers is not None else _regular(coordinates, cells)
    if length > 2 and not regular:
        # A tie between most frequent steps is broken by the smaller one.
        kinds, counts = np.unique(steps, return_counts=True)
        other = int(np.argmax(steps != kinds[np.argmax(counts)]))
        warnings.warn(
            f"steps of time differ, for example from {labels[other]} to {labels[other + 1]}: times "
            "are labels only, and lengths and slopes count observations; insert missing "
            "observations as NaN if that matters",
            stacklevel=3,
        )
    given = np.asarray(times)
    return Times(labels, coordinates, given if given.dtype.kind in "iufM" else coordinates)


def _label(cell: Any) -> str:
    """A time as text: dates without a time of day where that is midnight."""
    if isinstance(cell, np.datetime64 | np.integer | np.floating):
        cell = cell.item() if not isinstance(cell, np.datetime64) else cell.astype("datetime64[us]")
    text = f"{cell:.15g}" if isinstance(cell, float) else str(cell)
    return text.removesuffix(" 00:00:00").removesuffix("T00:00:00.000000")


def _numbers(labels: Sequence[str]) -> np.ndarray | None:
    """The labels as numbers, or None if one of them is not a finite number."""
    try:
        numbers = np.array([float(label) for label in labels])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _dates(labels: Sequence[str], cells: Any) -> np.ndarray:
    import pandas as pd

    def read(day_first: bool) -> pd.DatetimeIndex:
        options: Any = {"utc": True, "errors": "coerce", "dayfirst": day_first}
        try:
            return pd.to_datetime(pd.Index(cells), **options)
        except (TypeError, ValueError, OverflowError):
            return pd.to_datetime(pd.Index(labels), **options)

    # Where the year is last, the first date of which one number is above 12 tells whether the day
    # or the month comes first; without such a date, their order may. With points, it is the day.
    short = re.match(r"\d{1,2}\D\d{1,2}\D", labels[0])
    points = short is not None and short[0].endswith(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, where it must guess the format
        dates = min(
            (read(points), *([read(not points)] if short else [])),
            key=lambda dates: (int(dates.isna().sum()), not dates.is_monotonic_increasing),
        )
    missing = np.asarray(dates.isna())
    if missing.any():
        at = int(np.argmax(missing))
        raise ValueError(
            f"times must be numbers or dates such as 2024-12-31, got {shown(labels[at])} at "
            f"position {at}"
        )
    return np.asarray(dates.tz_localize(None), "datetime64[us]")


def _even(steps: np.ndarray) -> bool:
    return bool(np.ptp(steps) <= _STEP_TOLERANCE * np.abs(steps).max())


def _regular(dates: np.ndarray, cells: Any) -> bool:
    """Whether dates follow a calendar: months and years have steps of different lengths.

    So do days of a time zone in which clocks are changed.
    """
    import pandas as pd

    if len(dates) < 3 or _even(np.diff(dates).astype(float)):
        return True
    index = pd.Index(cells)
    local = index.tz_localize(None) if getattr(index, "tz", None) is not None else dates
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, whose result will be of another type
        return any(pd.infer_freq(pd.DatetimeIndex(each)) is not None for each in (dates, local))
