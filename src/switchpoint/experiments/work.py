"""What a study works with: its scale, trained networks, and the evaluations made so far."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint.evaluation.members import Entry, Member
from switchpoint.exact import KT, KTOracle, bayes_optimal
from switchpoint.experiments.runs import Runs
from switchpoint.experiments.scales import Scale
from switchpoint.experiments.watching import Watcher
from switchpoint.sources import Source


class Work:
    """Evaluations for one study, each kept in a file until the study is complete.

    An interrupted study thus goes on with the evaluation it was at; `description` guards
    against files of a study that was described in another way.
    """

    def __init__(
        self,
        scale: Scale,
        runs: Runs,
        parts: Path,
        description: Mapping[str, Any],
        watcher: Watcher,
    ) -> None:
        self.scale = scale
        self.runs = runs
        self._parts = parts
        self._description = description
        self._watcher = watcher

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

        return self._kept(part, measure)["regret"]

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

    def _kept(self, part: str, measure: Callable[[], xr.Dataset]) -> xr.Dataset:
        path = self._parts / f"{part.replace(' ', '-')}.nc"
        try:
            found = evaluation.load(path)
            if found.attrs == self._description:
                return found
        except ValueError:
            pass  # not there yet, or not whole
        made = measure().assign_attrs(self._description)
        self._parts.mkdir(parents=True, exist_ok=True)
        evaluation.save(made, path)
        return made


def exact_predictor(name: str, scale: Scale, source: Source, length: int) -> Member:
    """The exact predictor called `name`, as `switchpoint evaluate` names it."""
    if name == "oracle":
        return KTOracle
    if name == "kt":
        return KT(source.segment)
    if name == "optimum":
        return bayes_optimal(source)
    return bayes_optimal(scale.source(name, length))
