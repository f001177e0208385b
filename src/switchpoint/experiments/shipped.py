"""What comes with the package: the networks of the zoo, and results recorded at full size."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation
from switchpoint._files import digest_of, read_json, replacing, write_json
from switchpoint.experiments.runs import Ensemble, Networks, TrainingRun
from switchpoint.zoo import Zoo
from switchpoint.zoo.manifest import NAMES, PACKAGED, SOURCES

RECORDED = Path(__file__).parent / "recorded"
"""Results of the full scale, as a GPU made them."""

_MANIFEST = "manifest.json"


def record(result: Path, recorded: Path) -> None:
    """Copy the file of a result into a directory, and enter its SHA-256 in the manifest there."""
    digests = _recorded_digests(recorded) or {}
    with replacing(recorded / result.name) as file:
        file.write(result.read_bytes())
    digests[result.name] = digest_of(recorded / result.name)
    write_json(recorded / _MANIFEST, {"results": dict(sorted(digests.items()))}, "manifest")


def _recorded_digests(recorded: Path) -> dict[str, Any] | None:
    """What the manifest of a directory says; None where it has none."""
    path = recorded / _MANIFEST
    return read_json(path, results=dict)["results"] if path.exists() else None


@dataclass(frozen=True)
class Shipped:
    """The directories of a zoo and of recorded results."""

    zoo: Path = PACKAGED
    recorded: Path = RECORDED

    def check(self, models: Iterable[str]) -> None:
        """Raise a `ValueError` where networks of these architectures are missing."""
        there = Zoo(self.zoo).names()
        needed = [f"{model}-{prior}" for model in models for prior in SOURCES]
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
        recorded = {path.stem: digest_of(path) for path in sorted(self.recorded.glob("*.nc"))}
        return {"networks": networks, "recorded": recorded}

    def result(self, study: str) -> xr.Dataset | None:
        """The recorded result of a study, if there is one.

        Where the directory has a manifest, a file that is not the one in it is refused.
        """
        path = self.recorded / f"{study}.nc"
        digests = _recorded_digests(self.recorded)
        there = digest_of(path) if path.exists() else None
        if digests is not None and there != digests.get(path.name):
            problem = "missing" if there is None else "damaged"
            raise ValueError(
                f"{path} is {problem}: {_MANIFEST} has another SHA-256; install switchpoint again"
            )
        return evaluation.load(path) if path.exists() else None

    def lengths(self) -> list[int]:
        """The lengths that networks were recorded on, beside which those measured here stand."""
        recorded = self.result("longer-lengths")
        return [] if recorded is None else list(map(int, recorded["length"].values))

    def has_networks_of(self, runs: Iterable[TrainingRun]) -> bool:
        """Whether the zoo's networks are all that these runs would train, one seed of each."""
        return all(f"{run.name}-{prior}" in NAMES for run in runs for prior in run.config.prior)


class ShippedNetworks(Networks):
    """The networks of a zoo, in place of training runs of one seed."""

    def __init__(self, shipped: Shipped) -> None:
        self._zoo = Zoo(shipped.zoo)
        self._loaded = cache(self._load)

    def measured(self, run: TrainingRun, prior: str, trial: str, sequences: int) -> None:
        """Nothing: studies measure these networks."""

    def ensemble(self, run: TrainingRun) -> Ensemble:
        ensemble = self._loaded(run.name)
        for name in ("length", "period"):
            wanted, trained = getattr(run.config, name), ensemble.card[name]
            if wanted != trained:
                raise ValueError(
                    f"the networks of the zoo were trained with {name} {trained}, got {wanted}"
                )
        return ensemble

    def provenance(self, runs: Iterable[TrainingRun]) -> dict[str, Any]:
        names = [f"{run.name}-{prior}" for run in runs for prior in SOURCES]
        cards = {name: self._zoo.card(name) for name in names if name in self._zoo.entries}
        return {name: card["provenance"]["training"] for name, card in cards.items()}

    def _load(self, model: str) -> Ensemble:
        names = [f"{model}-{prior}" for prior in SOURCES]
        cards = dict(zip(SOURCES, map(self._zoo.card, names), strict=True))
        together = {
            "members": [card["members"][0] for card in cards.values()],
            "length": cards["ptw"]["length"],
            "period": cards["regular"]["config"]["period"],
        }
        return Ensemble([self._zoo.network(name) for name in names], together)
