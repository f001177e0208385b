"""Tables of numbers as coloured squares, with the numbers written in them."""

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from switchpoint.figures.identity import name_of, source_name
from switchpoint.figures.marks import plain_numbers
from switchpoint.figures.style import WIDTH, new_figure, styled

_DARK = 0.55  # the share of the scale from which letters are white


def draw_transfer_matrix(dataset: xr.Dataset) -> dict[str, Figure]:
    """Excess regret for each pair of training and test source, a panel for each predictor."""
    trains = [str(name) for name in dataset["train_source"].values]
    tests = [str(name) for name in dataset["test_source"].values]
    values = {
        name_of(str(architecture)): dataset["excess_mean"]
        .sel(architecture=architecture)
        .transpose("train_source", "test_source")
        .values
        for architecture in dataset["architecture"].values
    }
    values["exact optimum"] = (
        dataset["exact_excess"].sel(exact=trains).transpose("exact", "test_source").values
    )
    shown = np.concatenate([table.ravel() for table in values.values()])
    norm = log_norm(shown)
    rows = (len(values) + 2) // 3
    with styled():
        figure = new_figure(WIDTH, 2.75 * rows + 0.9)
        grid = figure.subplots(rows, 3, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(values) :]:
            axes.set_axis_off()
        for axes, (title, table) in zip(grid.flat, values.items(), strict=False):
            image = squares(axes, table, norm)
            axes.set_title(title)
            axes.set_xticks(
                range(len(tests)),
                [_folded(source_name(dataset, name)) for name in tests],
                rotation=40,
                ha="right",
                rotation_mode="anchor",
            )
            axes.set_yticks(
                range(len(trains)), [_folded(source_name(dataset, name)) for name in trains]
            )
        figure.supylabel("trained on", fontsize=10)
        figure.supxlabel("tested on", fontsize=10)
        bar = figure.colorbar(image, ax=grid, label="excess regret (bits)", shrink=0.7, pad=0.02)
        plain_numbers(bar.ax.yaxis)
    return {"off-distribution-matrix": figure}


def _folded(name: str) -> str:
    """A name of two words on two lines."""
    return name.replace(" ", "\n", 1)


def log_norm(values: Float[np.ndarray, "..."]) -> LogNorm:
    """A logarithmic scale of colours over the positive among `values`, of three decades at most."""
    positive = values[np.isfinite(values) & (values > 0)]
    top = float(positive.max()) if positive.size else 1.0
    low = max(float(positive.min()), top / 1000) if positive.size else 0.1
    return LogNorm(min(low, top / 10), top, clip=True)


def squares(axes: Axes, table: Float[np.ndarray, "row column"], norm: LogNorm) -> AxesImage:
    """A table in colours, with its numbers; NaN is left blank."""
    # What is not positive (an exact optimum at home, or noise) has the lowest colour.
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
                color="white" if dark else "#2B2B2B",
            )
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def short(value: float) -> str:
    """A number in few digits."""
    if abs(value) >= 99.5:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.95 else f"{value:.2f}"
