"""Excess regret against the length of the sequences."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from switchpoint.figures.identity import colour_of, marker_of, name_of
from switchpoint.figures.marks import (
    Label,
    band,
    labels_right,
    measured_here,
    plain_numbers,
    powers_axis,
)
from switchpoint.figures.style import GREY, WIDTH, new_figure, styled

_WIDE_RANGE = 30.0


def draw_longer_lengths(dataset: xr.Dataset) -> dict[str, Figure]:
    """One figure, as Figure 5 of the paper: trained on one length, tested on longer ones."""
    with styled():
        figure, axes = _axes(dataset, "Trained on one length, tested on longer sequences")
        _scale(axes, dataset["excess_mean"].values)
        labels = [
            _banded(axes, dataset, architecture)
            for architecture in map(str, dataset["architecture"].values)
        ]
        _mark_measured_here(axes, dataset)
        _with_zero(axes)
        _mark_length(axes, int(dataset.attrs["length"]))
        figure.draw_without_rendering()
        labels_right(axes, labels)
    return {"longer-lengths": figure}


def draw_other_lengths(dataset: xr.Dataset) -> dict[str, Figure]:
    """One figure, as Figure 6 of the paper: trained on each length against trained on one."""
    base = int(dataset.attrs["base_length"])
    with styled():
        figure, axes = _axes(dataset, "Trained on the length of the test, or on another")
        both = np.concatenate([dataset["own_mean"].values, dataset["transferred_mean"].values])
        _scale(axes, both)
        labels = []
        for architecture in map(str, dataset["architecture"].values):
            _barred(axes, dataset, architecture, "own", "solid")
            labels.append(_barred(axes, dataset, architecture, "transferred", (0, (4, 2))))
        _with_zero(axes)
        _mark_length(axes, base)
        handles = [
            Line2D([], [], color=GREY, label="trained on the length of the test"),
            Line2D([], [], color=GREY, linestyle=(0, (4, 2)), label=f"trained on {base}"),
        ]
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        figure.draw_without_rendering()
        labels_right(axes, labels)
    return {"other-lengths": figure}


def _axes(dataset: xr.Dataset, title: str) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, 4.4)
    axes: Axes = figure.subplots()
    figure.suptitle(title, x=0.01, ha="left")
    powers_axis(axes, dataset["length"].values)
    axes.set_xlabel("length of the test sequences")
    axes.set_ylabel("regret above PTW of matching depth (bits)")
    return figure, axes


def _banded(axes: Axes, dataset: xr.Dataset, architecture: str) -> Label:
    """The mean over seeds with a band of them all; returns the label for its end."""
    one = dataset.sel(architecture=architecture)
    style = {"marker": marker_of(architecture), "markersize": 4.5}
    middle, seeds = one["excess_mean"].values, one["excess"]
    to_ends = np.stack([middle - seeds.min("seed").values, seeds.max("seed").values - middle])
    band(axes, one["length"].values, middle, to_ends, architecture, **style)
    return _end(middle, architecture)


def _mark_measured_here(axes: Axes, dataset: xr.Dataset) -> None:
    """Diamonds of what was measured here, where it was, beside each other."""
    if "here_excess" not in dataset:
        return
    log = axes.get_yscale() == "log"
    names = [str(name) for name in dataset["architecture"].values]
    for index, name in enumerate(names):
        beside = 1.03 ** (index - (len(names) - 1) / 2)
        for length in dataset["length"].values:
            one = dataset.sel(architecture=name, length=length)
            value, error = float(one["here_excess"]), float(one["here_excess_error"])
            measured_here(axes, float(length) * beside, name, value, error, log)


def _barred(axes: Axes, dataset: xr.Dataset, architecture: str, kind: str, dashes: object) -> Label:
    """The mean over seeds with bars of their deviation: ten bands would hide each other."""
    one = dataset.sel(architecture=architecture)
    middle = one[f"{kind}_mean"].values
    axes.errorbar(
        one["length"].values,
        middle,
        yerr=np.nan_to_num(one[f"{kind}_deviation"].values),
        color=colour_of(architecture),
        linestyle=dashes,
        marker=marker_of(architecture),
        markersize=4.5,
        elinewidth=0.7,
        capsize=2,
    )
    return _end(middle, architecture)


def _end(middle: np.ndarray, architecture: str) -> Label:
    """The label at the last length that has a result."""
    finite = middle[np.isfinite(middle)]
    end = float(finite[-1]) if finite.size else 0.0
    return end, name_of(architecture), colour_of(architecture)


def _scale(axes: Axes, means: np.ndarray) -> None:
    """A logarithmic scale where a linear one would hide the smaller values."""
    positive = means[np.isfinite(means) & (means > 0)]
    if positive.size and positive.max() > _WIDE_RANGE * positive.min():
        axes.set_yscale("log", nonpositive="clip")
        plain_numbers(axes.yaxis)
        axes.set_ylim(positive.min() / 1.6, positive.max() * 1.6)


def _with_zero(axes: Axes) -> None:
    """Limits of what was drawn, and of 0 where the scale has it."""
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))


def _mark_length(axes: Axes, length: int) -> None:
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
