"""Elements that several figures share: panels, labels beside lines, bands, axes of positions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    MultipleLocator,
    NullFormatter,
    NullLocator,
)

from switchpoint.figures.style import GREY, WIDTH, darker, hue, line_style, new_figure
from switchpoint.paper.figures.labels import display_name

Label = tuple[float, str, str]
"""The height of a label in data units, its text, and its colour."""

_LINE_HEIGHT = 12.0  # points from one label to the next


def labels_right(figure: Figure, labels: Mapping[Axes, Sequence[Label]]) -> None:
    """Labels at the right edge of axes, each as near its height as the others let it be.

    All else must be final: the figure is laid out here.
    """
    figure.draw_without_rendering()
    for axes, beside in labels.items():
        if beside:
            _place_labels(axes, beside, axes.get_window_extent().height * 72 / figure.dpi)


def _place_labels(axes: Axes, labels: Sequence[Label], height: float) -> None:
    """Labels of axes of this height in points."""
    step = _LINE_HEIGHT / height
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = np.array([value for value, _, _ in labels])
    rows = np.column_stack([np.full_like(heights, axes.get_xlim()[1]), heights])
    wanted = np.clip(to_axes.transform(rows)[:, 1], 0.0, 1.0)
    order = np.argsort(heights, kind="stable")
    places = spread_apart(wanted[order], step)
    bottom, top = axes.get_ylim()  # what is outside has no line to lead to
    # To the middle of the text's left edge: elsewhere it would cross the labels beside it.
    leader = {"arrowstyle": "-", "linewidth": 0.6, "shrinkB": 0, "relpos": (0, 0.5)}
    for place, index in zip(places, order, strict=True):
        _, text, colour = labels[index]
        axes.annotate(
            text,
            xy=(1.0, wanted[index]),
            xytext=(14, (place - wanted[index]) * height),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=darker(colour),
            annotation_clip=False,
            arrowprops=leader | {"color": colour} if bottom <= heights[index] <= top else None,
        )


def spread_apart(wanted: Float[np.ndarray, " label"], step: float) -> Float[np.ndarray, " label"]:
    """Places at least `step` apart in the same order, near what was wanted and below the top."""
    offsets = step * np.arange(len(wanted))
    # The nearest places in the squared sense: blocks of labels that touch share their mean.
    blocks: list[list[float]] = []
    for value in wanted - offsets:
        blocks.append([float(value)])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1].extend(last)
    places = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks]) + offsets
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


def plain_numbers(axis: Axis) -> None:
    """Numbers of a logarithmic axis as people write them: 0.1, 1, 10."""
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
    ones = symbols == 1
    axes.vlines(times[ones], 1.04, 1.11, color=GREY, linewidth=width, alpha=0.8)
    axes.vlines(times[~ones], -0.11, -0.04, color=GREY, linewidth=width, alpha=0.8)
    axes.step(times, probability, where="mid", color="#B9B9B9", linewidth=3.2, label="true bias")
    axes.set_ylim(-0.14, 1.14)
    axes.set_yticks([0, 0.5, 1])


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
