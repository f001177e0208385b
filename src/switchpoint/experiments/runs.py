"""Trained networks for the studies: trained once, shared by all that need them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


class Runs:
    """The training runs below one directory; a run that is not complete is trained first."""

    def __init__(self, directory: Path, watcher: Watcher) -> None:
        self._directory = directory
        self._watcher = watcher
        self._loaded: dict[str, Ensemble] = {}
        self.seconds = 0.0
        """How long training has taken so far."""

    def ensemble(self, run: TrainingRun) -> Ensemble:
        """The networks of a run, trained now if they have not been."""
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
    return bool(card.get("config") == run.config.to_dict())
