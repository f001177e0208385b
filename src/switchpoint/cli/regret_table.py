"""An evaluation as a table for the terminal."""

import math

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from switchpoint.cli.summary import shortened
from switchpoint.evaluation import summarise


def print_regrets(console: Console, dataset: xr.Dataset, reference: str) -> None:
    """Print regret, excess over the reference and code length of each predictor.

    The numbers of an ensemble are means over its members on each sequence. Where there is an
    ensemble, more columns tell how its members differ.
    """
    length, sequences = dataset.sizes["time"], dataset.sizes["sequence"]
    console.print(shortened(dataset.attrs["prior"]), style="bold", markup=False)
    table = Table(
        title=f"{sequences:,} sequences of {length:,} symbols, seed {dataset.attrs['seed']}",
        title_justify="left",
        title_style="cyan",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("predictor", overflow="fold")  # nothing may be lost on a narrow terminal
    ensembles = dataset.sizes["member"] > 1
    headings = ["regret, bits", "error", f"excess over {reference}", "error", "bits per symbol"]
    if ensembles:
        headings = ["members", *headings[:-1], "lowest", "median", headings[-1]]
    for heading in headings:
        table.add_column(Text(heading, overflow="fold"), justify="right", overflow="fold")
    means = summarise(_mean_over_members(dataset), reference).isel(member=0)
    each = summarise(dataset, reference)
    for name in dataset["predictor"].values:
        row, count = means.sel(predictor=name), int(dataset["members"].sel(predictor=name))
        excess = each["excess"].sel(predictor=name).values[:count]
        differences = [_number(excess.min()), _number(np.median(excess))] if count > 1 else ["", ""]
        table.add_row(
            Text(str(name)),
            *([str(count)] if ensembles else []),
            _number(row["regret"]),
            _number(row["regret_error"]),
            _number(row["excess"]),
            _number(row["excess_error"]),
            *(differences if ensembles else []),
            f"{float(row['code_length']) / length:.4f}",
        )
    console.print(table)
    console.print()


def _mean_over_members(dataset: xr.Dataset) -> xr.Dataset:
    """The same evaluation with one member: the mean of all there are, on each sequence."""
    present = dataset["member"] < dataset["members"]
    totals = dataset[["regret", "code_length"]].where(present, 0).sum("member", skipna=False)
    return (totals / dataset["members"]).expand_dims("member")


def _number(value: xr.DataArray | np.floating) -> str:
    number = float(value)
    return "-" if math.isnan(number) else f"{number:.3f}"
