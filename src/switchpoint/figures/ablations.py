"""What size, stack, positions and context do to the regret."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from switchpoint.figures.identity import colour_of, line_of, marker_of, name_of
from switchpoint.figures.marks import Label, labels_right, plain_numbers, powers_axis
from switchpoint.figures.matrix import log_norm, squares
from switchpoint.figures.style import BLUE, GREEN, ORANGE, WIDTH, new_figure, styled

_Panel = Callable[[Axes, xr.Dataset], list[Label]]

_POSITIONS = {"sincos": (ORANGE, "o"), "alibi": (BLUE, "s"), "relative": (GREEN, "P")}


def draw_ablations(dataset: xr.Dataset) -> dict[str, Figure]:
    """Regret against parameters, stacks, and the Transformer's choices."""
    figures = {"ablations-parameters": _parameters(dataset)}
    compared = compared_parts(dataset)
    if "stack" in compared:
        figures["ablations-stack"] = _stacks(dataset)
    panels = [panel for part, panel in _PANELS.items() if part in compared]
    if panels:
        figures["ablations-transformer"] = _transformer(dataset, panels)
    return figures


def compared_parts(dataset: xr.Dataset) -> set[str]:
    """The parts of which there are at least two configurations to compare, of one network."""
    found = set()
    for part in set(dataset["part"].values.astype(str)):
        models = dataset["model"].values[_part(dataset, part)]
        if np.unique(models.astype(str), return_counts=True)[1].max() > 1:
            found.add(part)
    return found


def _part(dataset: xr.Dataset, *parts: str) -> np.ndarray:
    """The indices of the configurations that belong to these parts of the study."""
    return np.flatnonzero(np.isin(dataset["part"].values.astype(str), parts))


def _parameters(dataset: xr.Dataset) -> Figure:
    with styled():
        figure = new_figure(WIDTH, 4.0)
        left, right = figure.subplots(1, 2, sharey=True)
        left.set_title("recurrent networks")
        right.set_title("Transformers")
        recurrent = dataset.isel(configuration=_part(dataset, "core", "stack"))
        for model in dict.fromkeys(map(str, recurrent["model"].values)):
            one = recurrent.isel(configuration=recurrent["model"].values == model)
            _dots(left, one, name_of(model), colour_of(model), marker_of(model))
        attention = dataset.isel(configuration=_part(dataset, "positions"))
        for positions in dict.fromkeys(map(str, attention["positions"].values)):
            one = attention.isel(configuration=attention["positions"].values == positions)
            _dots(right, one, positions, *_POSITIONS.get(positions, (GREEN, "P")))
        optimum = float(dataset["optimum_regret"])
        for axes in (left, right):
            axes.axhline(optimum, label="exact optimum", linewidth=1.3, **line_of("optimum"))
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            # Numbers between whole decades would touch each other where there are many decades.
            steps = [1, 2, 5] if high < 30 * low else [1]
            axes.xaxis.set_major_locator(LogLocator(base=10, subs=steps))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("number of parameters")
        below: dict[str, Any] = {"ncols": 3, "columnspacing": 1.2}
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", **below)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", **below)
        left.set_ylabel("regret (bits)")
        low, high = optimum, float(np.nanmax(dataset["regret"].values))
        left.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    return figure


def _dots(axes: Axes, one: xr.Dataset, label: str, colour: str, marker: str) -> None:
    """A small dot for each seed, and a large one at the mean of each configuration."""
    parameters = one["parameters"].values
    seeds = one["regret"].transpose("seed", "configuration").values
    for row in seeds:
        axes.plot(parameters, row, ".", color=colour, markersize=3.5, alpha=0.45)
    means = one["regret_mean"].values
    axes.plot(
        parameters,
        means,
        marker,
        color=colour,
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.4,
        label=label,
    )


def _stacks(dataset: xr.Dataset) -> Figure:
    stacks = dataset.isel(configuration=_part(dataset, "stack"))
    models = list(dict.fromkeys(map(str, stacks["model"].values)))
    norm = log_norm(stacks["excess_mean"].values)
    with styled():
        figure = new_figure(WIDTH, 3.2)
        grid = figure.subplots(1, len(models), squeeze=False, sharey=True)
        for axes, model in zip(grid[0], models, strict=True):
            one = stacks.isel(configuration=stacks["model"].values == model)
            depths, widths = np.unique(one["stack_depth"]), np.unique(one["stack_width"])
            table = np.full((len(depths), len(widths)), np.nan)
            rows = np.searchsorted(depths, one["stack_depth"].values)
            columns = np.searchsorted(widths, one["stack_width"].values)
            table[rows, columns] = one["excess_mean"].values
            image = squares(axes, table, norm)
            axes.set_title(name_of(model))
            axes.set_xticks(range(len(widths)), [str(width) for width in widths])
            axes.set_yticks(range(len(depths)), [str(depth) for depth in depths])
            axes.set_xlabel("width of a stack cell")
        grid[0, 0].set_ylabel("depth of the stack")
        bar = figure.colorbar(image, ax=grid, label="excess regret (bits)", pad=0.02)
        bar.ax.yaxis.set_major_locator(LogLocator(base=10, subs=[1, 2, 5]))
        plain_numbers(bar.ax.yaxis)
    return figure


def _transformer(dataset: xr.Dataset, panels: Sequence[_Panel]) -> Figure:
    with styled():
        figure = new_figure(WIDTH, 3.6)
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        labels = [panel(axes, dataset) for panel, axes in zip(panels, row, strict=True)]
        row[0].set_ylabel("excess regret (bits)")
        for axes in row:
            low, high = axes.get_ylim()
            axes.set_ylim(min(0.0, low), 1.06 * high)
            if axes.get_legend_handles_labels()[0]:
                figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)
        figure.draw_without_rendering()
        for axes, beside in zip(row, labels, strict=True):
            labels_right(axes, beside)
    return figure


def _positions(axes: Axes, dataset: xr.Dataset) -> list[Label]:
    """Excess against the number of layers, for each code of positions."""
    axes.set_title("positions and layers")
    axes.set_xlabel("layers")
    attention = dataset.isel(configuration=_part(dataset, "positions"))
    for place, positions in enumerate(dict.fromkeys(map(str, attention["positions"].values))):
        one = attention.isel(configuration=attention["positions"].values == positions)
        # Moved a little, so that bars stand beside each other.
        at = one["layers"].values * 1.04 ** (place - 1)
        _errors(axes, one, at, positions, *_POSITIONS.get(positions, (GREEN, "P")))
    _powers_with_margin(axes, np.unique(attention["layers"].values))
    return []


def _contexts(axes: Axes, dataset: xr.Dataset) -> list[Label]:
    """Excess against the window; returns the label of what seeing everything gives."""
    axes.set_title("context window")
    axes.set_xlabel("symbols seen")
    context = dataset.isel(configuration=_part(dataset, "context"))
    bounded = context.isel(configuration=context["context"].values >= 0).sortby("context")
    whole = context.isel(configuration=context["context"].values < 0)
    _powers_with_margin(axes, bounded["context"].values)
    _errors(axes, bounded, bounded["context"].values, "_window", GREEN, "P")
    wholes = [float(value) for value in whole["excess_mean"].values]
    for value in wholes:
        axes.axhline(value, color=GREEN, linestyle=(0, (4, 2)), linewidth=1.2)
    return [(value, "sees all", GREEN) for value in wholes]


_PANELS: Mapping[str, _Panel] = {"positions": _positions, "context": _contexts}


def _powers_with_margin(axes: Axes, at: np.ndarray) -> None:
    """An axis in powers of two around points, of which there may be one alone."""
    powers_axis(axes, at)
    axes.set_xlim(at[0] / 1.5, at[-1] * 1.5)


def _errors(
    axes: Axes, one: xr.Dataset, at: np.ndarray, label: str, colour: str, marker: str
) -> None:
    """The mean over seeds with their deviation as bars, where there is more than one seed."""
    order = np.argsort(at)
    axes.errorbar(
        at[order],
        one["excess_mean"].values[order],
        yerr=np.nan_to_num(one["excess_deviation"].values[order]),
        color=colour,
        marker=marker,
        markersize=5,
        capsize=2.5,
        linewidth=1.3,
        label=label,
    )
