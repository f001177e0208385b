"""Means over sequences with their standard errors, and differences on the same sequences."""

import numpy as np
import xarray as xr


def summarise(dataset: xr.Dataset, reference: str | None = None) -> xr.Dataset:
    """What an evaluation says of each predictor and member, in bits per sequence.

    `regret` and `code_length` are means over sequences, `regret_error` and
    `code_length_error` their standard errors. With a `reference`, `excess` is the mean regret
    beyond that of the reference predictor (the mean of its members), and `excess_error` its
    standard error: from the differences on each sequence, so that what is common cancels. An
    evaluation of given sequences has no regret; its `excess` is one of code length.
    """
    columns = {}
    for name in ("regret", "code_length"):
        if name in dataset:
            columns[name] = dataset[name].mean("sequence", skipna=False)
            columns[f"{name}_error"] = _standard_error(dataset[name])
    if reference is not None:
        names = [str(name) for name in dataset["predictor"].values]
        if reference not in names:
            raise ValueError(f"reference must be one of {', '.join(names)}, got {reference!r}")
        bits = dataset["regret" if "regret" in dataset else "code_length"]
        with np.errstate(invalid="ignore"):  # infinite regrets have no difference
            excess = bits - bits.sel(predictor=reference, drop=True).mean("member")
        columns["excess"] = excess.mean("sequence", skipna=False)
        columns["excess_error"] = _standard_error(excess)
    return xr.Dataset(columns, attrs=dataset.attrs)


def _standard_error(values: xr.DataArray) -> xr.DataArray:
    count = values.sizes["sequence"]
    if count < 2:
        return xr.full_like(values.isel(sequence=0, drop=True), np.nan)
    with np.errstate(invalid="ignore"):
        return values.std("sequence", ddof=1, skipna=False) / np.sqrt(count)
