"""Networks that remember too little, against the least regret that their memory allows."""

import numpy as np
import xarray as xr

from switchpoint.exact import bayes_optimal
from switchpoint.exact.markov_bound import markov_bound
from switchpoint.experiments.plans import memory_run
from switchpoint.experiments.scales import SOURCES
from switchpoint.experiments.summaries import regret_and_excess, stacked, with_error
from switchpoint.experiments.work import Work


def memory(work: Work) -> xr.Dataset:
    """Memoryless and k-Markov networks on every source, and exact lower bounds."""
    scale = work.scale
    optimum = stacked({name: _optimum(work, name) for name in SOURCES}, "source")
    regret = stacked(
        {
            name: stacked({order: _tested(work, order, name) for order in scale.orders}, "order")
            for name in SOURCES
        },
        "source",
    )
    orders = range(scale.bound_order + 1)
    bounds = [
        [markov_bound(scale.source(name), scale.length, order).sum() for order in orders]
        for name in SOURCES
    ]
    return xr.Dataset(
        {
            **regret_and_excess(regret, optimum),
            **with_error(optimum, "optimum_regret"),
            "bound": (("source", "bound_order"), np.array(bounds), {"units": "bits"}),
        },
        coords={"bound_order": list(orders)},
    )


def _tested(work: Work, order: int, name: str) -> xr.DataArray:
    return work.network_regret(memory_run(work.scale, order), name, work.scale.trial(name))


def _optimum(work: Work, name: str) -> xr.DataArray:
    scale = work.scale
    source = scale.source(name)
    regret = work.regret(
        f"optimum on {name}", lambda: [bayes_optimal(source)], source, scale.length, scale.sequences
    )
    return regret.isel(member=0)
