"""Trained networks for the studies: trained once, shared by all that need them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint.experiments.watching import WatchedTraining, Watcher
from switchpoint.neural import Network, best_member, load_members, read_card
from switchpoint.training import TrainConfig, train


@dataclass(frozen=True)
class TrainingRun:
    """A training run by its name, which is that of its directory."""

    name: str
    config: TrainConfig


@dataclass(frozen=True)
class Ensemble:
    """The networks of a run, with the card that says what became of each."""

    networks: Sequence[Network]
    card: Mapping[str, Any]

    def of(self, prior: str) -> list[Network | None]:
        """The networks trained on `prior`, one for each seed; None where training failed."""
        return [
            None if member["frozen"] else network
            for network, member in zip(self.networks, self.card["members"], strict=True)
            if member["prior"] == prior
        ]

    def best(self, prior: str) -> Network:
        """The one of them with the lowest excess on the validation sequences."""
        return self.networks[best_member(self.card, prior)]


class Networks(ABC):
    """Where studies get trained networks from, and what has been measured of them before."""

    seconds: float = 0.0
    """How long training has taken so far."""

    @abstractmethod
    def ensemble(self, run: TrainingRun) -> Ensemble:
        """The networks of a run."""

    @abstractmethod
    def measured(
        self, run: TrainingRun, prior: str, trial: str, sequences: int
    ) -> xr.DataArray | None:
        """The regret (seed, sequence) on the trial of this name, if it is known already."""

    def missing(self, run: TrainingRun, prior: str) -> list[int]:
        """The seeds of a run that were not trained, and have NaN in what was measured."""
        del run, prior
        return []

    @abstractmethod
    def provenance(self, runs: Iterable[TrainingRun]) -> dict[str, Any]:
        """What made these networks where and in what time, by names; empty where it is us."""


class Runs(Networks):
    """The training runs below one directory; a run that is not complete is trained first."""

    def __init__(self, directory: Path, watcher: Watcher) -> None:
        self._directory = directory
        self._watcher = watcher
        self._loaded: dict[str, Ensemble] = {}

    def measured(self, run: TrainingRun, prior: str, trial: str, sequences: int) -> None:
        """Nothing: studies measure these networks."""

    def provenance(self, runs: Iterable[TrainingRun]) -> dict[str, Any]:
        """Nothing more than what is known of this process."""
        del runs
        return {}

    def ensemble(self, run: TrainingRun) -> Ensemble:
        if run.name not in self._loaded:
            if not is_complete(self._directory, run):
                begun = time.monotonic()
                train(
                    run.config,
                    out=self._directory / run.name,
                    progress=WatchedTraining(self._watcher, run.name),
                )
                self.seconds += time.monotonic() - begun
            path = self._directory / run.name
            self._loaded[run.name] = Ensemble(load_members(path), read_card(path))
        return self._loaded[run.name]


def is_complete(directory: Path, run: TrainingRun) -> bool:
    """Whether the networks of a run are there, trained as its configuration says."""
    try:
        card = read_card(directory / run.name)
    except ValueError:
        return False
    return card.get("config") == run.config.to_dict() and card.get("steps") == run.config.steps
