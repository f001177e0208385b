"""A training run and all measurements of its networks, the unit of work of other processes.

Everything that it produces is in a shared directory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
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


def train_and_measure(
    scale: Scale,
    run: Run,
    measurements: Sequence[Measurement],
    runs: Path,
    store: Path,
    progress: Progress,
) -> None:
    """Train a run in its directory below `runs`, and add its measurements to those in `store`.

    The function is idempotent and resumable.
    """
    directory = runs / run.name
    if not is_trained(directory, run.config):
        clock = Stopwatch(directory / TRAINING, progress)
        train(run.config, directory, progress=Part(clock, 0.0, 1.0, f"training {run.name}: "))
        clock.save()
    clock = Stopwatch(directory / MEASURING, progress)
    networks = Networks()
    networks.add(run.name, directory)
    rows = MeasurementStore(store, name=run.name)
    context = StudyContext(scale, networks, rows, clock)
    for each in measurements:
        context.take(each)
    clock.save()
