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

    >>> import switchpoint as sp
    >>> source = sp.Source(sp.Geometric(0.1))
    >>> predictors = {"kt": sp.KT(), "optimum": sp.bayes_optimal(source)}
    >>> result = sp.evaluate(predictors, source, length=16, sequences=20)
    >>> excess = sp.summarise(result, "optimum")["excess"].squeeze("member")
    >>> bool(excess.sel(predictor="kt") > 0), float(excess.sel(predictor="optimum"))
    (True, 0.0)
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
