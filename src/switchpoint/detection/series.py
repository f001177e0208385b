"""A series of numbers as users have it: lists, arrays, Series and DataFrames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint._checks import shown
from switchpoint.detection.times import Times, parse_times


@dataclass(frozen=True)
class Series:
    """Observations in one or several columns."""

    values: Float[np.ndarray, "time columns"]
    """NaN where an observation is missing."""
    names: tuple[str, ...]
    """The names of the columns; a single one may have none, which is an empty text."""
    times: Times | None


def parse_series(values: Any, times: Any = None) -> Series:
    """Numbers of shape (time,) or (time, columns), with labels of time.

    Columns of a DataFrame keep their names, and its index of dates is the time; `times` may
    also be the name of one of its columns.
    """
    import pandas as pd

    names: tuple[str, ...] = ("",)
    if isinstance(values, pd.DataFrame):
        if isinstance(times, str):
            if times not in values.columns:
                raise ValueError(
                    f"times must be labels or the name of a column, got {times!r}; the columns "
                    f"are: {', '.join(map(str, values.columns[:12]))}"
                )
            values, times = values.drop(columns=times), values[times].to_numpy()
        names = tuple(map(str, values.columns))
    elif isinstance(values, pd.Series):
        names = ("" if values.name is None else str(values.name),)
    if times is None and isinstance(values, pd.DataFrame | pd.Series):
        dated = isinstance(values.index, pd.DatetimeIndex | pd.PeriodIndex)
        times = values.index if dated else None
    array = _numbers(values)
    if len(names) != array.shape[1]:
        names = tuple(str(index) for index in range(array.shape[1]))
    _check_observations(array, names)
    return Series(array, names, None if times is None else parse_times(times, len(array)))


def _numbers(values: Any) -> Float[np.ndarray, "time columns"]:
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
    infinite = np.isinf(array)
    if infinite.any():
        at = np.argwhere(infinite)[0].tolist()
        raise ValueError(
            f"values must be finite, got {array[tuple(at)]} at {_place(at)}; NaN is missing"
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
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"values must be numbers, got {shown(value)} at {_place(at)}"
            ) from error
    return array


def _place(at: Sequence[int]) -> str:
    return f"position {at[0]}" + (f" of column {at[1]}" if len(at) > 1 else "")


def _check_observations(values: Float[np.ndarray, "time columns"], names: Sequence[str]) -> None:
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        name = names[int(np.argmax(empty))]
        raise ValueError(
            f"{f'column {name}' if name else 'the series'} has no observation: all {len(values)} "
            "are missing"
        )
