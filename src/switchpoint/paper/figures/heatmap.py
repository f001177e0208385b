"""Tables of numbers as coloured squares, with the numbers written in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.image import AxesImage

from switchpoint.figures.style import INK

_DARK = 0.55  # the share of the colour scale from which letters are white


def log_norm(values: Float[np.ndarray, "..."], least_ratio: float = 10.0) -> LogNorm:
    """A logarithmic colour scale over the positive values, of three decades at most.

    Its ends differ by a factor of `least_ratio` at least, so that small differences look small.
    """
    positive = values[np.isfinite(values) & (values > 0)]
    top = float(positive.max()) if positive.size else 1.0
    low = max(float(positive.min()), top / 1000) if positive.size else 0.1
    return LogNorm(min(low, top / least_ratio), top, clip=True)


def squares(
    axes: Axes,
    table: Float[np.ndarray, "row column"],
    norm: LogNorm,
    title: str,
    rows: Sequence[Any] | np.ndarray,
    columns: Sequence[Any] | np.ndarray,
    **column_style: Any,
) -> AxesImage:
    """A table in colours, with its numbers and the labels of its rows; NaN is left blank."""
    axes.set_title(title)
    axes.set_xticks(range(len(columns)), [str(label) for label in columns], **column_style)
    axes.set_yticks(range(len(rows)), [str(label) for label in rows])
    # What is not positive (the optimum on its own source, or noise) has the lowest colour.
    lowest = float(norm.vmin or 0.0)
    lifted = np.where(table <= 0, lowest, table)
    image = axes.imshow(lifted, norm=norm, cmap="Blues", aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            dark = float(norm(max(value, lowest))) > _DARK
            axes.text(
                column,
                row,
                short(float(value)),
                ha="center",
                va="center",
                fontsize=8.5,
                color="white" if dark else INK,
            )
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def short(value: float) -> str:
    """A number in few digits, two of them significant."""
    size = abs(value)
    digits = 0 if size >= 99.5 else 1 if size >= 9.95 else 2 if size >= 0.0995 else 3
    return f"{value:.{digits}f}"
