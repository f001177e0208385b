"""The look that all figures share, and how they are written to files."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from switchpoint._files import atomic_write

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
"""The width of the studies' figures in inches, so that all have letters of one size."""

_LEGEND_LINE = 1.4
_CSS_INCH = 96  # pixels of a page

# The two cells have a hue each, of which the stack takes the lighter one.
_COLOURS = {
    "rnn": ORANGE,
    "lstm": BLUE,
    "stack-rnn": YELLOW,
    "stack-lstm": SKY,
    "transformer": GREEN,
    "kt": GREY,
    "oracle": "#AA4499",
    "ptw": WINE,
    "lin": "#8C8A1E",
    "optimum": INK,
}
_MARKERS = {"rnn": "o", "lstm": "s", "stack-rnn": "^", "stack-lstm": "D", "transformer": "P"}
_DASHES = {
    "kt": (0, (1.2, 1.8)),
    "oracle": (0, (6, 1.6, 1.2, 1.6)),
    "ptw": (0, (6, 2)),
    "lin": (0, (3, 1.6)),
    "optimum": (0, (9, 1.5)),
}

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
    "pdf.fonttype": 42,  # text stays text: to be searched and copied
    "lines.linewidth": 1.4,
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 9,
    "ytick.color": INK,
    "ytick.labelsize": 9,
}


def hue(predictor: str) -> str:
    """The colour of a predictor, the same in every figure."""
    return _COLOURS.get(predictor, GREY)


def marker_style(architecture: str) -> str:
    """The marker of an architecture, so that colour is not the only sign."""
    return _MARKERS.get(architecture, "o")


def line_style(predictor: str) -> dict[str, Any]:
    """The line of a predictor: networks solid, exact predictors dashed."""
    style: Any = _DASHES.get(predictor, "solid")
    return {"color": hue(predictor), "linestyle": style}


def darker(colour: str) -> str:
    """A colour dark enough for text on white."""
    red, green, blue = to_rgb(colour)
    return to_hex((0.7 * red, 0.7 * green, 0.7 * blue))


@contextmanager
def styled() -> Iterator[None]:
    """A context in which figures are made in the shared look."""
    with matplotlib.rc_context(_STYLE):
        yield


class DisplayedFigure(Figure):
    """A figure that shows itself in a notebook, even where pyplot has not been imported."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue(), {"width": round(_CSS_INCH * self.get_figwidth())}


def new_figure(width: float, height: float) -> DisplayedFigure:
    """An empty figure of a size in inches, apart from pyplot and its global state."""
    figure = DisplayedFigure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def stacked_panels(heights: Sequence[float]) -> tuple[DisplayedFigure, list[Axes]]:
    """A figure of panels of these heights in inches, one below the other, that share an axis."""
    figure = new_figure(10.0, sum(heights))
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    return figure, list(grid[:, 0])


def mark_switches(axes: Axes, places: Iterable[Any], label: str) -> None:
    """Dashed lines at these places of an axis, with one entry in a legend."""
    look: Any = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 0.9, "zorder": 0.9}
    for number, place in enumerate(places):
        axes.axvline(place, label=None if number else label, **look)


def legend_above(axes: Axes, columns: int) -> None:
    """A legend above the right end of the axes, where no data are."""
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


def write_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write a figure as PDF and PNG, whole or not at all; equal results make equal bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, metadata in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
        path = directory / f"{name}.{kind}"
        with styled(), atomic_write(path, "figure") as file:
            figure.savefig(file, format=kind, metadata=metadata)
        figure.set_layout_engine("none")  # laid out once: the costly half of drawing
        paths.append(path)
    return paths
