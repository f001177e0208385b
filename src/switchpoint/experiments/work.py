"""What a study works with: its scale, trained networks, and the evaluations made so far."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint.evaluation.evaluate import Entry
from switchpoint.evaluation.measure import Member
from switchpoint.exact import KT, KTOracle, bayes_optimal
from switchpoint.experiments.kept import Kept
from switchpoint.experiments.runs import Networks, TrainingRun
from switchpoint.experiments.scales import Scale, Trial
from switchpoint.experiments.watching import Watcher
from switchpoint.sources import Source


class Work:
    """Evaluations for one study, each kept in a file until the study is complete.

    An interrupted study thus goes on with the evaluation it was at.
    """

    def __init__(self, scale: Scale, runs: Networks, parts: Kept, watcher: Watcher) -> None:
        self.scale = scale
        self.runs = runs
        self._parts = parts
        self._watcher = watcher
        self.not_run: dict[str, dict[str, list[int]]] = {}
        """The seeds that were asked for and not trained, by run and prior."""

    def lacks(self, run: TrainingRun, prior: str) -> bool:
        """Whether no network of a run was trained on `prior`; if so, the result names it."""
        missing = self.runs.missing(run, prior)
        if len(missing) < run.config.seeds:
            return False
        self.not_run.setdefault(run.name, {})[prior] = missing
        return True

    def network_regret(
        self, run: TrainingRun, prior: str, trial: Trial, seeds: int | None = None
    ) -> xr.DataArray:
        """The regret (seed, sequence) of the networks of a run that were trained on `prior`.

        Of the first `seeds` of them, or of all.
        """
        if missing := self.runs.missing(run, prior)[:seeds]:
            self.not_run.setdefault(run.name, {})[prior] = missing
        known = self.runs.measured(run, prior, trial.name, trial.sequences)
        if known is not None:
            return known.isel(seed=slice(seeds))
        regret = self.regret(
            f"{run.name} of {prior} on {trial.name}",
            lambda: self.runs.ensemble(run).of(prior)[:seeds],
            self.scale.source(trial.source, trial.length),
            trial.length,
            trial.sequences,
        )
        named = regret.rename(member="seed")
        if self.scale.shipped is not None:
            return named  # each network of the zoo is of its own seed, which its card names
        return named.assign_coords(seed=np.array(run.seeds[:seeds], np.int32))

    def regret(
        self,
        part: str,
        members: Callable[[], Sequence[Member | None]],
        source: Source,
        length: int,
        sequences: int,
    ) -> xr.DataArray:
        """The regret (member, sequence) in bits; a member that is None has NaN.

        The sequences are the same for all that have the same source, length and number.
        """

        def measure() -> xr.Dataset:
            every = members()
            known = {str(i): member for i, member in enumerate(every) if member is not None}
            blank = xr.DataArray(
                np.full((len(every), sequences), np.nan), dims=("member", "sequence")
            )
            if known:
                found = self.evaluate(part, known, source, length, sequences)["regret"]
                blank[[int(i) for i in known]] = found.isel(member=0).values
            return xr.Dataset({"regret": blank})

        return self._parts.get(part, measure)["regret"]

    def evaluate(
        self,
        part: str,
        predictors: Mapping[str, Entry],
        source: Source,
        length: int,
        sequences: int,
        **options: Any,
    ) -> xr.Dataset:
        """What `switchpoint.evaluate` says with the seed of the scale."""
        text = f"evaluating {part}"
        self._watcher.doing(text, 0.0)
        return evaluation.evaluate(
            predictors,
            source,
            length,
            sequences,
            seed=self.scale.seed,
            progress=lambda done, total: self._watcher.doing(text, done / total),
            **options,
        )


def exact_predictor(name: str, scale: Scale, source: Source, length: int) -> Member:
    """The exact predictor called `name`, as `switchpoint evaluate` names it."""
    if name == "oracle":
        return KTOracle
    if name == "kt":
        return KT(source.segment)
    if name == "optimum":
        return bayes_optimal(source)
    return bayes_optimal(scale.source(name, length))
