"""Networks and measurements from the files that pieces of training runs left."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint.experiments.pieces import piece_card, piece_of, variable_name
from switchpoint.experiments.plans import main_runs
from switchpoint.experiments.runs import Ensemble, Networks, TrainingRun
from switchpoint.experiments.scales import Scale
from switchpoint.experiments.studies import Study
from switchpoint.neural import Network, load_with_card
from switchpoint.training.config import upgrade_config


class Pieces(Networks):
    """The pieces in one directory, as if their runs had been trained whole."""

    def __init__(self, directory: Path, test_seed: int) -> None:
        self._cards = {path: piece_card(path) for path in sorted(directory.glob("*.nc"))}
        for path, card in self._cards.items():
            if card["test_seed"] != test_seed:
                raise ValueError(f"{path} must be measured with the seed {test_seed}")
        self._load = cache(evaluation.load)

    def check_study(self, study: Study, scale: Scale) -> None:
        """Raise a `ValueError` where networks are missing without which there is no study."""
        runs = study.runs(scale)
        if study.some_runs_suffice:
            own = [run for run in runs if run not in main_runs(scale)]
            if not any(self._of(run, prior) for run in own for prior in run.config.prior):
                raise ValueError(f"there is no piece that is for {study.name} alone")
        else:
            for run in runs:
                self.check(run)

    def check(self, run: TrainingRun) -> None:
        """Raise a `ValueError` where there is no seed at all of one of the priors of a run."""
        for prior in run.config.prior:
            if len(self.missing(run, prior)) == run.config.seeds:
                raise ValueError(f"there is no piece of {run.name} on {prior}")

    def missing(self, run: TrainingRun, prior: str) -> list[int]:
        """The seeds that no piece has."""
        there: set[int] = set()
        for _, card in self._of(run, prior):
            first = card["config"]["first_seed"]
            there |= set(range(first, first + card["config"]["seeds"]))
        return [seed for seed in run.seeds if seed not in there]

    def measured(
        self, run: TrainingRun, prior: str, trial: str, sequences: int
    ) -> xr.DataArray | None:
        """The regret of all seeds, put together from the pieces; missing ones have NaN."""
        self.check(run)
        name = variable_name(prior, trial)
        found = {}
        for path, _ in self._of(run, prior):
            dataset = self._load(path)
            if name not in dataset:
                raise ValueError(f"{path} has no measurement {name}")
            regret = dataset[name]
            (dimension,) = set(regret.dims) - {"seed"}
            regret = regret.rename({dimension: "sequence"}).astype(float)
            if regret.sizes["sequence"] < sequences:
                raise ValueError(f"{path} must have {sequences} sequences of {name}")
            for seed in regret["seed"].values:
                found[int(seed)] = regret.sel(seed=[seed]).isel(sequence=slice(sequences))
        every = np.array(run.seeds, np.int32)
        return xr.concat(list(found.values()), "seed").reindex(seed=every)

    def ensemble(self, run: TrainingRun) -> Ensemble:
        """The networks of all seeds that are there."""
        self.check(run)
        networks: dict[tuple[str, int], tuple[Network, dict[str, Any]]] = {}
        for path in dict.fromkeys(p for prior in run.config.prior for p, _ in self._of(run, prior)):
            for file in sorted(path.parent.glob(f"{path.stem}.*.safetensors")):
                card, members = load_with_card(file)
                for network, member in zip(members, card["members"], strict=True):
                    networks[member["prior"], member["seed"]] = network, member
        pairs = []
        for prior in run.config.prior:
            for seed in sorted(set(run.seeds) - set(self.missing(run, prior))):
                if (prior, seed) not in networks:
                    raise ValueError(
                        f"the network of {run.name} on {prior}, seed {seed}, is missing"
                    )
                pairs.append(networks[prior, seed])
        return Ensemble([network for network, _ in pairs], {"members": [card for _, card in pairs]})

    def provenance(self, runs: Iterable[TrainingRun]) -> dict[str, Any]:
        return {
            path.stem: card["provenance"]
            for run in runs
            for prior in run.config.prior
            for path, card in self._of(run, prior)
        }

    def _of(self, run: TrainingRun, prior: str) -> list[tuple[Path, dict[str, Any]]]:
        """The pieces of a run that have this prior; one of another configuration is refused."""
        found = []
        for path, card in self._cards.items():
            config = card["config"]
            if card["run"] == run.name and prior in config["prior"]:
                first = config["first_seed"]
                seeds = range(first, first + config["seeds"])
                if piece_of(run, config["prior"], seeds).config.to_dict() != upgrade_config(config):
                    raise ValueError(
                        f"{path} is of another configuration of {run.name} than this scale has"
                    )
                found.append((path, card))
        return found
