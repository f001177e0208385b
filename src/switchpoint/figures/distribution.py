"""The regret of every seed, on the source of its training and on others."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from switchpoint.figures.identity import colour_of, line_of, name_of, source_name
from switchpoint.figures.marks import (
    exact_lines,
    labels_right,
    measured_here,
    plain_numbers,
    seed_dots,
)
from switchpoint.figures.style import GREY, INK, WIDTH, new_figure, styled

Panel = tuple[xr.Dataset, str]
"""What a panel shows, and its title."""

_BESIDE = 0.4  # of a column: where the network stands that was measured here
_EXACT = ("kt", "oracle", "ptw", "lin", "optimum")
_PAPER_PAIRS = (
    ("ptw", "uniform"),
    ("lin", "uniform"),
    ("ptw", "regular"),
    ("lin", "regular"),
    ("uniform", "ptw"),
    ("uniform", "lin"),
)


def draw_on_distribution(dataset: xr.Dataset) -> dict[str, Figure]:
    """Figure 3 of the paper with Random Uniform, and the same above the optimum."""
    panels = [
        (dataset.sel(source=source), source_name(dataset, source))
        for source in map(str, dataset["source"].values)
    ]
    return {
        "on-distribution": _panels(panels),
        "on-distribution-excess": _excess_panels(panels),
    }


def draw_off_distribution(dataset: xr.Dataset) -> dict[str, Figure]:
    """One figure with the pairs of sources that the paper shows."""
    panels = [
        (
            dataset.sel(train_source=train, test_source=test),
            f"{source_name(dataset, train)} → {source_name(dataset, test)}",
        )
        for train, test in _PAPER_PAIRS
        if train in dataset["train_source"] and test in dataset["test_source"]
    ]
    return {"off-distribution": _panels(panels)}


def _panels(panels: Sequence[Panel]) -> Figure:
    """The regret of every seed, among lines of the exact predictors."""
    with styled():
        figure, used = _grid(panels)
        labels = []
        for axes, (one, title) in zip(used, panels, strict=True):
            _columns(axes, one, "regret")
            axes.set_title(title)
            axes.set_ylabel("regret (bits)")
            values = {
                name: float(one["exact_regret"].sel(exact=name))
                for name in _EXACT
                if name in one["exact"]
            }
            labels.append(exact_lines(axes, values, _highest(one, "regret")))
        figure.draw_without_rendering()
        for axes, names in zip(used, labels, strict=True):
            labels_right(axes, names)
    return figure


def _excess_panels(panels: Sequence[Panel]) -> Figure:
    """The regret above the exact optimum, on a logarithmic scale, which shows how near it is."""
    with styled():
        figure, used = _grid(panels)
        for axes, (one, title) in zip(used, panels, strict=True):
            _columns(axes, one, "excess")
            axes.set_title(title)
            axes.set_ylabel("excess regret (bits)")
            axes.set_yscale("log", nonpositive="mask")
            plain_numbers(axes.yaxis)
            above = one["exact_excess"].values
            low, high = float(np.nanmin(one["excess"].values)), _highest(one, "excess")
            floor = max(low, 1e-3 * high, 1e-6)
            ceiling = max(high, *above[np.isfinite(above)])
            axes.set_ylim(floor / 1.5, 1.5 * ceiling)
            if ceiling < 100 * floor:  # one number to a decade would be too few
                axes.yaxis.set_major_locator(LogLocator(base=10, subs=[1, 2, 5]))
        figure.draw_without_rendering()
        for axes, (one, _) in zip(used, panels, strict=True):
            lines = one["exact_excess"].sel(exact=[name for name in _EXACT if name in one["exact"]])
            labels = []
            for name, value in zip(map(str, lines["exact"].values), lines.values, strict=True):
                if value > axes.get_ylim()[0]:
                    axes.axhline(value, linewidth=1.3, zorder=1.5, **line_of(name))
                    labels.append((float(value), f"{name_of(name)} {value:.2f}", colour_of(name)))
            labels_right(axes, labels)
    return figure


def _grid(panels: Sequence[Panel]) -> tuple[Figure, list[Axes]]:
    """A figure of two columns with a key on top, and axes for the panels."""
    count = len(panels)
    rows = (count + 1) // 2
    figure = new_figure(WIDTH, 3.1 * rows + 0.4)
    grid = figure.subplots(rows, 2, squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    _key(figure, any("here_excess" in one for one, _ in panels))
    return figure, list(grid.flat[:count])


def _columns(axes: Axes, one: xr.Dataset, kind: str) -> None:
    """A column of dots for each architecture."""
    architectures = [str(name) for name in one["architecture"].values]
    for place, architecture in enumerate(architectures):
        column = one.sel(architecture=architecture)
        seed_dots(
            axes,
            place,
            architecture,
            column[kind].values,
            float(column[f"{kind}_minimum"]),
            float(column[f"{kind}_median"]),
        )
        if "here_excess" in column:
            value, error = float(_here(column, kind)), float(column["here_excess_error"])
            place_beside, log = place + _BESIDE, kind == "excess"
            measured_here(axes, place_beside, architecture, value, error, log)
    axes.set_xlim(-0.6, len(architectures) - 0.4)
    axes.set_xticks(
        range(len(architectures)),
        [name_of(name) for name in architectures],
        rotation=25,
        ha="right",
        rotation_mode="anchor",
    )
    axes.grid(False, axis="x")


def _here(one: xr.Dataset, kind: str) -> xr.DataArray:
    """What was measured here, above the optimum of the record.

    The regret of a few sequences depends on which they are, the excess hardly does.
    """
    base = one["exact_regret"].sel(exact="optimum") if kind == "regret" else 0.0
    return one["here_excess"] + base


def _highest(one: xr.Dataset, kind: str) -> float:
    """The highest mark of a panel."""
    marks = [one[kind]] + ([_here(one, kind)] if "here_excess" in one else [])
    return max(float(np.nanmax(values)) for values in marks)


def _key(figure: Figure, here: bool) -> None:
    one_seed = "one seed, recorded" if here else "one seed"
    handles = [
        Line2D([], [], marker="o", linestyle="", color=GREY, markersize=5, label=one_seed),
        Line2D([], [], marker="v", linestyle="", color=INK, markersize=5, label="minimum"),
        Line2D([], [], color=INK, linewidth=1.6, label="median"),
        Line2D([], [], color=GREY, linestyle=(0, (5, 2)), label="exact predictor"),
    ]
    if here:
        diamond = Line2D([], [], marker="D", linestyle="", markersize=5, label="zoo, measured here")
        diamond.set(markerfacecolor="white", markeredgecolor=INK)
        handles.append(diamond)
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
