"""What comes with the package: the networks of the zoo, and results recorded at full size."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation
from switchpoint.experiments.runs import Ensemble, Networks, TrainingRun
from switchpoint.zoo import Zoo
from switchpoint.zoo.collection import PACKAGED
from switchpoint.zoo.names import NAMES, SOURCES, name_of

RECORDED = Path(__file__).parent / "recorded"
"""Results of the full scale, as a GPU made them."""


@dataclass(frozen=True)
class Shipped:
    """The directories of a zoo and of recorded results."""

    zoo: Path = PACKAGED
    recorded: Path = RECORDED

    def check(self, models: Iterable[str]) -> None:
        """Raise a `ValueError` where networks of these architectures are missing."""
        there = Zoo(self.zoo).names()
        needed = [name_of(model, prior) for model in models for prior in SOURCES]
        missing = [name for name in needed if name not in there]
        if missing:
            raise ValueError(
                f"this scale needs {len(needed)} trained networks of the zoo, and "
                f"{len(missing)} of them are not there yet, {missing[0]} for one; "
                "--scale quick trains its own"
            )

    def description(self) -> dict[str, Any]:
        """What results that rest on it depend on: digests of all its files."""
        networks = {name: entry.sha256 for name, entry in Zoo(self.zoo).entries.items()}
        recorded = {path.stem: _digest(path) for path in sorted(self.recorded.glob("*.nc"))}
        return {"networks": networks, "recorded": recorded}

    def result(self, study: str) -> xr.Dataset | None:
        """The recorded result of a study, if there is one."""
        path = self.recorded / f"{study}.nc"
        return evaluation.load(path) if path.exists() else None

    def has_networks_of(self, runs: Iterable[TrainingRun]) -> bool:
        """Whether the zoo's networks are all that these runs would train, one seed of each."""
        return all(name_of(run.name, prior) in NAMES for run in runs for prior in run.config.prior)


class ShippedNetworks(Networks):
    """The networks of a zoo, in place of training runs of one seed."""

    def __init__(self, shipped: Shipped) -> None:
        self._zoo = Zoo(shipped.zoo)
        self._loaded = cache(self._load)

    def measured(self, run: TrainingRun, prior: str, trial: str, sequences: int) -> None:
        """Nothing: studies measure these networks."""

    def ensemble(self, run: TrainingRun) -> Ensemble:
        return self._loaded(run.name)

    def provenance(self, runs: Iterable[TrainingRun]) -> dict[str, Any]:
        names = [name_of(run.name, prior) for run in runs for prior in SOURCES]
        cards = {name: self._zoo.card(name) for name in names if name in self._zoo.entries}
        return {name: card["provenance"]["training"] for name, card in cards.items()}

    def _load(self, model: str) -> Ensemble:
        names = [name_of(model, prior) for prior in SOURCES]
        members = [self._zoo.card(name)["members"][0] for name in names]
        return Ensemble([self._zoo.network(name) for name in names], {"members": members})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
