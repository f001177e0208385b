"""What sequences and seeds say together: means, errors, the best and the middle one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

_BITS = {"units": "bits"}


def with_error(values: xr.DataArray, name: str) -> dict[str, xr.DataArray]:
    """The mean over sequences as `name`, and its standard error as `name_error`."""
    return {
        name: values.mean("sequence", skipna=False).assign_attrs(_BITS),
        f"{name}_error": _error(values).assign_attrs(_BITS),
    }


def of_seeds(values: xr.DataArray, name: str) -> dict[str, xr.DataArray]:
    """Of (..., seed, sequence): each seed with its error, and what the seeds have in common.

    `name_mean` is over the seeds that came to their end, `name_mean_error` its standard error
    over sequences, `name_deviation` the standard deviation over seeds; `name_minimum` and
    `name_median` are those of the seeds.
    """
    each = with_error(values, name)
    seeds = each[name]
    with np.errstate(invalid="ignore", divide="ignore"):
        common = {
            **with_error(values.mean("seed"), f"{name}_mean"),
            f"{name}_deviation": _deviation(seeds),
            f"{name}_minimum": seeds.min("seed"),
            f"{name}_median": seeds.median("seed"),
        }
    return {**each, **{key: value.assign_attrs(_BITS) for key, value in common.items()}}


def regret_and_excess(regret: xr.DataArray, optimum: xr.DataArray) -> dict[str, xr.DataArray]:
    """Both for (..., seed, sequence); the excess is over the optimum on the same sequences."""
    return {**of_seeds(regret, "regret"), **of_seeds(regret - optimum, "excess")}


def of_exact(regret: xr.DataArray, optimum: xr.DataArray) -> dict[str, xr.DataArray]:
    """Regret and excess of exact predictors (..., exact, sequence)."""
    return {
        **with_error(regret, "exact_regret"),
        **with_error(regret - optimum, "exact_excess"),
    }


def stacked(rows: Mapping[Any, xr.DataArray], dimension: str) -> xr.DataArray:
    """The values along a new dimension, whose coordinate are the keys."""
    joined = xr.concat(list(rows.values()), dim=dimension)
    return joined.assign_coords({dimension: list(rows)})


def _error(values: xr.DataArray) -> xr.DataArray:
    count = values.sizes["sequence"]
    if count < 2:
        return xr.full_like(values.isel(sequence=0, drop=True), np.nan)
    return values.std("sequence", ddof=1, skipna=False) / count**0.5


def _deviation(seeds: xr.DataArray) -> xr.DataArray:
    count = seeds.notnull().sum("seed")
    squares = ((seeds - seeds.mean("seed")) ** 2).sum("seed")
    return (squares / (count - 1).where(count > 1)) ** 0.5
