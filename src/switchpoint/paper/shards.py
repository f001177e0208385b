"""Shards: some training sources and seeds of a run, trained and measured by one process.

A shard is the unit of work of other processes and machines. It leaves a training run and its
measurements in a shared directory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from switchpoint._progress import Part, Progress
from switchpoint.paper.base import Measurement, Run, Study
from switchpoint.paper.context import StudyContext
from switchpoint.paper.cost import MEASURING, TRAINING, Stopwatch
from switchpoint.paper.networks import Networks
from switchpoint.paper.scale import Scale
from switchpoint.paper.store import MeasurementStore
from switchpoint.training import train
from switchpoint.training.run_directory import is_trained


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

    def is_measured(self, store: MeasurementStore) -> bool:
        """Whether the store has all measurements of its networks."""
        return all(
            set(self.part.seeds) <= set(store.find(each, self.scale.seed))
            for each in self.measurements
        )

    def is_trained(self, runs: Path) -> bool:
        """Whether its networks are in their directory below `runs`."""
        return is_trained(runs / self.part.name, self.part.config)


def measurements_by_run(scale: Scale, studies: Iterable[Study]) -> dict[str, list[Measurement]]:
    """Everything that studies ask of the networks of each run, each test set at its largest."""
    largest: dict[Any, Measurement] = {}
    for study in studies:
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


def train_and_measure(shard: Shard, runs: Path, store: Path, progress: Progress) -> None:
    """Train a shard in its directory below `runs`, and add its measurements to those in `store`.

    The function is idempotent and resumable.
    """
    part = shard.part
    directory = runs / part.name
    if not shard.is_trained(runs):
        clock = Stopwatch(directory / TRAINING, progress)
        train(part.config, directory, progress=Part(clock, 0.0, 1.0, f"training {part.name}: "))
        clock.save()
    clock = Stopwatch(directory / MEASURING, progress)
    networks = Networks()
    networks.add(shard.run.name, directory)
    rows = MeasurementStore(store, name=part.name)
    context = StudyContext(shard.scale, networks, rows, clock)
    for each in shard.measurements:
        context.take(each)
    clock.save()
