"""Regret along the sequence, on PTW."""

import numpy as np
import xarray as xr

from switchpoint.evaluation.measure import Member
from switchpoint.experiments.plans import main_run
from switchpoint.experiments.summaries import with_error
from switchpoint.experiments.work import Work, exact_predictor

_SHOWN = ("ptw", "lin", "oracle")


def mean_regret(work: Work) -> xr.Dataset:
    """The mean cumulative regret of an LSTM and of exact predictors."""
    scale = work.scale
    source = scale.source("ptw")
    predictors: dict[str, Member] = {
        "lstm": work.runs.ensemble(main_run(scale, "lstm")).best("ptw"),
        **{name: exact_predictor(name, scale, source, scale.length) for name in _SHOWN},
    }
    bits = _by_symbol(work, predictors).cumsum("time")
    return xr.Dataset(with_error(bits, "cumulative_regret"))


def regret_by_index(work: Work) -> xr.Dataset:
    """The mean regret of each symbol: the best network of each architecture, and the optimum."""
    scale = work.scale
    networks: dict[str, Member] = {
        name: work.runs.ensemble(main_run(scale, name)).best("ptw") for name in scale.architectures
    }
    optimum = exact_predictor("optimum", scale, scale.source("ptw"), scale.length)
    bits = _by_symbol(work, {**networks, "optimum": optimum})
    of_networks = bits.sel(predictor=list(networks)).rename(predictor="architecture")
    of_optimum = bits.sel(predictor="optimum", drop=True)
    return xr.Dataset(
        {
            **with_error(of_networks, "regret"),
            **with_error(of_optimum, "optimum_regret"),
            **with_error(of_networks - of_optimum, "difference"),
        }
    )


def _by_symbol(work: Work, predictors: dict[str, Member]) -> xr.DataArray:
    scale = work.scale
    found = work.evaluate(
        "every symbol",
        predictors,
        scale.source("ptw"),
        scale.length,
        scale.sequences,
        keep="all",
    )
    bits = found["regret_by_symbol"].isel(member=0, drop=True).astype(np.float64)
    return bits.drop_vars(["switches", "sequence", "members"], errors="ignore")
