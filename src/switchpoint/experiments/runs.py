"""Trained networks for the studies: trained once, shared by all that need them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint.experiments.watching import WatchedTraining, Watcher
from switchpoint.neural import Network, best_member, load_with_card
from switchpoint.training import TrainConfig, train
from switchpoint.training.config import upgrade_config


@dataclass(frozen=True)
class TrainingRun:
    """A training run by its name, which is that of its directory."""

    name: str
    config: TrainConfig

    @property
    def seeds(self) -> range:
        """The seeds that it has of each prior."""
        return range(self.config.first_seed, self.config.first_seed + self.config.seeds)


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

    watcher: Watcher
    """Is told how training goes."""

    @property
    def seconds(self) -> float:
        """How long training has taken in this process so far."""
        return 0.0

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
        self.watcher = watcher
        self._loaded: dict[str, Ensemble] = {}
        self._seconds = 0.0
        self._training_since: float | None = None

    @property
    def seconds(self) -> float:
        since = self._training_since
        return self._seconds + (0.0 if since is None else time.monotonic() - since)

    def measured(self, run: TrainingRun, prior: str, trial: str, sequences: int) -> None:
        """Nothing: studies measure these networks."""

    def provenance(self, runs: Iterable[TrainingRun]) -> dict[str, Any]:
        """Nothing more than what is known of this process."""
        del runs
        return {}

    def ensemble(self, run: TrainingRun) -> Ensemble:
        if run.name not in self._loaded:
            if not is_complete(self._directory, run):
                self._train(run)
            card, networks = load_with_card(self._directory / run.name)
            self._loaded[run.name] = Ensemble(networks, card)
        return self._loaded[run.name]

    def _train(self, run: TrainingRun) -> None:
        self._training_since = time.monotonic()
        try:
            train(
                run.config,
                out=self._directory / run.name,
                progress=WatchedTraining(self.watcher, run.name),
            )
        finally:
            self._seconds, self._training_since = self.seconds, None


def is_complete(directory: Path, run: TrainingRun) -> bool:
    """Whether the networks of a run are there, trained as its configuration says."""
    try:
        card, _ = load_with_card(directory / run.name)
    except ValueError:
        return False
    known = upgrade_config(card.get("config", {}))
    return known == run.config.to_dict() and card.get("steps") == run.config.steps
