"""Curves of excess regret against the length of the test sequences, for two studies."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from switchpoint.figures.style import GREY, WIDTH, hue, new_figure
from switchpoint.paper.figures.annotations import Label, plain_numbers, powers_axis
from switchpoint.paper.figures.labels import display_name

_WIDE_RANGE = 30.0


def length_axes(result: xr.Dataset, title: str, means: np.ndarray) -> tuple[Figure, Axes]:
    """Axes of excess against length, logarithmic where a linear axis would hide small values."""
    figure = new_figure(WIDTH, 4.4)
    axes: Axes = figure.subplots()
    figure.suptitle(title, x=0.01, ha="left")
    powers_axis(axes, result["length"].values)
    axes.set_xlabel("length of the test sequences")
    axes.set_ylabel("regret above PTW of matching depth (bits)")
    positive = means[np.isfinite(means) & (means > 0)]
    if positive.size and positive.max() > _WIDE_RANGE * positive.min():
        axes.set_yscale("log", nonpositive="clip")
        plain_numbers(axes.yaxis)
        axes.set_ylim(positive.min() / 1.6, positive.max() * 1.6)
    return figure, axes


def mark_length(axes: Axes, length: int) -> None:
    """Mark the training length, and include 0 in a linear axis."""
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.axvline(length, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, zorder=1)
    axes.annotate(
        f"trained on {length}",
        xy=(length, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=GREY,
    )


def end_label(middle: np.ndarray, architecture: str) -> Label:
    """The label at the last length that has a result."""
    finite = middle[np.isfinite(middle)]
    end = float(finite[-1]) if finite.size else 0.0
    return end, display_name(architecture), hue(architecture)
