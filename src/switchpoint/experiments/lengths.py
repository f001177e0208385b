"""Networks on other lengths than they were trained on."""

from collections.abc import Sequence

import xarray as xr

from switchpoint.exact import bayes_optimal
from switchpoint.experiments.plans import length_run, length_trials, longer_trials, main_run
from switchpoint.experiments.scales import Trial
from switchpoint.experiments.summaries import of_seeds, stacked, with_error
from switchpoint.experiments.work import Work


def longer_lengths(work: Work) -> xr.Dataset:
    """Networks trained on PTW, on longer sequences of the PTW that fits them."""
    scale = work.scale
    trials = longer_trials(scale)
    optimum = _optimum(work, trials)
    excess = stacked(
        {
            architecture: stacked(
                {
                    trial.length: work.network_regret(main_run(scale, architecture), "ptw", trial)
                    for trial in trials
                },
                "length",
            )
            for architecture in scale.architectures
        },
        "architecture",
    )
    return _result({"excess": excess}, optimum)


def other_lengths(work: Work) -> xr.Dataset:
    """Networks on the length they were trained on, and those of one length on all.

    An architecture that was not trained on every length is left out.
    """
    scale = work.scale
    known = [name for name in scale.other_architectures if _trained_on_all_lengths(work, name)]
    trials = length_trials(scale)
    optimum = _optimum(work, trials)

    def tested(architecture: str, trained: int, trial: Trial) -> xr.DataArray:
        return work.network_regret(length_run(scale, architecture, trained), "ptw", trial)

    def regret(own: bool) -> xr.DataArray:
        rows = {
            architecture: stacked(
                {
                    trial.length: tested(
                        architecture, trial.length if own else scale.base_length, trial
                    )
                    for trial in trials
                },
                "length",
            )
            for architecture in known
        }
        return stacked(rows, "architecture")

    result = _result({"own": regret(own=True), "transferred": regret(own=False)}, optimum)
    return result.assign_attrs(base_length=scale.base_length)


def _trained_on_all_lengths(work: Work, architecture: str) -> bool:
    lengths = sorted({work.scale.base_length, *work.scale.other_lengths})
    lacking = [work.lacks(length_run(work.scale, architecture, n), "ptw") for n in lengths]
    return not any(lacking)


def _optimum(work: Work, trials: Sequence[Trial]) -> xr.DataArray:
    """The regret (length, sequence) of the PTW that fits each length."""
    return stacked({trial.length: _optimum_of(work, trial) for trial in trials}, "length")


def _optimum_of(work: Work, trial: Trial) -> xr.DataArray:
    source = work.scale.source(trial.source, trial.length)
    regret = work.regret(
        f"optimum on {trial.name}",
        lambda: [bayes_optimal(source)],
        source,
        trial.length,
        trial.sequences,
    )
    return regret.isel(member=0)


def _result(regrets: dict[str, xr.DataArray], optimum: xr.DataArray) -> xr.Dataset:
    variables = with_error(optimum, "optimum_regret")
    for name, regret in regrets.items():
        excess = (regret - optimum).transpose("length", "architecture", "seed", "sequence")
        variables |= of_seeds(excess, name)
    return xr.Dataset(variables)
