"""Trained networks for the studies: trained once, shared by all that need them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from switchpoint.experiments.watching import WatchedTraining, Watcher
from switchpoint.neural import Network, load_members, read_card
from switchpoint.training import TrainConfig, train


@dataclass(frozen=True)
class TrainingRun:
    """A training run by its name, which is that of its directory."""

    name: str
    config: TrainConfig


@dataclass(frozen=True)
class Ensemble:
    """The networks of a run."""

    config: TrainConfig
    networks: Sequence[Network]
    excess: Sequence[float | None]
    """The excess of each on the validation sequences; None where it is not finite."""
    frozen: Sequence[bool]
    """Whether training stopped because a loss was not finite."""

    def of(self, prior: str) -> list[Network | None]:
        """The networks trained on `prior`, one for each seed; None where training failed."""
        return [None if self.frozen[i] else self.networks[i] for i in self._indices(prior)]

    def best(self, prior: str) -> Network:
        """The one of them with the lowest excess on the validation sequences."""
        measured = [(e, i) for i in self._indices(prior) if (e := self.excess[i]) is not None]
        return self.networks[min(measured)[1] if measured else self._indices(prior)[0]]

    def _indices(self, prior: str) -> list[int]:
        return [m.index for m in self.config.members() if m.prior == prior]


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
                path = self._directory / run.name
                train(run.config, out=path, progress=WatchedTraining(self._watcher, run.name))
                self.seconds += time.monotonic() - begun
            self._loaded[run.name] = _loaded(self._directory / run.name, run.config)
        return self._loaded[run.name]


def is_complete(directory: Path, run: TrainingRun) -> bool:
    """Whether the networks of a run are there, trained as its configuration says."""
    try:
        card = read_card(directory / run.name)
    except ValueError:
        return False
    return bool(card.get("config") == run.config.to_dict())


def _loaded(path: Path, config: TrainConfig) -> Ensemble:
    members = read_card(path)["members"]
    return Ensemble(
        config,
        load_members(path),
        [member["excess"] for member in members],
        [member["frozen"] for member in members],
    )
