"""A training run and all measurements of its networks, the unit of work of other processes.

Everything that it produces is in a shared directory.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from switchpoint._files import write_json
from switchpoint._progress import Part, Progress
from switchpoint._provenance import environment_info
from switchpoint.paper.base import Measurement, Run, Study
from switchpoint.paper.context import StudyContext
from switchpoint.paper.networks import COST, TrainedNetworks, training_cost
from switchpoint.paper.scale import Scale
from switchpoint.paper.store import MeasurementStore
from switchpoint.training import train
from switchpoint.training.run_directory import is_trained


def measurements_by_run(scale: Scale, studies: Iterable[Study]) -> dict[str, list[Measurement]]:
    """Everything that studies ask of the networks of each run, each test set at its largest."""
    largest: dict[Any, Measurement] = {}
    for each in (each for study in studies for each in study.measurements(scale)):
        key = (each.run_name, each.trained_on, each.test.source, each.test.length)
        if each.test.sequences >= largest.setdefault(key, each).test.sequences:
            largest[key] = each
    by_run: dict[str, list[Measurement]] = {}
    for each in largest.values():
        if each.run is not None:
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
    begun = time.monotonic()
    if not is_trained(directory, run.config):
        train(run.config, directory, progress=Part(progress, 0.0, 1.0, f"training {run.name}: "))
        finished = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        machine = {**environment_info(), "finished": finished}
        _add_cost(directory, begun, "training_seconds", machine)
    begun = time.monotonic()
    rows = MeasurementStore(store, name=run.name)
    context = StudyContext(scale, TrainedNetworks(runs), rows, progress)
    for each in measurements:
        context.take(each)
    _add_cost(directory, begun, "measuring_seconds")


def _add_cost(
    directory: Path, begun: float, kind: str, machine: Mapping[str, Any] | None = None
) -> None:
    """Add the seconds since `begun` to the cost of a run."""
    cost = training_cost(directory)
    cost |= {kind: cost[kind] + time.monotonic() - begun, **(machine or {})}
    write_json(directory / COST, {"format": 1, "cost": cost})
