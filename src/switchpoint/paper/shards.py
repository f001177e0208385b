"""Shards: some training sources and seeds of a run, trained and measured by one process.

A shard is the unit of work of other processes and machines. With a shared directory, it leaves a
training run and its measurements there; on an ephemeral GPU worker it leaves a few small files,
from which the studies are computed elsewhere.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from switchpoint._files import atomic_write
from switchpoint._progress import Part, Progress
from switchpoint._provenance import environment_info
from switchpoint.neural import best_member, load_with_card, save_networks
from switchpoint.paper.base import Measurement, Run, Study
from switchpoint.paper.context import StudyContext
from switchpoint.paper.networks import Networks
from switchpoint.paper.progress import Stopwatch
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.scale import Scale
from switchpoint.paper.store import MeasurementStore
from switchpoint.training import train
from switchpoint.training.run_directory import METRICS_FILE, is_trained

MAX_FILE = 15 * 2**20
"""Bytes of the networks in one file, beside which it has a card."""


_TRAINING, _MEASURING = "training_seconds.json", "measuring_seconds.json"


def all_runs(scale: Scale) -> dict[str, Run]:
    """Every training run that a study needs, in the order of the studies."""
    return {name: run for study in STUDIES.values() for name, run in study.runs(scale).items()}


@dataclass(frozen=True)
class Shard:
    """Some training sources and seeds of a run, and what is to be measured of their networks."""

    scale: Scale
    run: Run
    part: Run
    """The same run with these sources and seeds alone; the run itself where it is not divided."""
    measurements: tuple[Measurement, ...]

    @classmethod
    def of(
        cls, scale: Scale, run: Run, part: Run, measurements: Mapping[str, Sequence[Measurement]]
    ) -> "Shard":
        """The shard of a run, with those of the measurements by run that are of its sources."""
        wanted = (replace(each, run=run) for each in measurements.get(run.name, ()))
        own = tuple(each for each in wanted if each.trained_on in part.config.prior)
        return cls(scale, run, part, own)

    @property
    def cost(self) -> float:
        """The symbols that its networks are trained on."""
        config = self.part.config
        return len(config.members()) * config.steps * config.batch * config.length

    def is_done(self, runs: Path, store: MeasurementStore) -> bool:
        """Whether its networks are trained, and the store has all measurements of them."""
        return is_trained(runs / self.part.name, self.part.config) and all(
            set(self.part.seeds) <= set(store.find(each, self.scale.seed))
            for each in self.measurements
        )


def measurements_by_run(
    scale: Scale, studies: Iterable[Study] | None = None
) -> dict[str, list[Measurement]]:
    """Everything that studies ask of the networks of each run, each test set at its largest."""
    largest: dict[Any, Measurement] = {}
    for study in STUDIES.values() if studies is None else studies:
        for grid in study.grids(scale).values():
            for each in grid.cells.values():
                if each.run is not None:
                    key = (each.run.name, each.trained_on, each.test.source, each.test.length)
                    known = largest.setdefault(key, each)
                    if each.test.sequences > known.test.sequences:
                        largest[key] = each
    by_run: dict[str, list[Measurement]] = {}
    for each in largest.values():
        by_run.setdefault(each.run_name, []).append(replace(each, seeds=None))
    return by_run


class ShardTimes(NamedTuple):
    """Seconds spent on a shard, in all processes that worked on it."""

    training: float
    measuring: float


def train_and_measure(shard: Shard, runs: Path, store: Path, progress: Progress) -> None:
    """Train a shard in its directory below `runs`, and add its measurements to those in `store`.

    The function is idempotent and resumable.
    """
    _train(shard.part, runs, progress)
    rows = MeasurementStore(store, name=shard.part.name)
    _measure(shard, runs, rows, progress)


def shard_times(runs: Path, part: Run) -> ShardTimes:
    """The time spent on a shard so far."""
    files = (runs / part.name / each for each in (_TRAINING, _MEASURING))
    return ShardTimes(*(Stopwatch(file).seconds for file in files))


def train_shard(
    scale: Scale, run: Run, part: Run, work: Path, out: Path, best_only: bool, progress: Progress
) -> list[Path]:
    """Train a shard of a run and take all measurements of it; returns the files it left.

    Checkpoints and measurements are kept below `work`, from which the same call resumes. Into
    `out` it writes `SHARD.0.safetensors` and so on, the networks; `SHARD.jsonl`, the records of
    the training; and `SHARD.nc`, when all is done, the regret of every network on every test set.
    With `best_only`, the first has the best network of each training source alone.
    """
    out.mkdir(parents=True, exist_ok=True)
    directory = work / part.name
    about: dict[str, Any] = {
        "training_seconds": round(_train(part, work, progress), 1),
        **environment_info(),
        "members": len(part.config.members()),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    paths = _write_networks(directory, out, run.name, part.name, about, best_only)
    records = out / f"{part.name}.jsonl"
    with atomic_write(records) as file:
        file.write((directory / METRICS_FILE).read_bytes())
    shard = Shard.of(scale, run, part, measurements_by_run(scale))
    store = MeasurementStore(directory / "measurements", progress.note)
    seconds = _measure(shard, work, store, progress)
    path = out / f"{part.name}.nc"
    store.pack(
        path, shard.measurements, scale.seed, {**about, "measuring_seconds": round(seconds, 1)}
    )
    return [path, records, *paths]


def _train(part: Run, runs: Path, progress: Progress) -> float:
    """Train a run, unless it is trained; how many seconds it took."""
    directory = runs / part.name
    clock = Stopwatch(directory / _TRAINING, progress)
    if not is_trained(directory, part.config):
        train(part.config, directory, progress=Part(clock, 0.0, 1.0, f"training {part.name}: "))
        clock.save()
    return clock.seconds


def _measure(shard: Shard, runs: Path, store: MeasurementStore, progress: Progress) -> float:
    """Take the measurements of a shard that the store does not have; how many seconds it took."""
    clock = Stopwatch(runs / shard.part.name / _MEASURING, progress)
    networks = Networks()
    networks.add(shard.run.name, shard.part.name, runs / shard.part.name)
    context = StudyContext(shard.scale, networks, store, clock)
    for each in shard.measurements:
        context.take(each)
    clock.save()
    return clock.seconds


def _write_networks(
    directory: Path, out: Path, run: str, part: str, about: dict[str, Any], best_only: bool
) -> list[Path]:
    """Files of a few networks each, in the order of the members."""
    card, networks = load_with_card(directory)
    if best_only:
        rivals = Counter(member["prior"] for member in card["members"])
        best = [best_member(card, prior) for prior in rivals]
        networks = [networks[index] for index in best]
        card = {**card, "members": [card["members"][i] for i in best], "candidates": rivals}
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(networks[0]))
    at_once = max(1, MAX_FILE // size)
    paths = []
    for number in range(math.ceil(len(networks) / at_once)):
        some = slice(number * at_once, (number + 1) * at_once)
        own = {**card, "members": card["members"][some], "provenance": about, "run": run}
        paths.append(out / f"{part}.{number}.safetensors")
        save_networks(paths[-1], networks[some], own)
    return paths
