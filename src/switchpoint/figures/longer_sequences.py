"""Sequences longer than any of the training: one without switches, and a map of many."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from switchpoint.figures.identity import colour_of, line_of, name_of
from switchpoint.figures.style import BLUE, GREY, INK, ORANGE, WIDTH, darker, new_figure, styled
from switchpoint.figures.trajectory import draw_symbols, position_axis

_BETTER_WORSE = LinearSegmentedColormap.from_list("better worse", [BLUE, "#FFFFFF", ORANGE])
_SHARE_INSIDE = 99.5  # percent of the map that is within the scale of colours


def draw_longer_sequences(dataset: xr.Dataset) -> dict[str, Figure]:
    """Two figures of appendix C, at twice the length of the training."""
    return {"length-512-sequence": _sequence(dataset), "length-512-map": _map(dataset)}


def _sequence(dataset: xr.Dataset) -> Figure:
    networks = [str(name) for name in dataset["predictor"].values if name != "optimum"]
    times = dataset["time"].values
    with styled():
        figure = new_figure(WIDTH, 1.3 * len(networks) + 2.6)
        heights = [1.3] * len(networks) + [2.2]
        grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        panels: list[Axes] = list(grid)
        for axes, network in zip(panels, networks, strict=False):
            draw_symbols(axes, dataset["symbols"].values, dataset["probability"].values)
            for predictor, width in (("optimum", 1.5), (network, 1.0)):
                style = {**line_of(predictor), "linewidth": width}
                prediction = dataset["prediction"].sel(predictor=predictor)
                axes.step(times, prediction, where="mid", **style)
            axes.set_title(name_of(network), color=darker(colour_of(network)), fontsize=10, pad=2)
        for predictor in (*networks, "optimum"):
            panels[-1].plot(
                times,
                dataset["cumulative_regret"].sel(predictor=predictor),
                label=name_of(predictor),
                **line_of(predictor),
            )
        for axes in panels:
            _mark_training(axes, dataset)
        panels[len(networks) // 2].set_ylabel("P(symbol is 1)")
        panels[-1].set_ylabel("cumulative\nregret (bits)")
        panels[-1].set_ylim(bottom=0)
        position_axis(panels[-1], len(times))
        figure.legend(
            *panels[-1].get_legend_handles_labels(),
            loc="outside upper right",
            ncols=6,
            columnspacing=1.2,
            handlelength=1.6,
        )
    return figure


def _map(dataset: xr.Dataset) -> Figure:
    architectures = [str(name) for name in dataset["architecture"].values]
    values = dataset["difference"].values
    limit = float(np.nanpercentile(np.abs(values), _SHARE_INSIDE)) or 1.0
    counts, length = dataset["switch_count"].values, dataset.sizes["time"]
    rows = (len(architectures) + 1) // 2
    with styled():
        figure = new_figure(WIDTH, 2.9 * rows + 0.3)
        grid = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(architectures) :]:
            axes.set_axis_off()
        for axes, architecture in zip(grid.flat, architectures, strict=False):
            image = axes.imshow(
                dataset["difference"].sel(architecture=architecture).values,
                cmap=_BETTER_WORSE,
                norm=Normalize(-limit, limit),
                aspect="auto",
                extent=(-0.5, length - 0.5, len(counts), 0),
            )
            axes.set_title(name_of(architecture))
            _count_ticks(axes, counts)
            # Above the map: a line in it would hide what happens there.
            axes.plot([dataset.attrs["length"]], [0], "v", color=INK, markersize=5, clip_on=False)
            axes.grid(False)
            position_axis(axes, length)
            axes.xaxis.set_tick_params(labelbottom=True)
        figure.supylabel("sequences, by number of switches", fontsize=10)
        figure.colorbar(
            image,
            ax=grid,
            label="regret above PTW (bits)",
            extend="both",
            shrink=0.6,
            aspect=35,
            pad=0.02,
        )
    return figure


def _count_ticks(axes: Axes, counts: np.ndarray) -> None:
    """A tick where each number of switches begins, as far as there is room for its number."""
    numbers, starts = np.unique(counts, return_index=True)
    ticks: list[tuple[int, str]] = []
    for number, start in zip(numbers, starts, strict=True):
        if not ticks or start - ticks[-1][0] > 0.07 * len(counts):
            ticks.append((int(start), str(number)))
        axes.axhline(start, color=INK, linewidth=0.3, alpha=0.5)
    axes.set_yticks([start for start, _ in ticks], [text for _, text in ticks])


def _mark_training(axes: Axes, dataset: xr.Dataset) -> None:
    """Where the sequences of the training ended."""
    axes.axvline(dataset.attrs["length"] - 0.5, color=GREY, linestyle=(0, (1, 1.5)), linewidth=1.2)
