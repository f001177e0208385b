"""Mean regret at each position, and its difference to the exact optimum."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from switchpoint.figures.identity import colour_of, line_of, name_of
from switchpoint.figures.marks import band, plain_numbers
from switchpoint.figures.style import GREY, WIDTH, darker, new_figure, styled
from switchpoint.figures.trajectory import position_axis


def draw_regret_by_index(dataset: xr.Dataset) -> dict[str, Figure]:
    """Two figures of appendix B: the regret at each position, and what is above the optimum."""
    return {
        "regret-by-index": _regret(dataset),
        "regret-by-index-difference": _difference(dataset),
    }


def _regret(dataset: xr.Dataset) -> Figure:
    with styled():
        figure = new_figure(WIDTH, 4.0)
        axes = figure.subplots()
        for architecture in map(str, dataset["architecture"].values):
            one = dataset.sel(architecture=architecture)
            band(
                axes,
                dataset["time"].values,
                one["regret"].values,
                one["regret_error"].values,
                architecture,
                label=name_of(architecture),
                linewidth=1.0,
            )
        axes.plot(
            dataset["time"],
            dataset["optimum_regret"],
            linewidth=1.3,
            label=name_of("optimum"),
            **line_of("optimum"),
        )
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=[1, 2, 5]))
        plain_numbers(axes.yaxis)
        axes.set_ylabel("regret (bits per symbol)")
        position_axis(axes, dataset.sizes["time"])
        figure.legend(loc="outside upper right", ncols=6, columnspacing=1.2, handlelength=1.6)
    return figure


def _difference(dataset: xr.Dataset) -> Figure:
    """A panel for each network, of one scale: five curves in one would hide each other."""
    architectures = [str(name) for name in dataset["architecture"].values]
    times = dataset["time"].values
    with styled():
        figure = new_figure(WIDTH, 1.25 * len(architectures) + 0.7)
        grid = figure.subplots(len(architectures), 1, squeeze=False, sharex=True, sharey=True)
        for axes, architecture in zip(grid[:, 0], architectures, strict=True):
            one = dataset.sel(architecture=architecture)
            band(
                axes,
                times,
                one["difference"].values,
                2 * one["difference_error"].values,
                architecture,
                linewidth=1.1,
            )
            axes.axhline(0, color=GREY, linewidth=0.8)
            axes.text(
                0.995,
                0.95,
                name_of(architecture),
                transform=axes.transAxes,
                ha="right",
                va="top",
                fontweight="bold",
                color=darker(colour_of(architecture)),
            )
        middle, error = dataset["difference"].values, dataset["difference_error"].values
        low, high = np.nanmin(middle - 2 * error), np.nanmax(middle + 2 * error)
        # Room for the names above the curves.
        grid[0, 0].set_ylim(min(low, 0), high + 0.25 * (high - min(low, 0)))
        figure.supylabel("regret above optimum (bits)", fontsize=10)
        position_axis(grid[-1, 0], len(times))
    return figure
