"""Elements of the studies' figures: panels, labels beside lines, bands, heat maps, seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullFormatter,
    NullLocator,
)
from scipy.optimize import isotonic_regression

from switchpoint._numbers import percent
from switchpoint.figures.style import (
    GREY,
    INK,
    WIDTH,
    darker,
    hue,
    line_style,
    marker_style,
    new_figure,
)
from switchpoint.paper.labels import Labelled, display_name, names, slices

Label = tuple[float, str, str]
"""The height of a label in data units, its text, and its colour."""

Panel = tuple[xr.Dataset, str]
"""A result and its title."""

_LINE_HEIGHT = 12.0  # points from one label to the next
_DARK = 0.55  # the share of the colour scale from which letters are white
_EXACT = ("kt", "oracle", "ptw", "lin", "optimum")
_SPREAD = 0.44  # the share of a column over which the dots are spread
_LEAST_SPAN = 5e-4  # of the optimum's regret: what a panel shows at least


def panels(
    count: int, columns: int, height: float, extra: float = 0.0, title: str = "", **options: Any
) -> Any:
    """A figure of the usual width, and axes for `count` panels in rows of `columns`.

    Each row has a `height` in inches, and the figure an `extra` one.
    """
    rows = -(-count // columns)
    figure: Figure = new_figure(WIDTH, height * rows + extra)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def panels_along(
    values: Labelled, dimension: str, columns: int, height: float, extra: float, **options: Any
) -> tuple[Figure, list[tuple[Axes, str, Labelled]]]:
    """The same with a panel for each label of a dimension: its axes, the label, the values."""
    parts = list(slices(values, dimension))
    figure, used = panels(len(parts), columns, height, extra, **options)
    return figure, [(axes, name, one) for axes, (name, one) in zip(used, parts, strict=True)]


def labels_right(figure: Figure, labels: Mapping[Axes, Sequence[Label]]) -> None:
    """Labels at the right edge of axes, each as near its height as the others let it be.

    All else must be final: the figure is laid out here.
    """
    figure.draw_without_rendering()
    for axes, beside in labels.items():
        beside = sorted(beside, key=lambda label: label[0])
        height = axes.get_window_extent().height * 72 / figure.dpi  # in points
        rows = [(axes.get_xlim()[1], value) for value, _, _ in beside]
        to_axes = axes.transData + axes.transAxes.inverted()
        wanted = np.clip(to_axes.transform(np.reshape(rows, (-1, 2)))[:, 1], 0.0, 1.0)
        bottom, top = axes.get_ylim()  # what is outside has no line to lead to
        # To the middle of the text's left edge: elsewhere it would cross the labels beside it.
        leader = {"arrowstyle": "-", "linewidth": 0.6, "shrinkB": 0, "relpos": (0, 0.5)}
        places = spread_apart(wanted, _LINE_HEIGHT / height)
        for at, place, (value, text, colour) in zip(wanted, places, beside, strict=True):
            axes.annotate(
                text,
                xy=(1.0, at),
                xytext=(14, (place - at) * height),
                xycoords="axes fraction",
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=darker(colour),
                annotation_clip=False,
                arrowprops=leader | {"color": colour} if bottom <= value <= top else None,
            )


def spread_apart(wanted: Float[np.ndarray, " label"], step: float) -> Float[np.ndarray, " label"]:
    """Places at least `step` apart, least squares from those wanted, and below the top."""
    offsets = step * np.arange(len(wanted))
    places = isotonic_regression(wanted - offsets).x + offsets if len(wanted) else wanted
    return np.minimum(places, 1.0 - step / 2 - offsets[::-1])


def band(
    axes: Axes,
    at: np.ndarray,
    middle: Float[np.ndarray, " point"],
    width: Float[np.ndarray, "*down_up point"],
    predictor: str,
    **options: Any,
) -> None:
    """A line with a band of `width` to either side, or of (down, up); the line alone where NaN."""
    style = {**line_style(predictor), **options}
    axes.plot(at, middle, **style)
    down, up = np.broadcast_to(width, (2, len(middle)))
    low = middle - down
    if axes.get_yscale() == "log":
        low = np.maximum(low, 1e-3 * middle)  # a band to below zero goes down to the edge
    axes.fill_between(at, low, middle + up, color=style["color"], alpha=0.15, linewidth=0)


def error_bars(axes: Axes, at: np.ndarray, one: xr.Dataset, name: str, **style: Any) -> None:
    """The mean of a variable with bars of its deviation between seeds, where there are several."""
    deviation = np.nan_to_num(one[f"{name}_deviation"].values)
    axes.errorbar(at, one[f"{name}_mean"].values, yerr=deviation, **style)


def plain_numbers(axis: Axis, *steps: float) -> None:
    """Numbers of a logarithmic axis as people write them: 0.1, 1, 10.

    They stand at the multiples `steps` of the powers of ten, if given.
    """
    if steps:
        axis.set_major_locator(LogLocator(base=10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def powers_axis(axes: Axes, at: Int[np.ndarray, " point"]) -> None:
    """A horizontal axis in powers of two, with a number at every point."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(value) for value in at]))
    axes.xaxis.set_minor_locator(NullLocator())
    plain_numbers(axes.xaxis)


def position_axis(axes: Axes, length: int) -> None:
    """A horizontal axis of positions from 0."""
    axes.set_xlim(-0.5, length - 0.5)
    if length % 8 == 0:  # where switches are likely
        axes.xaxis.set_major_locator(MultipleLocator(length // 8))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_xlabel("position t")


def draw_symbols(axes: Axes, symbols: np.ndarray, probability: np.ndarray) -> None:
    """Ones as ticks above and zeros as ticks below, with the true bias behind."""
    times = np.arange(len(symbols))
    width = float(np.clip(300 / len(symbols), 0.4, 1.6))
    for ones, low, high in ((True, 1.04, 1.11), (False, -0.11, -0.04)):
        at = times[(symbols == 1) == ones]
        axes.vlines(at, low, high, color=GREY, linewidth=width, alpha=0.8)
    axes.step(times, probability, where="mid", color="#B9B9B9", linewidth=3.2, label="true bias")
    axes.set_ylim(-0.14, 1.14)
    axes.set_yticks([0, 0.5, 1])


def legend_of(axes: Axes, place: str = "upper right", **options: Any) -> None:
    """A legend outside all panels for what one of them shows."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    where: Any = f"outside {place}"
    figure.legend(*axes.get_legend_handles_labels(), loc=where, **options)


def name_panel(axes: Axes, predictor: str) -> None:
    """The name of the predictor that a panel shows, in its colour, at the top right."""
    place: Any = {"ha": "right", "va": "top", "transform": axes.transAxes, "fontweight": "bold"}
    sheet = {"facecolor": "white", "linewidth": 0, "pad": 1}  # over what is drawn there
    colour = darker(hue(predictor))
    axes.text(0.995, 0.95, display_name(predictor), color=colour, bbox=sheet, zorder=6, **place)


def log_norm(values: Float[np.ndarray, "..."], least_ratio: float = 10.0) -> LogNorm:
    """A logarithmic colour scale over the positive values, of three decades at most.

    Its ends differ by a factor of `least_ratio` at least, so that small differences look small.
    """
    positive = values[np.isfinite(values) & (values > 0)]
    top = float(positive.max()) if positive.size else 1.0
    low = max(float(positive.min()), top / 1000) if positive.size else 0.1
    return LogNorm(min(low, top / least_ratio), top, clip=True)


def squares(
    axes: Axes,
    table: Float[np.ndarray, "row column"],
    norm: LogNorm,
    title: str,
    rows: Sequence[Any] | np.ndarray,
    columns: Sequence[Any] | np.ndarray,
    **column_style: Any,
) -> AxesImage:
    """A table in colours, with its numbers and the labels of its rows; NaN is left blank."""
    axes.set_title(title)
    axes.set_xticks(range(len(columns)), list(map(str, columns)), **column_style)
    axes.set_yticks(range(len(rows)), list(map(str, rows)))
    # What is not positive (the optimum on its own source, or noise) has the lowest colour.
    lowest = float(norm.vmin or 0.0)
    lifted = np.where(table <= 0, lowest, table)
    image = axes.imshow(lifted, norm=norm, cmap="Blues", aspect="auto")
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            ink = "white" if float(norm(max(value, lowest))) > _DARK else INK
            axes.text(column, row, _short(float(value)), color=ink, **style)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _short(value: float) -> str:
    """A number in few digits, two of them significant."""
    size = abs(value)
    digits = 0 if size >= 99.5 else 1 if size >= 9.95 else 2 if size >= 0.0995 else 3
    return f"{value:.{digits}f}"


def seed_panels(shown: Sequence[Panel], kind: str = "regret", close: bool = False) -> Figure:
    """A column of dots for each architecture, one for each seed, among exact predictors.

    The regret; or with the kind `excess` the regret above the exact optimum on a logarithmic scale.
    With `close`, a panel shows the seeds and the optimum alone, and says how little it spans.
    """
    figure, used = panels(len(shown), 2, 3.1, 0.4)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=GREY, markersize=5, label="one seed"),
        Line2D([], [], marker="v", linestyle="", color=INK, markersize=5, label="minimum"),
        Line2D([], [], color=INK, linewidth=1.6, label="median"),
        Line2D([], [], color=GREY, linestyle=(0, (5, 2)), label="exact predictor"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    labels = {}
    for axes, (one, title) in zip(used, shown, strict=True):
        if kind == "excess":
            axes.set_yscale("log", nonpositive="mask")
        _columns(axes, one, kind)
        axes.set_title(title)
        axes.set_ylabel("excess regret (bits)" if kind == "excess" else "regret (bits)")
        exact = one[f"exact_{kind}"].sel(exact=[name for name in _EXACT if name in one["exact"]])
        values = {name: float(value) for name, value in slices(exact.dropna("exact"), "exact")}
        ends = float(one[kind].min()), float(one[kind].max())
        if kind == "excess":
            labels[axes] = _lines_above(axes, values, *ends)
        else:
            labels[axes] = _exact_lines(axes, values, ends[1], close)
    labels_right(figure, labels)
    return figure


def _columns(axes: Axes, one: xr.Dataset, kind: str) -> None:
    architectures = names(one["architecture"])
    for place, (architecture, column) in enumerate(slices(one, "architecture")):
        seeds = column[kind].values[np.isfinite(column[kind].values)]
        spread = np.linspace(-0.5, 0.5, len(seeds)) if len(seeds) > 1 else np.zeros(len(seeds))
        dots: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0, "alpha": 0.75, "zorder": 3}
        style = {"color": hue(architecture), **dots}
        axes.plot(place + _SPREAD * spread, seeds, marker_style(architecture), **style)
        ends = [place - 0.34, place + 0.34]
        median = [float(column[f"{kind}_median"])] * 2
        axes.plot(ends, median, linewidth=1.6, color=INK, zorder=4, solid_capstyle="butt")
        lowest = float(column[f"{kind}_minimum"])
        axes.plot([place], [lowest], "v", markersize=4.5, color=INK, zorder=4)
    axes.set_xlim(-0.6, len(architectures) - 0.4)
    slanted: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(architectures)), list(map(display_name, architectures)), **slanted)
    axes.grid(False, axis="x")


def _lines_above(axes: Axes, values: Mapping[str, float], low: float, top: float) -> list[Label]:
    """A logarithmic axis over the seeds, and dashed lines of the exact predictors, as labels."""
    plain_numbers(axes.yaxis)
    floor = max(low, 1e-3 * top, 1e-6)
    ceiling = max([top, *values.values()])
    axes.set_ylim(floor / 1.5, 1.5 * ceiling)
    if ceiling < 100 * floor:  # one number to a decade would be too few
        plain_numbers(axes.yaxis, 1, 2, 5)
    above = {name: value for name, value in values.items() if value > axes.get_ylim()[0]}
    for name, value in above.items():
        axes.axhline(value, linewidth=1.3, zorder=1.5, **line_style(name))
    return [
        (value, f"{display_name(name)} {value:.2f}", hue(name)) for name, value in above.items()
    ]


def _exact_lines(axes: Axes, values: Mapping[str, float], top: float, close: bool) -> list[Label]:
    """Dashed lines of exact predictors; returns their labels, with an arrow for those outside."""
    merged: dict[str, list[str]] = {}  # the optimum first: equal ones share its line
    for name in sorted(values, key=lambda name: name != "optimum"):
        alike = (each for each in merged if np.isclose(values[name], values[each], 1e-4, 0))
        merged.setdefault(next(alike, name), []).append(name)
    floor = min(values.values(), default=0.0)
    optimum = values.get("optimum", floor)
    if close:
        floor = min(optimum, top)
        upper = floor + max(1.25 * (top - floor), _LEAST_SPAN * optimum)
        note = f"axis spans {percent(1.12 * (upper - floor) / optimum)} of the optimum"
        axes.set_xlabel(note, fontsize=8, color=GREY)
    else:
        reach = floor + max(1.8 * (top - floor), 0.6 * optimum)
        near = [value for value in values.values() if value <= reach]
        upper = max([top, *near, floor + 0.1 * optimum])
    margin = 0.06 * (upper - floor) or 0.1
    low, high = floor - margin, upper + margin
    axes.set_ylim(low, high)
    labels = []
    for name, (_, *also) in merged.items():
        value = values[name]
        if low <= value <= high:
            axes.axhline(value, linewidth=1.3, zorder=1.5, **line_style(name))
        title = display_name(name).removeprefix("exact ")
        arrow = " ↑" if value > high else " ↓" if value < low else ""
        # On lines of their own: long labels would take width from the panel.
        labels += [(value, f"= {display_name(other)}", hue(name)) for other in also]
        labels.append((value, f"{title} {value:.2f}{arrow}", hue(name)))
    return labels
