"""Marks that several figures share: labels beside lines, bands, dots for seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from switchpoint.figures.identity import colour_of, line_of, marker_of, name_of
from switchpoint.figures.style import INK, darker

Label = tuple[float, str, str]
"""The height of a label in data units, its text, and its colour."""

_LINE_HEIGHT = 12.0  # points from one label to the next
_SEED_WIDTH = 0.44  # the share of a column over which the dots of the seeds are spread


def labels_right(axes: Axes, labels: Sequence[Label]) -> None:
    """Labels at the right edge, each as near its height as the others let it be.

    Limits, scale and layout of the axes must be final: a figure is laid out when it is drawn.
    """
    if not labels:
        return
    height = axes.get_window_extent().height * _points_per_pixel(axes)
    step = _LINE_HEIGHT / height
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = np.array([value for value, _, _ in labels])
    rows = np.column_stack([np.full_like(heights, axes.get_xlim()[1]), heights])
    wanted = np.clip(to_axes.transform(rows)[:, 1], 0.0, 1.0)
    order = np.argsort(heights, kind="stable")
    places = spread_apart(wanted[order], step)
    top = axes.get_ylim()[1]  # what is above it has no line to lead to
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
            arrowprops=leader | {"color": colour} if heights[index] <= top else None,
        )


def _points_per_pixel(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    return 72 / figure.dpi if figure is not None else 1.0


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


def exact_lines(axes: Axes, values: dict[str, float], dots_top: float) -> list[Label]:
    """Dashed lines of exact predictors; returns their labels, also of those too far above.

    The limits are set so that the dots, which end at `dots_top`, have most of the room.
    """
    known = {name: value for name, value in values.items() if np.isfinite(value)}
    merged = _merged(known)
    floor = min(merged.values(), default=0.0)
    room = max(1.8 * (dots_top - floor), 0.6 * known.get("optimum", floor))
    seen = {name: value for name, value in merged.items() if value <= floor + room}
    # Not so near that differences are seen which are nothing beside the regret itself.
    top = max([dots_top, *seen.values(), floor + 0.1 * known.get("optimum", floor)])
    margin = 0.06 * (top - floor) or 0.1
    axes.set_ylim(floor - margin, top + margin)
    for name, value in seen.items():
        axes.axhline(value, linewidth=1.3, zorder=1.5, **line_of(name))
    return [
        (value, f"{_names(name, known)} {value:.2f}{'' if name in seen else ' ↑'}", colour_of(name))
        for name, value in merged.items()
    ]


def _merged(values: dict[str, float]) -> dict[str, float]:
    """One of each set of predictors with equal values: the optimum first, its synonyms not."""
    kept: dict[str, float] = {}
    for name in sorted(values, key=lambda name: name != "optimum"):
        if not any(_equal(values[name], value) for value in kept.values()):
            kept[name] = values[name]
    return kept


def _names(name: str, values: dict[str, float]) -> str:
    """The name of a line, with the names of those it lies on."""
    also = [
        name_of(other) for other in values if other != name and _equal(values[other], values[name])
    ]
    return " = ".join([name_of(name).removeprefix("exact "), *also])


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-4 * abs(other)


def seed_dots(
    axes: Axes,
    place: float,
    architecture: str,
    values: Float[np.ndarray, " seed"],
    minimum: float,
    median: float,
) -> None:
    """A dot for each seed in one column, with marks at their minimum and median."""
    found = values[np.isfinite(values)]
    spread = np.linspace(-0.5, 0.5, len(found)) if len(found) > 1 else np.zeros(len(found))
    colour = colour_of(architecture)
    axes.plot(
        place + _SEED_WIDTH * spread,
        found,
        marker_of(architecture),
        color=colour,
        markersize=4.5,
        markeredgewidth=0,
        alpha=0.75,
        zorder=3,
    )
    side: dict[str, Any] = {"color": INK, "zorder": 4, "solid_capstyle": "butt"}
    axes.plot([place - 0.34, place + 0.34], [median, median], linewidth=1.6, **side)
    axes.plot([place], [minimum], "v", markersize=4.5, color=INK, zorder=4)


def measured_here(
    axes: Axes, place: float, architecture: str, value: float, error: float, log: bool
) -> None:
    """A diamond with a bar of two standard errors, beside dots that were recorded elsewhere.

    Where the scale is, or will be, logarithmic, a bar to below zero goes down to the edge, also
    that of a diamond which is below zero itself.
    """
    top = value + 2 * error
    at, marker = (value, "D") if value > 0 or not log else (top, "")
    if log and at <= 0:
        return  # all of it is below
    down = min(at - value + 2 * error, (1 - 1e-6) * at) if log else 2 * error
    axes.errorbar(
        [place],
        [at],
        yerr=[[down], [top - at]],
        marker=marker,
        markersize=5,
        markerfacecolor="white",
        markeredgecolor=darker(colour_of(architecture)),
        markeredgewidth=1.3,
        ecolor=darker(colour_of(architecture)),
        elinewidth=1.1,
        capsize=2,
        linestyle="",
        zorder=5,
    )


def band(
    axes: Axes,
    at: np.ndarray,
    middle: Float[np.ndarray, " point"],
    width: Float[np.ndarray, "*down_up point"],
    predictor: str,
    **options: Any,
) -> None:
    """A line with a band of `width` to either side, or of (down, up); the line alone where NaN."""
    style = {**line_of(predictor), **options}
    axes.plot(at, middle, **style)
    down, up = np.broadcast_to(width, (2, len(middle)))
    low = middle - down
    if axes.get_yscale() == "log":
        low = np.maximum(low, 1e-3 * middle)  # a band to below zero goes down to the edge
    axes.fill_between(at, low, middle + up, color=style["color"], alpha=0.15, linewidth=0)


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
