"""Networks on the source they were trained on, and on every other."""

import xarray as xr

from switchpoint.experiments.plans import main_run
from switchpoint.experiments.scales import SOURCES
from switchpoint.experiments.summaries import (
    of_exact,
    regret_and_excess,
    seed_dimension,
    stacked,
    with_error,
)
from switchpoint.experiments.work import Work, exact_predictor

_ON = ("kt", "oracle", "ptw", "lin", "optimum")
_OFF = ("kt", "oracle", "ptw", "lin", "regular", "uniform", "optimum")


def on_distribution(work: Work) -> xr.Dataset:
    """Every architecture on its own source, beside exact predictors."""
    exact = stacked({source: _exact(work, source, _ON) for source in SOURCES}, "source")
    optimum = exact.sel(exact="optimum", drop=True)
    rows = {
        source: stacked(
            {a: _network(work, a, source, source) for a in work.scale.architectures},
            "architecture",
        )
        for source in SOURCES
    }
    networks = regret_and_excess(stacked(rows, "source"), optimum)
    return xr.Dataset({**networks, **of_exact(exact, optimum)})


def off_distribution(work: Work) -> xr.Dataset:
    """Every architecture trained on each source and tested on each, beside exact predictors."""
    exact = stacked({source: _exact(work, source, _OFF) for source in SOURCES}, "test_source")
    optimum = exact.sel(exact="optimum", drop=True)
    rows = {
        trained: stacked(
            {
                tested: stacked(
                    {a: _network(work, a, trained, tested) for a in work.scale.architectures},
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


def _exact(work: Work, tested: str, names: tuple[str, ...]) -> xr.DataArray:
    """The regret (exact, sequence) of exact predictors."""
    scale = work.scale
    source = scale.source(tested)
    regret = work.regret(
        f"exact predictors on {tested}",
        lambda: [exact_predictor(name, scale, source, scale.length) for name in names],
        source,
        scale.length,
        scale.sequences,
    )
    return regret.rename(member="exact").assign_coords(exact=list(names))


def _network(work: Work, architecture: str, trained: str, tested: str) -> xr.DataArray:
    """The regret (seed, sequence) of networks trained on one source, on another or the same."""
    scale = work.scale
    regret = work.regret(
        f"{architecture} of {trained} on {tested}",
        lambda: work.runs.ensemble(main_run(scale, architecture)).of(trained),
        scale.source(tested),
        scale.length,
        scale.sequences,
    )
    return seed_dimension(regret)
