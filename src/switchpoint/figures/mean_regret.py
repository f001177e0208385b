"""Mean cumulative regret over time, with its standard error."""

import xarray as xr
from matplotlib.figure import Figure

from switchpoint.figures.identity import colour_of, name_of, source_name
from switchpoint.figures.marks import band, labels_right
from switchpoint.figures.style import WIDTH, new_figure, styled
from switchpoint.figures.trajectory import position_axis


def draw_mean_regret(dataset: xr.Dataset) -> dict[str, Figure]:
    """One figure, as Figure 2 of the paper."""
    with styled():
        figure = new_figure(WIDTH, 4.2)
        axes = figure.subplots()
        figure.suptitle(
            f"Mean over {dataset.attrs['sequences']:,} sequences from "
            f"{source_name(dataset, 'ptw')}, with two standard errors",
            x=0.01,
            ha="left",
        )
        labels = []
        for predictor in map(str, dataset["predictor"].values):
            one = dataset.sel(predictor=predictor)
            middle, error = one["cumulative_regret"].values, one["cumulative_regret_error"].values
            # A dashed line over a solid one: where two agree, both are seen.
            order = 2.5 if predictor == "lstm" else 3
            band(axes, one["time"].values, middle, 2 * error, predictor, zorder=order, linewidth=2)
            text = f"{name_of(predictor)} {middle[-1]:.2f}"
            labels.append((float(middle[-1]), text, colour_of(predictor)))
        axes.set_ylim(bottom=0)
        axes.set_ylabel("cumulative regret (bits)")
        position_axis(axes, dataset.sizes["time"])
        figure.draw_without_rendering()
        labels_right(axes, labels)
    return {"mean-regret": figure}
