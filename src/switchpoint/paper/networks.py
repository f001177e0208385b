"""Trained networks by run, training source and seed: trained here, or those of a zoo."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from switchpoint._files import json_digest, read_json
from switchpoint._provenance import environment_info
from switchpoint.neural import Network, best_member, load_with_card, read_card
from switchpoint.paper.base import Run, main_runs
from switchpoint.paper.scale import Scale
from switchpoint.training import EvalRecord
from switchpoint.training.run_directory import METRICS_FILE, final_reports
from switchpoint.zoo import Zoo
from switchpoint.zoo.manifest import SOURCES

COST = "cost.json"
"""The file of the cost of a run, in its directory."""


def training_cost(directory: Path) -> dict[str, Any]:
    """The machine that trained the networks in a directory, and the seconds spent on them."""
    try:
        return dict(read_json(directory / COST, cost=dict)["cost"])
    except ValueError:
        unknown = dict.fromkeys([*environment_info(), "finished"], "unknown")
        return {**unknown, "training_seconds": 0.0, "measuring_seconds": 0.0}


class Networks:
    """Network files, indexed by the cards inside them; weights are read when asked for."""

    identity = "trained"
    """Names the directory of measurements of these networks."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str, int], tuple[Path, int, dict[str, Any]]] = {}
        self._loaded: dict[Path, Sequence[Network]] = {}

    def prepare(self, run: Run) -> None:
        """Find the networks of a run; where they are given, there is nothing to do."""

    def members(self, run: Run, trained_on: str) -> dict[int, Network | None]:
        """The networks of a run by seed; None where training diverged, missing ones left out."""
        self.prepare(run)
        by_seed: dict[int, Network | None] = {}
        for seed in run.seeds:
            if (key := (run.name, trained_on, seed)) in self._members:
                card = self._members[key][2]
                by_seed[seed] = None if card["diverged"] else self._network(key)
        return by_seed

    def best(self, run: Run, trained_on: str) -> Network:
        """The network with the lowest excess on the validation sequences."""
        self.prepare(run)
        rivals = [key for key in self._members if key[:2] == (run.name, trained_on)]
        if not rivals:
            raise ValueError(f"there is no network of {run.name} trained on {trained_on}")
        cards = [self._members[key][2] for key in rivals]
        return self._network(rivals[best_member({"members": cards})])

    def log(self, run: Run) -> Sequence[EvalRecord]:
        """The reports of a training run."""
        raise NotImplementedError

    def add(self, run: str, path: Path) -> dict[str, Any]:
        """Add the networks of a file, or of the directory of a training run, to a run; the card."""
        card = read_card(path)
        for index, member in enumerate(card["members"]):
            self._members[run, member["prior"], member["seed"]] = path, index, member
        return card

    def _network(self, key: tuple[str, str, int]) -> Network:
        path, index, _ = self._members[key]
        if path not in self._loaded:
            self._loaded[path] = load_with_card(path)[1]
        return self._loaded[path][index]


class TrainedNetworks(Networks):
    """The training runs below one directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def prepare(self, run: Run) -> None:
        if not any(name == run.name for name, _, _ in self._members):
            self.add(run.name, self.directory / run.name)

    def can_have(self, run: Run) -> bool:
        """Whether there are, or can be made, networks of every training source of a run."""
        del run
        return True

    def provenance(self, runs: Iterable[Run]) -> dict[str, Any]:
        """The machine and cost of the training of some runs, by their names."""
        return {
            run.name: training_cost(self.directory / run.name)
            | {"members": len(run.config.members())}
            for run in runs
        }

    def log(self, run: Run) -> Sequence[EvalRecord]:
        return final_reports(self.directory / run.name / METRICS_FILE, run.config)


class PretrainedNetworks(Networks):
    """The networks of a zoo, each of the seed that did best in validation."""

    def __init__(self, zoo: Zoo, scale: Scale) -> None:
        super().__init__()
        self.identity = f"pretrained-{json_digest(zoo.digests())[:16]}"
        names = {
            (run.config.model, on): run.name for run in main_runs(scale) for on in run.config.prior
        }
        self._cards: dict[tuple[str, str], dict[str, Any]] = {}
        """By the names of the run and of the network."""
        for name in zoo.names():
            card = zoo.card(name)
            run = names.get((card["model"], card["members"][0]["prior"]), card["model"])
            self._cards[run, name] = self.add(run, zoo.path(name))
        lengths = {name: card["config"]["length"] for (_, name), card in self._cards.items()}
        needed = [f"{model}-{prior}" for model in scale.architectures for prior in SOURCES]
        missing = [name for name in needed if name not in lengths]
        if missing:
            raise ValueError(
                f"this scale needs {len(needed)} pretrained networks, and {len(missing)} of them "
                f"are not in the zoo, such as {missing[0]}; --scale quick trains its own"
            )
        if others := {lengths[name] for name in needed} - {scale.length}:
            raise ValueError(
                f"the networks of the zoo were trained with length {min(others)}, "
                f"got {scale.length}"
            )

    def can_have(self, run: Run) -> bool:
        """Whether there is a network of every training source of a run."""
        there = {key[:2] for key in self._members}
        return all((run.name, each) in there for each in run.config.prior)

    def provenance(self, runs: Iterable[Run]) -> dict[str, Any]:
        """The machine and cost of the training of some runs, by the names of the networks."""
        wanted = {run.name for run in runs}
        own = {name: card for (run, name), card in self._cards.items() if run in wanted}
        costs = {name: card["provenance"]["training"] for name, card in own.items()}
        return {name: cost for name, cost in costs.items() if cost}
