"""The labels of the times of a series: numbers or dates."""

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

    if isinstance(times, pd.PeriodIndex):
        labels, cells = tuple(map(str, times)), times.to_timestamp()
    else:
        cells = list(times) if not isinstance(times, str) else [times]
        labels = tuple(map(_label, cells))
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
    if length > 2 and not (_even(steps) if numbers is not None else _regular(coordinates)):
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

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, where it must guess the format
        try:
            dates = pd.to_datetime(pd.Index(cells), utc=True, errors="coerce")
        except (TypeError, ValueError, OverflowError):
            dates = pd.to_datetime(pd.Index(labels), utc=True, errors="coerce")
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


def _regular(dates: np.ndarray) -> bool:
    """Whether dates follow a calendar: months and years have steps of different lengths."""
    import pandas as pd

    if _even(np.diff(dates).astype(float)):
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, whose result will be of another type
        return pd.infer_freq(pd.DatetimeIndex(dates)) is not None
