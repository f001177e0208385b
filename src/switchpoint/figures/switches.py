"""How many switches the sources make, and where: exact laws and what was sampled."""

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from switchpoint.figures.identity import source_name
from switchpoint.figures.marks import plain_numbers
from switchpoint.figures.style import BLUE, INK, ORANGE, SKY, WIDTH, new_figure, styled

_NEGLIGIBLE = 1e-4
_SMALLEST = 1e-4  # one of ten thousand sequences
_FEW = 64  # with more columns than this, points would touch


def draw_priors(dataset: xr.Dataset) -> dict[str, Figure]:
    """Positions of PTW's switches, the law of their number, and all sources against theory."""
    return {
        "priors-ptw-positions": _positions(dataset),
        "priors-ptw-counts": _counts_by_depth(dataset),
        "priors-switches": _all_sources(dataset),
    }


def _positions(dataset: xr.Dataset) -> Figure:
    with styled():
        figure = new_figure(WIDTH, 3.2)
        axes = figure.subplots()
        figure.suptitle(f"Switches of {source_name(dataset, 'ptw')}", x=0.01, ha="left")
        _frequencies(axes, dataset.sel(source="ptw"), "switch_frequency", "switch_probability")
        axes.set_xlabel("position t")
        axes.set_ylabel("P(switch at t)")
        axes.legend(loc="upper right")
    return figure


def _counts_by_depth(dataset: xr.Dataset) -> Figure:
    """P_d[k] for each depth, exact at the left and sampled at the right."""
    depths = dataset["depth"].values
    shades = colormaps["viridis"](np.linspace(0.0, 0.92, len(depths)))
    at = dataset["switches"].values + 1  # from 1, since a logarithmic axis has no 0
    with styled():
        figure = new_figure(WIDTH, 4.4)
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        left.set_title("exact law")
        right.set_title("sampled, with deviation between batches")
        for depth, shade in zip(depths, shades, strict=True):
            one = dataset.sel(depth=depth)
            style = {"color": shade, "linewidth": 1.2, "markersize": 3.2}
            law = _visible(one["ptw_count_law"].values)
            left.plot(at, law, "o-", label=f"{depth}", **style)
            sampled = _visible(one["ptw_count_sampled"].values)
            width = one["ptw_count_sampled_deviation"].values
            # Down to the edge of the picture at most, where a bar would reach below 0.
            down = np.minimum(width, sampled - _SMALLEST)
            down = np.where(np.isfinite(down), np.maximum(down, 0), 0)
            right.errorbar(at, sampled, yerr=[down, width], fmt="o-", elinewidth=0.6, **style)
        for axes in (left, right):
            limit = dataset["ptw_count_limit"].values
            axes.plot(at, limit, color=INK, linestyle=(0, (4, 2)), linewidth=1.4, label="∞")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            plain_numbers(axes.yaxis)
            axes.set_xlabel("number of switches + 1")
        ticks = [2**power for power in range(int(np.log2(at[-1])) + 1)]
        left.set_xticks(ticks, [str(tick) for tick in ticks])
        left.set_xlim(0.9, at[-1] * 1.1)
        left.set_ylim(_SMALLEST, 1.5)
        left.set_ylabel("probability")
        figure.legend(
            *left.get_legend_handles_labels(),
            title="depth d",
            loc="outside right center",
        )
    return figure


def _all_sources(dataset: xr.Dataset) -> Figure:
    sources = [str(name) for name in dataset["source"].values]
    with styled():
        figure = new_figure(WIDTH, 2.1 * len(sources) + 0.5)
        grid = figure.subplots(len(sources), 2, squeeze=False)
        for (numbers, places), source in zip(grid, sources, strict=True):
            one = dataset.sel(source=source)
            likely = np.flatnonzero(
                np.maximum(one["count_law"].values, one["count_frequency"].values) > _NEGLIGIBLE
            )
            shown = one.isel(count=slice(0, int(likely[-1]) + 2 if likely.size else 2))
            _frequencies(numbers, shown, "count_frequency", "count_law")
            _frequencies(places, one, "switch_frequency", "switch_probability")
            numbers.set_title(source_name(dataset, source))
            numbers.set_ylabel("probability")
            places.set_ylabel("P(switch at t)")
        grid[-1, 0].set_xlabel("number of switches")
        grid[-1, 1].set_xlabel("position t")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2)
    return figure


def _frequencies(axes: Axes, one: xr.Dataset, sampled: str, exact: str) -> None:
    """Columns with error bars for what was sampled, and the exact law over them."""
    at = one[one[exact].dims[0]].values
    few = len(at) <= _FEW
    axes.bar(
        at,
        one[sampled].values,
        width=0.8 if few else 1.0,
        color=SKY,
        linewidth=0,
        label="sampled",
        yerr=one[f"{sampled}_error"].values if few else None,
        error_kw={"ecolor": BLUE, "elinewidth": 0.9, "capsize": 1.5},
    )
    if few:
        axes.plot(at, one[exact].values, "o", color=ORANGE, markersize=3.5, label="exact law")
    else:
        axes.step(
            at, one[exact].values, where="mid", color=ORANGE, linewidth=0.8, label="exact law"
        )
    axes.set_xlim(at[0] - 0.8, at[-1] + 0.8)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.grid(False, axis="x")


def _visible(values: np.ndarray) -> np.ndarray:
    """Values without those that are impossible, which a logarithmic axis cannot show."""
    return np.where(values > 0, values, np.nan)
