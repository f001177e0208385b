"""Networks on other lengths than they were trained on."""

import xarray as xr

from switchpoint.exact import bayes_optimal
from switchpoint.experiments.plans import length_run, main_run
from switchpoint.experiments.runs import TrainingRun
from switchpoint.experiments.summaries import of_seeds, seed_dimension, stacked, with_error
from switchpoint.experiments.work import Work


def longer_lengths(work: Work) -> xr.Dataset:
    """Networks trained on PTW, on longer sequences of the PTW that fits them."""
    scale = work.scale
    lengths, sequences = scale.longer_lengths, scale.longer_sequences
    optimum = _optimum(work, lengths, sequences)
    excess = stacked(
        {
            architecture: stacked(
                {n: _tested(work, main_run(scale, architecture), n, sequences) for n in lengths},
                "length",
            )
            for architecture in scale.architectures
        },
        "architecture",
    )
    return _result({"excess": excess}, optimum)


def other_lengths(work: Work) -> xr.Dataset:
    """Networks on the length they were trained on, and those of one length on all."""
    scale = work.scale
    lengths, sequences = scale.other_lengths, scale.other_sequences
    optimum = _optimum(work, lengths, sequences)

    def regret(own: bool) -> xr.DataArray:
        rows = {
            architecture: stacked(
                {
                    n: _tested(
                        work,
                        length_run(scale, architecture, n if own else scale.base_length),
                        n,
                        sequences,
                    )
                    for n in lengths
                },
                "length",
            )
            for architecture in scale.other_architectures
        }
        return stacked(rows, "architecture")

    result = _result({"own": regret(own=True), "transferred": regret(own=False)}, optimum)
    return result.assign_attrs(base_length=scale.base_length)


def _tested(work: Work, run: TrainingRun, length: int, sequences: int) -> xr.DataArray:
    """The regret (seed, sequence) of the networks of a run that were trained on PTW."""
    regret = work.regret(
        f"{run.name} on length {length}",
        lambda: work.runs.ensemble(run).of("ptw"),
        work.scale.source("ptw", length),
        length,
        sequences,
    )
    return seed_dimension(regret)


def _optimum(work: Work, lengths: tuple[int, ...], sequences: int) -> xr.DataArray:
    """The regret (length, sequence) of the PTW that fits each length."""
    return stacked({length: _optimum_of(work, length, sequences) for length in lengths}, "length")


def _optimum_of(work: Work, length: int, sequences: int) -> xr.DataArray:
    source = work.scale.source("ptw", length)
    regret = work.regret(
        f"optimum on length {length}", lambda: [bayes_optimal(source)], source, length, sequences
    )
    return regret.isel(member=0)


def _result(regrets: dict[str, xr.DataArray], optimum: xr.DataArray) -> xr.Dataset:
    variables = with_error(optimum, "optimum_regret")
    for name, regret in regrets.items():
        excess = (regret - optimum).transpose("length", "architecture", "seed", "sequence")
        variables |= of_seeds(excess, name)
    return xr.Dataset(variables)
