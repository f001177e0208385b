"""A sequence, what was predicted of it, and where it switched."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from switchpoint.figures.style import BLUE, GREY, INK, ORANGE, legend_above, new_figure, styled

_WIDTH = 10.0


def prediction_figure(
    symbols: Int[np.ndarray, " time"],
    probs: Float[np.ndarray, "time alphabet"],
    probs_smoothed: Float[np.ndarray, "time alphabet"],
    switch_smoothed: Float[np.ndarray, " time"],
    map_switches: Bool[np.ndarray, " time"],
    title: str,
) -> Figure:
    """The data with the predicted and smoothed probabilities, above the switching points.

    Bits are drawn as curves of P(1), larger alphabets as maps of all probabilities.
    """
    with styled():
        if probs.shape[1] == 2:
            figure = new_figure(_WIDTH, 5.2)
            top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
            _bits(top, symbols, probs[:, 1], probs_smoothed[:, 1])
            above = [top]
        else:
            figure = new_figure(_WIDTH, 6.6)
            *above, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(1.4, 1.4, 1))
            _map(above[0], symbols, probs, "predicted")
            image = _map(above[1], symbols, probs_smoothed, "smoothed")
            figure.colorbar(image, ax=above, label="probability", pad=0.01)
        figure.suptitle(title, x=0.01, ha="left")
        _switches(bottom, above, switch_smoothed, map_switches)
        bottom.set_xlim(-0.5, len(symbols) - 0.5)
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        bottom.set_xlabel("position t")
    return figure


def _bits(
    axes: Axes,
    symbols: Int[np.ndarray, " time"],
    predicted: Float[np.ndarray, " time"],
    smoothed: Float[np.ndarray, " time"],
) -> None:
    times = np.arange(len(symbols))
    tick: dict[str, Any] = {"linewidth": _thin(len(symbols)), "color": GREY, "alpha": 0.8}
    ones = symbols == 1
    axes.vlines(times[ones], 1.04, 1.10, label="data", **tick)
    axes.vlines(times[~ones], -0.10, -0.04, **tick)
    axes.step(times, predicted, where="mid", color=BLUE, linewidth=1.0, label="predicted")
    axes.step(times, smoothed, where="mid", color=ORANGE, linewidth=1.8, label="smoothed")
    axes.set_ylim(-0.13, 1.13)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylabel("P(symbol is 1)")


def _map(
    axes: Axes,
    symbols: Int[np.ndarray, " time"],
    probs: Float[np.ndarray, "time alphabet"],
    name: str,
) -> AxesImage:
    count, alphabet = probs.shape
    image = axes.imshow(
        probs.T,
        aspect="auto",
        origin="lower",
        cmap="Blues",
        vmin=0,
        vmax=1,
        extent=(-0.5, count - 0.5, -0.5, alphabet - 0.5),
    )
    axes.scatter(
        np.arange(count), symbols, s=4 * _thin(count), color=ORANGE, linewidths=0, label="data"
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"symbol, {name}")
    axes.grid(False)
    return image


def _switches(
    axes: Axes,
    above: list[Axes],
    smoothed: Float[np.ndarray, " time"],
    best: Bool[np.ndarray, " time"],
) -> None:
    """P(a switch at t | all data) below, and the best partition through all panels."""
    times = np.arange(len(smoothed))
    axes.vlines(times, 0, smoothed, color=BLUE, linewidth=max(0.8, 1.5 * _thin(len(smoothed))))
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("P(switch at t)")
    for place in (*above, axes):
        for number, switch in enumerate(np.flatnonzero(best)):
            # Between the last symbol before the switch and the first after it.
            place.axvline(
                switch - 0.5,
                color=INK,
                linestyle=(0, (4, 3)),
                linewidth=0.9,
                zorder=0.9,
                label="most probable partition" if number == 0 else None,
            )
    legend_above(above[0], columns=4)


def _thin(count: int) -> float:
    """A line width that keeps neighbours apart: many positions, thin lines."""
    return float(np.clip(350 / count, 0.25, 1.6))
