"""The regret of predictors that see only the last k symbols, above what is possible."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from switchpoint.figures.identity import line_of, source_name
from switchpoint.figures.marks import plain_numbers
from switchpoint.figures.style import BLUE, ORANGE, WIDTH, new_figure, styled


def draw_memory(dataset: xr.Dataset) -> dict[str, Figure]:
    """One figure with a panel for each source: Theorem 4.2 in numbers."""
    sources = [str(name) for name in dataset["source"].values]
    rows = (len(sources) + 1) // 2
    with styled():
        figure = new_figure(WIDTH, 2.9 * rows + 0.4)
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes in grid.flat[len(sources) :]:
            axes.set_axis_off()
        for axes, source in zip(grid.flat, sources, strict=False):
            _panel(axes, dataset.sel(source=source))
            axes.set_title(source_name(dataset, source))
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=3)
    return {"memory": figure}


def _panel(axes: Axes, one: xr.Dataset) -> None:
    orders, bounds = one["order"].values, one["bound_order"].values
    seeds, errors = (one[name].transpose("seed", "order") for name in ("regret", "regret_error"))
    for column, error in zip(seeds.values, errors.values, strict=True):
        bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, "alpha": 0.6}
        axes.errorbar(orders, column, 2 * error, fmt=".", color=BLUE, **bars)
    axes.plot(orders, one["regret_mean"], "s-", color=BLUE, markersize=4.5, label="trained")
    axes.plot(
        bounds,
        one["bound"],
        color=ORANGE,
        marker="_",
        markersize=8,
        linestyle=(0, (2, 1.5)),
        label="exact lower bound",
    )
    axes.axhline(
        float(one["optimum_regret"]),
        linewidth=1.3,
        label="exact optimum, full memory",
        **line_of("optimum"),
    )
    # Even steps for 0, 1, 2, 4, 8: logarithmic, and linear below 1.
    axes.set_xscale("symlog", base=2, linthresh=1)
    shown = np.unique(np.concatenate([orders, bounds[bounds <= 1]]))
    axes.xaxis.set_major_locator(FixedLocator([float(order) for order in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    plain_numbers(axes.xaxis)
    axes.set_xlim(-0.3, 1.15 * max(int(orders[-1]), int(bounds[-1]), 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("symbols seen, k")
    axes.set_ylabel("regret (bits)")
