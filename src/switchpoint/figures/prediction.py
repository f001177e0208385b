"""A sequence, what was predicted of it, and where it switched."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from switchpoint.figures import style

_MOST_LABELS = 20  # that fit on an axis
_ALONE, _SHARING, _SWITCHES = 3.6, 2.5, 1.6  # the heights of the panels
_STROKES = ((style.BLUE, 1.0), (style.ORANGE, 1.8))  # the colour and width of each curve


def prediction_figure(
    symbols: Int[np.ndarray, " time"],
    probs: Float[np.ndarray, "time alphabet"],
    title: str,
    probs_smoothed: Float[np.ndarray, "time alphabet"] | None = None,
    switch_smoothed: Float[np.ndarray, " time"] | None = None,
    map_switches: Bool[np.ndarray, " time"] | None = None,
    labels: Sequence[str] = (),
) -> Figure:
    """The data with the predicted and smoothed probabilities, above the switching points.

    Bits are drawn as curves of P(1), larger alphabets as maps of all probabilities. What
    looks back at the whole sequence is drawn where it is given. Symbols are called by their
    `labels`, if they have any.
    """
    kinds = {"predicted": probs}
    if probs_smoothed is not None:
        kinds["smoothed"] = probs_smoothed
    bits = probs.shape[1] == 2
    heights = [_ALONE] if bits or len(kinds) == 1 else [_SHARING] * len(kinds)
    if switch_smoothed is not None:
        heights.append(_SWITCHES)
    with style.styled():
        figure, panels = style.stacked_panels(heights)
        if bits:
            _bits(panels[0], symbols, kinds)
            panels[0].set_ylabel(f"P(symbol is {labels[1] if labels else 1})")
        else:
            above = panels[: len(kinds)]
            for axes, (name, values) in zip(above, kinds.items(), strict=True):
                image = _map(axes, symbols, values, name)
                if 0 < len(labels) <= _MOST_LABELS:
                    axes.set_yticks(range(len(labels)), labels)
            figure.colorbar(image, ax=above, label="probability", pad=0.01)
        figure.suptitle(title, x=0.01, ha="left")
        if switch_smoothed is not None:
            times, width = np.arange(len(symbols)), max(0.8, 1.5 * _thin(len(symbols)))
            panels[-1].vlines(times, 0, switch_smoothed, color=style.BLUE, linewidth=width)
            panels[-1].set_ylim(0, 1.02)
            panels[-1].set_ylabel("P(switch at t)")
        if map_switches is not None:
            for axes in panels:  # between the last symbol before a switch and the first after it
                places = np.flatnonzero(map_switches) - 0.5
                style.mark_switches(axes, places, "most probable partition")
        style.legend_above(panels[0], columns=4)
        panels[-1].set_xlim(-0.5, len(symbols) - 0.5)
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        panels[-1].set_xlabel("position t")
    return figure


def _bits(
    axes: Axes, symbols: Int[np.ndarray, " time"], kinds: Mapping[str, Float[np.ndarray, "time 2"]]
) -> None:
    times = np.arange(len(symbols))
    tick: dict[str, Any] = {"linewidth": _thin(len(symbols)), "color": style.GREY, "alpha": 0.8}
    ones = symbols == 1
    axes.vlines(times[ones], 1.04, 1.10, label="data", **tick)
    axes.vlines(times[~ones], -0.10, -0.04, **tick)
    for (name, probs), (colour, width) in zip(kinds.items(), _STROKES, strict=False):
        axes.step(times, probs[:, 1], where="mid", color=colour, linewidth=width, label=name)
    axes.set_ylim(-0.13, 1.13)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])


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
        np.arange(count),
        symbols,
        s=4 * _thin(count),
        color=style.ORANGE,
        linewidths=0,
        label="data",
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"symbol, {name}")
    axes.grid(False)
    return image


def _thin(count: int) -> float:
    """A line width that keeps neighbours apart: many positions, thin lines."""
    return float(np.clip(350 / count, 0.25, 1.6))
