"""Shards: some training sources and seeds of a run, trained and measured by one command.

An ephemeral GPU worker takes one shard at a time and leaves a few small files, from which the
studies are put together elsewhere.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from switchpoint._files import atomic_write
from switchpoint._provenance import environment_info
from switchpoint.neural import load_with_card, save_networks
from switchpoint.priors import PARAMETER_OWNERS
from switchpoint.studies.base import Measurement, Run
from switchpoint.studies.context import StudyContext
from switchpoint.studies.networks import TrainedNetworks
from switchpoint.studies.progress import ProgressReporter, Stopwatch
from switchpoint.studies.registry import STUDIES
from switchpoint.studies.scale import Scale
from switchpoint.studies.store import MeasurementStore
from switchpoint.training import TrainConfig

MAX_FILE = 15 * 2**20
"""Bytes of the networks in one file, beside which it has a card."""


def all_runs(scale: Scale) -> dict[str, Run]:
    """Every training run that a study needs, in the order of the studies."""
    return {name: run for study in STUDIES.values() for name, run in study.runs(scale).items()}


def shard(run: Run, sources: Sequence[str], seeds: range) -> Run:
    """The part of a run with these of its training sources and seeds."""
    for source in sources:
        if source not in run.config.prior:
            known = ", ".join(run.config.prior)
            raise ValueError(f"prior of {run.name} must be one of {known}, got {source!r}")
    if not seeds or seeds.start not in run.seeds or seeds[-1] not in run.seeds:
        raise ValueError(
            f"seeds of {run.name} must be among {run.seeds.start} to {run.seeds[-1]}, "
            f"got {seeds.start} to {seeds.stop - 1}"
        )
    others = {name for name, owner in PARAMETER_OWNERS.items() if owner not in sources}
    own = {"prior": list(sources), "first_seed": seeds.start, "seeds": len(seeds)}
    whole = {name: value for name, value in run.config.to_dict().items() if name not in others}
    name = f"{run.name}.{'_'.join(sources)}.{seeds.start}-{seeds[-1]}"
    return Run(name, TrainConfig.from_dict({**whole, **own}))


def measurements_of(scale: Scale, run: Run, sources: Sequence[str]) -> list[Measurement]:
    """Everything that the studies ask of the networks of a run, each test set at its largest."""
    largest: dict[Any, Measurement] = {}
    for study in STUDIES.values():
        for grid in study.grids(scale).values():
            for each in grid.cells.values():
                if each.run_name == run.name and each.trained_on in sources:
                    key = (each.trained_on, each.test.source, each.test.length)
                    known = largest.setdefault(key, each)
                    if each.test.sequences > known.test.sequences:
                        largest[key] = each
    return [replace(each, run=run, seeds=None) for each in largest.values()]


def train_shard(
    scale: Scale, run: Run, part: Run, work: Path, out: Path, reporter: ProgressReporter
) -> list[Path]:
    """Train a shard of a run and take all measurements of it; returns the files it left.

    Checkpoints and measurements are kept below `work`, from which the same call resumes. Into
    `out` it writes `SHARD.0.safetensors` and so on, the networks; `SHARD.jsonl`, the records of
    the training; and `SHARD.nc`, when all is done, the regret of every network on every test set.
    """
    out.mkdir(parents=True, exist_ok=True)
    directory = work / part.name
    directory.mkdir(parents=True, exist_ok=True)
    networks = TrainedNetworks(work)
    training = Stopwatch(directory / "training_seconds.json", reporter)
    networks.reporter = training
    networks.prepare(part)
    training.save()
    about: dict[str, Any] = {
        **environment_info(),
        "training_seconds": round(training.seconds, 1),
        "members": len(part.config.members()),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    paths = _write_networks(directory, out, run.name, part.name, about)
    records = out / f"{part.name}.jsonl"
    with atomic_write(records) as file:
        file.write((directory / "metrics.jsonl").read_bytes())
    measuring = Stopwatch(directory / "measuring_seconds.json", reporter)
    store = MeasurementStore(directory / "measurements", reporter.note)
    context = StudyContext(scale, networks, store, measuring)
    # The shard is a run of its own while it is measured, and a part of the whole run afterwards.
    wanted = measurements_of(scale, run, part.config.prior)
    for each in wanted:
        context.take(replace(each, run=part))
    measuring.save()
    path = out / f"{part.name}.nc"
    about = {**about, "measuring_seconds": round(measuring.seconds, 1)}
    store.pack(path, [replace(each, run=part) for each in wanted], scale.seed, about, run.name)
    return [path, records, *paths]


def _write_networks(
    directory: Path, out: Path, run: str, part: str, about: dict[str, Any]
) -> list[Path]:
    """Files of a few networks each, in the order of the members."""
    card, networks = load_with_card(directory)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(networks[0]))
    at_once = max(1, MAX_FILE // size)
    paths = []
    for number in range(math.ceil(len(networks) / at_once)):
        some = slice(number * at_once, (number + 1) * at_once)
        own = {**card, "members": card["members"][some], "provenance": about, "run": run}
        paths.append(out / f"{part}.{number}.safetensors")
        save_networks(paths[-1], networks[some], own)
    return paths
