"""Networks on the source they were trained on, and on every other."""

import xarray as xr

from switchpoint.experiments.plans import main_run
from switchpoint.experiments.scales import SOURCES, Trial
from switchpoint.experiments.summaries import (
    of_exact,
    regret_and_excess,
    stacked,
    with_error,
)
from switchpoint.experiments.work import Work, exact_predictor

_ON = ("kt", "oracle", "ptw", "lin", "optimum")
_OFF = ("kt", "oracle", "ptw", "lin", "regular", "uniform", "optimum")


def on_distribution(work: Work) -> xr.Dataset:
    """Every architecture on its own source, beside exact predictors."""
    trials = {source: work.scale.trial(source) for source in SOURCES}
    exact = stacked({source: _exact(work, trials[source], _ON) for source in SOURCES}, "source")
    optimum = exact.sel(exact="optimum", drop=True)
    rows = {
        source: stacked(
            {a: _network(work, a, source, trials[source]) for a in work.scale.architectures},
            "architecture",
        )
        for source in SOURCES
    }
    networks = regret_and_excess(stacked(rows, "source"), optimum)
    return xr.Dataset({**networks, **of_exact(exact, optimum)})


def off_distribution(work: Work) -> xr.Dataset:
    """Every architecture trained on each source and tested on each, beside exact predictors."""
    trials = {source: work.scale.off_trial(source) for source in SOURCES}
    exact = stacked(
        {source: _exact(work, trials[source], _OFF) for source in SOURCES}, "test_source"
    )
    optimum = exact.sel(exact="optimum", drop=True)
    rows = {
        trained: stacked(
            {
                tested: stacked(
                    {
                        a: _network(work, a, trained, trials[tested])
                        for a in work.scale.architectures
                    },
                    "architecture",
                )
                for tested in SOURCES
            },
            "test_source",
        )
        for trained in SOURCES
    }
    regret = stacked(rows, "train_source")
    at_home = stacked(
        {s: regret.sel(train_source=s, test_source=s, drop=True) for s in SOURCES}, "test_source"
    )
    penalty = regret.mean("seed") - at_home.mean("seed")
    networks = {**regret_and_excess(regret, optimum), **with_error(penalty, "penalty")}
    return xr.Dataset({**networks, **of_exact(exact, optimum)})


def _exact(work: Work, trial: Trial, names: tuple[str, ...]) -> xr.DataArray:
    """The regret (exact, sequence) of exact predictors."""
    scale = work.scale
    source = scale.source(trial.source)
    regret = work.regret(
        f"exact predictors on {trial.name}",
        lambda: [exact_predictor(name, scale, source, trial.length) for name in names],
        source,
        trial.length,
        trial.sequences,
    )
    return regret.rename(member="exact").assign_coords(exact=list(names))


def _network(work: Work, architecture: str, trained: str, trial: Trial) -> xr.DataArray:
    """The regret (seed, sequence) of networks trained on one source, on another or the same."""
    return work.network_regret(main_run(work.scale, architecture), trained, trial)
