"""One sequence: its symbols, the true bias, what was predicted, and the regret."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from switchpoint.figures.identity import line_of, name_of, source_name
from switchpoint.figures.style import GREY, WIDTH, legend_above, new_figure, styled

_STROKES = {"optimum": 1.6, "oracle": 1.1}


def draw_trajectories(dataset: xr.Dataset) -> dict[str, Figure]:
    """One figure for each source, as in Figure 1 of the paper."""
    return {
        f"trajectory-{source}": _trajectory(dataset.sel(source=source), source)
        for source in map(str, dataset["source"].values)
    }


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


def position_axis(axes: Axes, length: int) -> None:
    """A horizontal axis of positions from 0."""
    axes.set_xlim(-0.5, length - 0.5)
    if length % 8 == 0:  # where switches are likely
        axes.xaxis.set_major_locator(MultipleLocator(length // 8))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_xlabel("position t")


def _trajectory(one: xr.Dataset, source: str) -> Figure:
    length = one.sizes["time"]
    with styled():
        figure = new_figure(WIDTH, 5.6)
        top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1.2, 1.4])
        figure.suptitle(f"One sequence from {source_name(one, source)}", x=0.01, ha="left")
        draw_symbols(top, one["symbols"].values, one["probability"].values)
        for predictor in map(str, one["predictor"].values):
            drawn = one.sel(predictor=predictor)
            style = {
                **line_of(predictor),
                "linewidth": _STROKES.get(predictor, 1.3),
                "label": _name(predictor, source, one),
            }
            top.step(one["time"], drawn["prediction"], where="mid", **style)
            middle.step(one["time"], drawn["regret"], where="mid", **style)
            bottom.step(one["time"], drawn["cumulative_regret"], where="post", **style)
        for axes in (top, middle, bottom):
            for switch in np.flatnonzero(one["switches"].values):
                axes.axvline(switch - 0.5, color="#C8C8C8", linewidth=0.9, zorder=0.9)
        top.set_ylabel("P(symbol is 1)")
        middle.set_ylabel("regret (bits)")
        middle.set_ylim(bottom=0)
        bottom.set_ylabel("cumulative\nregret (bits)")
        bottom.set_ylim(bottom=0)
        legend_above(top, columns=4)
        position_axis(bottom, length)
    return figure


def _name(predictor: str, source: str, one: xr.Dataset) -> str:
    """Networks carry the source that they were trained on, in brackets, as in the paper."""
    if predictor in ("optimum", "oracle"):
        return name_of(predictor)
    return f"{name_of(predictor)} [{source_name(one, source)}]"
