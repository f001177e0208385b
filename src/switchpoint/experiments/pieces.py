"""Pieces of training runs: some priors and seeds, trained and measured by one command.

A machine that is lent for minutes and forgets everything takes a piece at a time. What a piece
leaves is a few small files, from which the studies are put together elsewhere.
"""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint._files import replacing
from switchpoint._provenance import made_with
from switchpoint.evaluation import regrets
from switchpoint.experiments.kept import Kept
from switchpoint.experiments.plans import trials_of
from switchpoint.experiments.runs import Ensemble, Runs, TrainingRun
from switchpoint.experiments.scales import Scale, Trial
from switchpoint.experiments.stopwatch import Stopwatch
from switchpoint.experiments.watching import Watcher
from switchpoint.neural import Network, save_networks
from switchpoint.priors import PARAMETER_OWNERS
from switchpoint.training import TrainConfig

LARGEST_FILE = 15 * 2**20
"""The bytes that a file of networks may have, nearly: it has a card as well."""


def piece_of(run: TrainingRun, priors: Sequence[str], seeds: range) -> TrainingRun:
    """The part of a run that has these of its priors and seeds."""
    for prior in priors:
        if prior not in run.config.prior:
            known = ", ".join(run.config.prior)
            raise ValueError(f"prior of {run.name} must be one of {known}, got {prior!r}")
    if not seeds or seeds.start not in run.seeds or seeds[-1] not in run.seeds:
        raise ValueError(
            f"seeds of {run.name} must be among {run.seeds.start} to {run.seeds[-1]}, "
            f"got {seeds.start} to {seeds.stop - 1}"
        )
    whole = run.config.to_dict()
    others = {name for name, owner in PARAMETER_OWNERS.items() if owner not in priors}
    kept = {name: value for name, value in whole.items() if name not in others}
    own = {"prior": list(priors), "first_seed": seeds.start, "seeds": len(seeds)}
    name = f"{run.name}.{'_'.join(priors)}.{seeds.start}-{seeds[-1]}"
    return TrainingRun(name, TrainConfig.from_dict({**kept, **own}))


def variable_name(prior: str, trial: str) -> str:
    """What the regret of networks of a prior on a trial is called in a file."""
    return f"{prior}_on_{trial.replace(' ', '_')}"


def carry_out(
    scale: Scale, run: TrainingRun, piece: TrainingRun, work: Path, out: Path, watcher: Watcher
) -> list[Path]:
    """Train a piece of a run and measure all that the studies ask of it; the files it left.

    Below `work` it keeps checkpoints and measurements, with which the same call goes on after
    it was stopped. Into `out` it writes

    - `PIECE.0.safetensors` and so on: the networks, in files of at most 15 MiB;
    - `PIECE.jsonl`: the reports of the training;
    - `PIECE.nc`, when all is done: the regret of every seed on every sequence of every trial.
    """
    out.mkdir(parents=True, exist_ok=True)
    directory = work / piece.name
    directory.mkdir(parents=True, exist_ok=True)
    training = Stopwatch(directory / "training_seconds", watcher)
    ensemble = Runs(work, training).ensemble(piece)
    about: dict[str, Any] = {
        **made_with(),
        "training_seconds": round(training.stop(), 1),
        "members": len(piece.config.members()),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    paths = _write_networks(ensemble, out, piece.name, about)
    reports = out / f"{piece.name}.jsonl"
    with replacing(reports) as file:
        file.write((directory / "metrics.jsonl").read_bytes())
    measuring = Stopwatch(directory / "measuring_seconds", watcher)
    measured = _measured(scale, run, piece, ensemble, directory / "measured", measuring)
    described = {
        "run": run.name,
        "config": piece.config.to_dict(),
        "test_seed": scale.seed,
        "provenance": {**about, "measuring_seconds": round(measuring.stop(), 1)},
    }
    path = out / f"{piece.name}.nc"
    evaluation.save(measured.assign_attrs(described), path)
    return [path, reports, *paths]


def _measured(
    scale: Scale,
    run: TrainingRun,
    piece: TrainingRun,
    ensemble: Ensemble,
    directory: Path,
    watcher: Watcher,
) -> xr.Dataset:
    described = {"config": piece.config.to_dict(), "seed": scale.seed}
    kept = Kept(directory, described, watcher.note)
    variables = {}
    for prior in piece.config.prior:
        networks = ensemble.of(prior)
        for trial in trials_of(scale, run, prior):
            name = variable_name(prior, trial.name)

            def measure(
                networks: list[Network | None] = networks, trial: Trial = trial, name: str = name
            ) -> xr.Dataset:
                return xr.Dataset({"regret": _regret(scale, networks, trial, name, watcher)})

            found = kept.get(f"{name} {trial.sequences}", measure)["regret"]
            # The trials have different numbers of sequences.
            variables[name] = found.rename(sequence=f"sequence_{trial.sequences}")
    return xr.Dataset(variables).assign_coords(seed=np.array(piece.seeds, np.int32))


def _regret(
    scale: Scale, networks: list[Network | None], trial: Trial, name: str, watcher: Watcher
) -> xr.DataArray:
    """The regret (seed, sequence); networks whose training failed have NaN."""
    known = {seed: network for seed, network in enumerate(networks) if network is not None}
    bits = np.full((len(networks), trial.sequences), np.nan, np.float32)
    if known:
        bits[list(known)] = regrets(
            list(known.values()),
            scale.source(trial.source, trial.length),
            trial.length,
            trial.sequences,
            scale.seed,
            progress=lambda done, total: watcher.doing(f"measuring {name}", done / total),
        )
    return xr.DataArray(bits, dims=("seed", "sequence"), attrs={"units": "bits"})


def _write_networks(ensemble: Ensemble, out: Path, piece: str, about: dict[str, Any]) -> list[Path]:
    """Files of a few networks each, in the order of the members."""
    networks, members = ensemble.networks, ensemble.card["members"]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(networks[0]))
    at_once = max(1, LARGEST_FILE // size)
    paths = []
    for number in range(math.ceil(len(networks) / at_once)):
        some = slice(number * at_once, (number + 1) * at_once)
        card = {**ensemble.card, "members": members[some], "provenance": about}
        paths.append(out / f"{piece}.{number}.safetensors")
        save_networks(paths[-1], networks[some], card)
    return paths


def piece_card(path: Path) -> dict[str, Any]:
    """What the file `PIECE.nc` says about itself."""
    attributes = evaluation.load(path).attrs
    try:
        TrainConfig.from_dict(attributes["config"])
        if {"run", "test_seed", "provenance"} <= set(attributes):
            return attributes
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"{path} is no piece of a training run: {json.dumps(attributes)[:60]}")
