"""A series, its segments, and the probability of a switch at each position."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from switchpoint.figures import style

_ALONE, _SHARING, _SWITCHES = 3.4, 2.3, 1.6  # the heights of the panels
_MARKERS_UP_TO = 400  # observations, which are then told apart
_BAND = 2.0  # standard deviations


def segmentation_figure(
    values: Float[np.ndarray, "time columns"],
    names: Sequence[str],
    levels: Float[np.ndarray, "time columns"],
    noise: Float[np.ndarray, "time columns"],
    floors: Sequence[float],
    switch_probability: Float[np.ndarray, " time"],
    changepoints: Int[np.ndarray, " switch"],
    intervals: Int[np.ndarray, "switch 2"],
    coverage: float,
    outliers: Bool[np.ndarray, "time columns"],
    times: Shaped[np.ndarray, " time"] | None = None,
    kinds: Sequence[str] = (),
    ahead: Float[np.ndarray, "horizon columns 3"] | None = None,
) -> Figure:
    """Each column with the levels of its segments and their bands, above P(switch at t).

    `times` are the coordinates of the observations on the axis: numbers or dates, or else their
    positions. `levels` and `noise` are NaN where there is none. No band goes below the floor of its
    column, such as 0 for counts. `kinds` are the names of the segments, if there are several.
    `ahead` is the forecast of the next observations: a lower bound, the mean and an upper bound.
    """
    count, columns = values.shape
    at: Any = np.arange(count) if times is None else times
    horizon = 0 if ahead is None else len(ahead)
    later = at[-1] + np.arange(horizon + 1) * (np.median(np.diff(at)) if count > 1 else 1)
    edges = _edges(np.append(at, later[1:].astype(at.dtype)))
    heights = [_ALONE if columns == 1 else _SHARING] * columns + [_SWITCHES]
    with style.styled():
        figure, panels = style.stacked_panels(heights)
        bounds = list(pairwise([0, *changepoints.tolist(), count]))
        for index, axes in enumerate(panels[:-1]):
            _series(axes, at, values[:, index])
            odd = outliers[:, index]
            if odd.any():
                axes.plot(at[odd], values[odd, index], "o", color=style.INK, fillstyle="none",
                          markersize=6, markeredgewidth=0.9, label="outlier")  # fmt: skip
            _segments(axes, at, edges, levels[:, index], noise[:, index], floors[index], bounds)
            shown = [values[:, index], levels[:, index]]
            if ahead is not None:
                low, mean, high = ahead[[0, *range(horizon)], index].T
                axes.plot(later, mean, color=style.BLUE, linewidth=1.5, label="forecast, 90%")
                axes.fill_between(later, low, high, color=style.BLUE, alpha=0.15, linewidth=0)
                shown += [low, high]
            _show_all(axes, *shown)
            for (start, end), kind in zip(bounds, kinds, strict=False):
                middle = edges[start] + (edges[end] - edges[start]) / 2
                axes.annotate(kind, (middle, 1), (0, -3), xycoords=("data", "axes fraction"),
                              textcoords="offset points", ha="center", va="top", fontsize=8,
                              color=style.INK)  # fmt: skip
            axes.set_ylabel(f"column {names[index]}" if names[index].isdigit() else names[index])
            style.mark_switches(axes, edges[changepoints], "change point")
        style.legend_above(panels[0], columns=5)
        _switches(panels[-1], at, switch_probability)
        for number, (begin, end) in enumerate(intervals.tolist()):
            label = f"{coverage:.0%} interval" if number == 0 else None
            panels[-1].axvspan(edges[begin], edges[end + 1], color=style.BLUE, alpha=0.13,
                               linewidth=0, label=label)  # fmt: skip
        if len(intervals):
            style.legend_above(panels[-1], columns=1)
        _time_axis(panels[-1], at, edges, times is None)
    return figure


def _edges(at: Any) -> Any:
    """The boundaries between neighbouring observations, and one at either end."""
    if len(at) == 1:
        half = np.timedelta64(12, "h") if at.dtype.kind == "M" else 0.5
        return np.array([at[0] - half, at[0] + half])
    middles = at[:-1] + (at[1:] - at[:-1]) / 2
    first, last = at[0] - (middles[0] - at[0]), at[-1] + (at[-1] - middles[-1])
    return np.concatenate([[first], middles, [last]])


def _series(axes: Axes, at: Any, values: Float[np.ndarray, " time"]) -> None:
    marked = len(values) <= _MARKERS_UP_TO
    marks: dict[str, Any] = {"marker": "o", "markersize": 2.6} if marked else {}
    axes.plot(at, values, color=style.GREY, linewidth=0.6 if marked else 0.7, label="data", **marks)


def _segments(
    axes: Axes,
    at: Any,
    edges: Any,
    levels: Float[np.ndarray, " time"],
    noise: Float[np.ndarray, " time"],
    floor: float,
    bounds: Sequence[tuple[int, int]],
) -> None:
    level_label: str | None = "level"  # of the first that is seen
    band_label: str | None = "level ± 2 noise"
    for start, end in bounds:
        inside = slice(start, end)
        # To the edges, so that a segment of one observation is seen too.
        where = np.concatenate([edges[start : start + 1], at[inside], edges[end : end + 1]])
        level, width = (np.pad(each[inside], 1, "edge") for each in (levels, _BAND * noise))
        if np.isnan(level).all():
            continue
        axes.plot(where, level, color=style.ORANGE, linewidth=1.8, label=level_label)
        level_label = None
        if not np.isnan(width).all():
            low, high = np.maximum(level - width, floor), level + width
            look: dict[str, Any] = {"color": style.ORANGE, "alpha": 0.15, "linewidth": 0}
            axes.fill_between(where, low, high, label=band_label, **look)
            band_label = None


def _switches(axes: Axes, at: Any, probability: Float[np.ndarray, " time"]) -> None:
    width = float(np.clip(500 / len(at), 0.8, 2.4))
    axes.vlines(at, 0, probability, color=style.BLUE, linewidth=width)
    highest = float(probability.max())
    axes.set_ylim(0, 1.02 if highest > 0.45 else max(0.05, 1.3 * highest))
    if highest > 0.45:
        axes.set_yticks([0, 0.5, 1])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    axes.set_ylabel("P(switch at t)")


def _show_all(axes: Axes, *shown: Float[np.ndarray, " _"]) -> None:
    """Limits by the data and the levels: the band of a short segment can be very wide."""
    low, high = min(map(np.nanmin, shown)), max(map(np.nanmax, shown))
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - margin, high + margin)


def _time_axis(axes: Axes, at: Any, edges: Any, positions: bool) -> None:
    axes.set_xlim(edges[0], edges[-1])
    if at.dtype.kind == "M":
        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    elif positions:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.set_xlabel("position t" if positions else "time")
