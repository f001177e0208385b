"""The look that all figures share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
YELLOW = "#E69F00"
SKY = "#56B4E9"
WINE = "#882255"
GREY = "#7A7A7A"
INK = "#2B2B2B"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW)

WIDTH = 8.0
"""How wide the figures of studies are, in inches, so that all have letters of one size."""

_LEGEND_LINE = 1.4

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#9A9A9A",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.titlesize": 12,
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters: to be searched and copied
    "lines.linewidth": 1.4,
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 9,
    "ytick.color": INK,
    "ytick.labelsize": 9,
}


def darker(colour: str) -> str:
    """A colour as letters need it: light ones are hard to read on white."""
    red, green, blue = to_rgb(colour)
    return to_hex((0.7 * red, 0.7 * green, 0.7 * blue))


@contextmanager
def styled() -> Iterator[None]:
    """Within it, figures are made in the shared look; nothing changes outside."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, apart from pyplot and its global state."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def legend_above(axes: Axes, columns: int) -> None:
    """A legend over the right end of the axes, where no data are."""
    legend = axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.4,
    )
    # Lines too thin to be told apart in a legend are thickened there.
    for line in legend.get_lines():
        line.set_linewidth(max(line.get_linewidth(), _LEGEND_LINE))
    for handle in legend.legend_handles:
        if isinstance(handle, LineCollection):
            handle.set_linewidth(_LEGEND_LINE)
