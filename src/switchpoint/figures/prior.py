"""A prior's distributions: of segment lengths, of switches by position, and of their number."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from switchpoint.figures.style import BLUE, CYCLE, legend_above, new_figure, styled

_FEW_DOTS = 40
_PANEL_POINTS = 210.0  # how wide a panel is, in points
_NEGLIGIBLE = 1e-4
_TOO_SMALL = 1e-6  # a share of the highest that no one can see
_WIDE_RANGE = 1e3


def prior_figure(
    length_laws: Mapping[str, Float[np.ndarray, "..."]],
    switch_probability: Float[np.ndarray, " time"],
    count_law: Float[np.ndarray, " count"],
    title: str,
) -> Figure:
    """The law of the length, by the label of each start, and of the switches of a sequence."""
    with styled():
        figure = new_figure(11.5, 3.8)
        lengths, places, counts = figure.subplots(1, 3)
        figure.suptitle(title, x=0.01, ha="left")
        _lengths(lengths, length_laws)
        _spikes(places, np.arange(len(switch_probability)), switch_probability)
        places.set_xlabel("position t")
        places.set_ylabel("P(switch at t)")
        likely = np.flatnonzero(count_law >= _NEGLIGIBLE)
        _spikes(counts, likely, count_law[likely])
        counts.set_xlabel("number of switches")
        counts.set_ylabel("probability")
    return figure


def _lengths(axes: Axes, laws: Mapping[str, Float[np.ndarray, "..."]]) -> None:
    supports = {
        label: np.flatnonzero(law > _TOO_SMALL * law.max()) + 1 for label, law in laws.items()
    }
    if len(laws) == 1 and all(len(support) <= _FEW_DOTS for support in supports.values()):
        for label, law in laws.items():
            _spikes(axes, supports[label], law[supports[label] - 1])
    else:
        _curves(axes, laws, supports)
    axes.set_xlabel("length of a segment")
    axes.set_ylabel("P(length)")


def _curves(
    axes: Axes, laws: Mapping[str, Float[np.ndarray, "..."]], supports: Mapping[str, np.ndarray]
) -> None:
    for (label, law), colour in zip(laws.items(), CYCLE, strict=False):
        at = supports[label]
        marker = "o" if len(at) <= _FEW_DOTS else None
        axes.plot(at, law[at - 1], color=colour, label=label, marker=marker, markersize=5)
    if any(len(law) > _FEW_DOTS for law in laws.values()):
        axes.set_xscale("log", base=2)
    positive = np.concatenate([law[supports[label] - 1] for label, law in laws.items()])
    if positive.size and positive.max() > _WIDE_RANGE * positive.min():
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if len(laws) > 1:
        legend_above(axes, columns=min(len(laws), 2))


def _spikes(axes: Axes, at: np.ndarray, heights: Float[np.ndarray, "..."]) -> None:
    """A line from 0 at every place, with a dot on top where dots do not touch.

    Many lines are as wide as their distance, so that they make one even area.
    """
    first, last = (int(at[0]), int(at[-1])) if len(at) else (0, 0)
    width = float(np.clip(1.2 * _PANEL_POINTS / (last - first + 1), 0.8, 2.0))
    axes.vlines(at, 0, heights, color=BLUE, linewidth=width, snap=False)
    if len(at) <= _FEW_DOTS:
        axes.plot(at, heights, "o", color=BLUE, markersize=5)
    margin = max(1.0, 0.03 * (last - first))
    axes.set_xlim(first - margin, last + margin)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=6))
