"""What predictors say of one sequence, and where on many they lose to the optimum."""

from collections.abc import Mapping

import jax
import numpy as np
import xarray as xr

from switchpoint._random import key_for
from switchpoint.evaluation import regret
from switchpoint.exact import KTOracle, bayes_optimal
from switchpoint.experiments.plans import main_run
from switchpoint.experiments.scales import SOURCES
from switchpoint.experiments.summaries import stacked
from switchpoint.experiments.work import Work
from switchpoint.predictor import Predictor
from switchpoint.sources import Draw, Source

_CANDIDATES = 250  # of which one is shown; as many as `evaluate` takes, whose programs serve


def trajectories(work: Work) -> xr.Dataset:
    """One sequence of each source, with the optimum, the oracle and a network."""
    rows = {}
    ensemble = work.runs.ensemble(main_run(work.scale, "lstm"))
    for name in SOURCES:
        source = work.scale.source(name)
        draw = source.sample(key_for(0, "example"), _CANDIDATES, work.scale.length)
        predictors = {
            "optimum": bayes_optimal(source),
            "oracle": KTOracle(draw.switches, source.segment),
            "lstm": ensemble.best(name),
        }
        rows[name] = _followed(draw, _typical(draw, source), predictors)
    return xr.Dataset(
        {key: stacked({n: r[key] for n, r in rows.items()}, "source") for key in rows["ptw"]}
    )


def twice_the_length(work: Work) -> xr.Dataset:
    """Networks on sequences twice as long as those they were trained on.

    One sequence without a switch, and for many the difference to the optimum, ordered by the
    number of switches.
    """
    scale = work.scale
    length = 2 * scale.length
    source = scale.source("ptw", length)
    optimum = bayes_optimal(source)
    networks = {
        name: work.runs.ensemble(main_run(scale, name)).best("ptw") for name in scale.architectures
    }
    draw = source.sample(key_for(0, "example"), _CANDIDATES, length)
    row = _without_switch(draw)
    only = jax.tree.map(lambda leaf: leaf[row : row + 1], draw)
    one = _followed(only, 0, {"optimum": optimum, **networks})
    many = work.evaluate(
        "many sequences",
        {"optimum": optimum, **networks},
        source,
        length,
        scale.heat_sequences,
        keep="all",
    )
    bits = many["regret_by_symbol"].isel(member=0)
    difference = bits.sel(predictor=list(networks)) - bits.sel(predictor="optimum", drop=True)
    switches = many["switches"].values
    order = np.argsort(switches, kind="stable")
    difference = difference.rename(predictor="architecture").isel(sequence=order)
    heat = {
        "difference": (difference.dims, difference.values.astype(np.float32), {"units": "bits"}),
        "switch_count": ("sequence", switches[order]),
    }
    del one["switches"]  # there are none
    coordinates = {"architecture": list(networks), "sequence": np.arange(len(order))}
    result = xr.Dataset(one).assign(heat).assign_coords(coordinates)
    return result.assign_attrs(test_length=length)


def _typical(draw: Draw, source: Source) -> int:
    """The first sequence that has as many switches as are expected, or nearly."""
    expected = source.prior.switch_probability(draw.symbols.shape[-1]).sum()
    counts = np.asarray(draw.switches).sum(-1)
    return int(np.argmin(np.abs(counts - expected)))


def _without_switch(draw: Draw) -> int:
    """A sequence with no switch, whose symbols are neither all alike nor evenly mixed."""
    switches = np.asarray(draw.switches).sum(-1)
    bias = np.asarray(draw.probs)[:, 0, 1]
    return int(np.argmin(np.abs(bias - 0.25) + switches))


def _followed(
    draws: Draw, row: int, predictors: Mapping[str, Predictor]
) -> dict[str, xr.DataArray]:
    """One of the sequences, and what each predictor says of every symbol and loses by it."""
    logs = {name: each.log_probs(draws.symbols)[row] for name, each in predictors.items()}
    draw: Draw = jax.tree.map(lambda leaf: leaf[row], draws)
    bits = np.stack([np.asarray(regret(draw, log)) for log in logs.values()]).astype(np.float64)
    chances = np.exp([np.asarray(log, np.float64)[:, 1] for log in logs.values()])
    times = {"time": np.arange(draw.symbols.shape[-1], dtype=np.int32)}
    both = {"predictor": list(predictors), **times}

    def of_sequence(values: object, kind: type) -> xr.DataArray:
        return xr.DataArray(np.asarray(values).astype(kind), times, dims=("time",))

    def of_predictors(values: np.ndarray, units: str) -> xr.DataArray:
        return xr.DataArray(values, both, dims=tuple(both), attrs={"units": units})

    return {
        "symbols": of_sequence(draw.symbols, np.int32),
        "probability": of_sequence(draw.probs[:, 1], np.float64),
        "switches": of_sequence(draw.switches, np.int32),
        "prediction": of_predictors(chances, "1"),
        "regret": of_predictors(bits, "bits"),
        "cumulative_regret": of_predictors(bits.cumsum(-1), "bits"),
    }
