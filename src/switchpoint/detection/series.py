"""A series of numbers as users have it: lists, arrays, Series and DataFrames."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from switchpoint import _checks
from switchpoint._checks import is_missing, shown
from switchpoint._labels import Labels, labels_of
from switchpoint.detection.times import Times, check_count, holds_dates, parse_times, read_times

_LARGEST = 1e290  # sums of differences of these, weighted by times, do not overflow


@dataclass(frozen=True)
class Series:
    """Observations in one or several columns."""

    values: Float[np.ndarray, "time columns"]
    """NaN where an observation is missing."""
    names: tuple[str, ...]
    """The names of the columns; a single one may have none, which is an empty text."""
    times: Times | None
    labels: Labels | None = None
    """The library and the index of the values, if they were a Series or a DataFrame."""
    times_are_index: bool = False

    def of_columns(self, columns: Sequence[int]) -> "Series":
        """The series with some of its columns."""
        names = tuple(self.names[i] for i in columns)
        return replace(self, values=self.values[:, list(columns)], names=names)


def parse_series(values: Any, times: Any = None) -> Series:
    """Numbers of shape (time,) or (time, columns), with labels of time.

    Columns of a DataFrame keep their names. The time is `times`, which may be the name of a
    column; else an index of dates or increasing numbers; else the only column of dates.
    """
    series, times = _read(values, times)
    check_observations(series.values, series.names)
    if times is None:
        return series
    return replace(series, times=parse_times(times, len(series.values)))


def parse_groups(values: Any, times: Any, group_by: Any) -> dict[Any, Callable[[], Series]]:
    """The series of each group, in the order of their first rows.

    Calling it raises a `ValueError` if there is none. `group_by` is the name of a column, or has a
    label for each row.
    """
    if isinstance(group_by, str):
        columns = list(getattr(values, "columns", ()))
        if group_by not in columns:
            raise ValueError(
                f"group_by must be the name of a column or labels of the rows, got {group_by!r}"
                + (f"; the columns are: {', '.join(map(str, columns[:12]))}" if columns else "")
            )
        labels = values[group_by].to_list()
        values = values[[name for name in columns if name != group_by]]
    else:
        labels = np.asarray(group_by, dtype=object).tolist()
    whole, times = _read(values, times)
    if len(labels) != len(whole.values):
        raise ValueError(
            f"group_by must have a label for each of {len(whole.values)} rows, got {len(labels)}"
        )
    groups: dict[Any, list[int]] = {}
    for row, label in enumerate(labels):
        if is_missing(label):
            raise ValueError(f"group_by must name the group of every row, got none in row {row}")
        groups.setdefault(label, []).append(row)
    parsed = times if times is None or isinstance(times, Times) else read_times(times)
    if parsed is not None:
        check_count(parsed, len(labels))
    return {
        label: functools.partial(_subset, whole, parsed, np.array(rows, int))
        for label, rows in groups.items()
    }


def _subset(whole: Series, times: Times | None, rows: Int[np.ndarray, " rows"]) -> Series:
    """The series in some rows."""
    values, labels = whole.values[rows], whole.labels
    if labels is not None and labels.index is not None:
        labels = replace(labels, index=labels.index[rows])
    check_observations(values, whole.names)
    selected = None if times is None else parse_times(times.take(rows), len(rows))
    return replace(whole, values=values, labels=labels, times=selected)


def _read(values: Any, times: Any) -> tuple[Series, Any]:
    """A series without times, and its times as they are given."""
    labels = labels_of(values)
    names: tuple[str, ...] = ("",)
    if labels is not None and hasattr(values, "columns"):
        columns = list(values.columns)
        if times is None and not _is_time(labels.index):
            dates = [name for name in columns if holds_dates(values[name])]
            times = dates[0] if len(dates) == 1 < len(columns) else None
        if isinstance(times, str):
            if times not in columns:
                raise ValueError(
                    f"times must be labels or the name of a column, got {times!r}; the columns "
                    f"are: {', '.join(map(str, columns[:12]))}"
                )
            if labels.library == "pandas":
                values, times = values.drop(columns=times), values.set_index(times).index
            else:
                values, times = values.drop(times), values[times].to_numpy()
        names = tuple(map(str, values.columns))
    elif labels is not None:
        names = ("" if values.name is None else str(values.name),)
    times_are_index = times is None and labels is not None and _is_time(labels.index)
    if labels is not None and times_are_index:
        times = labels.index
    array = _numbers(values)
    if len(set(names)) != array.shape[1]:
        names = tuple(str(index) for index in range(array.shape[1]))
    return Series(array, names, None, labels, times_are_index), times


def _is_time(index: Any) -> bool:
    """Whether the index of pandas says when: dates, or increasing numbers other than positions."""
    import pandas as pd

    if isinstance(index, pd.DatetimeIndex | pd.PeriodIndex):
        return True
    if index is None or index.equals(pd.RangeIndex(len(index))):
        return False
    return pd.api.types.is_any_real_numeric_dtype(index) and bool(
        index.is_monotonic_increasing and index.is_unique and np.isfinite(index).all()
    )


def _numbers(values: Any) -> Float[np.ndarray, "time columns"]:
    _checks.check_in_memory("values", values)
    if isinstance(values, str | bytes | dict | set):
        raise ValueError(f"values must be a list or an array of numbers, got {shown(values)}")
    try:
        raw = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"values must have rows of equal length, got {shown(values)}") from error
    if raw.ndim not in (1, 2) or raw.size == 0 or (len(raw) == 1 < raw.size):
        hint = ": transpose it" if raw.ndim == 2 and len(raw) == 1 < raw.size else ""
        raise ValueError(
            "values must have shape (time,) or (time, columns) with at least one observation, got "
            f"shape {raw.shape}{hint}"
        )
    array = (
        raw.astype(float)
        if raw.dtype.kind in "biuf"
        else _from_objects(np.asarray(values, dtype=object))
    )
    for wrong, wanted, remedy in (
        (np.isinf(array), "finite", "NaN is missing"),
        (np.abs(array) > _LARGEST, f"at most {_LARGEST:g} in size", "rescale them"),
    ):
        if wrong.any():
            at = np.argwhere(wrong)[0].tolist()
            raise ValueError(
                f"values must be {wanted}, got {array[tuple(at)]} at {_place(at)}; {remedy}"
            )
    return array.reshape(len(array), -1)


def _from_objects(raw: np.ndarray) -> np.ndarray:
    """Objects such as None, decimals and pandas' missing values as floats."""
    import pandas as pd

    array = np.empty(raw.shape)
    for at in np.ndindex(raw.shape):
        value = raw[at].item() if isinstance(raw[at], np.generic) else raw[at]
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            array[at] = np.nan if pd.isna(value) else float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"values must be numbers, got {shown(value)} at {_place(at)}"
            ) from error
    return array


def _place(at: Sequence[int]) -> str:
    return f"position {at[0]}" + (f" of column {at[1]}" if len(at) > 1 else "")


def check_observations(values: Float[np.ndarray, "time columns"], names: Sequence[str]) -> None:
    """Raise a `ValueError` that names the first column without any observation."""
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        name = names[int(np.argmax(empty))]
        raise ValueError(
            f"{f'column {name}' if name else 'the series'} has no observation: all {len(values)} "
            "are missing"
        )
