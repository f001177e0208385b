"""Means over sequences with their standard errors, and differences on the same sequences."""

import numpy as np
import xarray as xr

from switchpoint import _checks
from switchpoint.evaluation.metrics import standard_error


def summarise(dataset: xr.Dataset, reference: str | None = None) -> xr.Dataset:
    """Summary statistics per predictor and member, in bits per sequence.

    `regret` and `code_length` are means over sequences, `regret_error` and `code_length_error`
    their standard errors. With a `reference`, `excess` is the mean regret beyond that of the
    reference predictor (the mean of its members), and `excess_error` its standard error, from the
    differences on each sequence: the variation that both share cancels. An evaluation of given
    sequences has no regret; its `excess` is one of code length.

    ```python
    summarise(sp.evaluate({"kt": sp.KT(), "optimum": sp.bayes_optimal(source)}, source, 64, 1000),
              "optimum")["excess"]
    ```
    """
    columns = {}
    for name in ("regret", "code_length"):
        if name in dataset:
            columns[name] = dataset[name].mean("sequence", skipna=False)
            columns[f"{name}_error"] = standard_error(dataset[name], "sequence")
    if reference is not None:
        _checks.one_of("reference", reference, map(str, dataset["predictor"].values))
        bits = dataset["regret" if "regret" in dataset else "code_length"]
        with np.errstate(invalid="ignore"):  # infinite regrets have no difference
            excess = bits - bits.sel(predictor=reference, drop=True).mean("member")
        columns["excess"] = excess.mean("sequence", skipna=False)
        columns["excess_error"] = standard_error(excess, "sequence")
    return xr.Dataset(columns, attrs=dataset.attrs)
