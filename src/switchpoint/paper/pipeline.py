"""All studies, one after another; results that are finished are not computed again."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from filelock import FileLock, Timeout

from switchpoint import _checks
from switchpoint._files import digest_of, make_directory
from switchpoint._numbers import duration
from switchpoint._progress import Part, Progress
from switchpoint.executors import Executor, Task, TaskResults, open_executor, run_tasks
from switchpoint.figures.style import write_figure
from switchpoint.paper.base import Measurement, Run, Study
from switchpoint.paper.context import StudyContext
from switchpoint.paper.networks import PretrainedNetworks, TrainedNetworks
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.results import (
    Result,
    copy_result,
    finished,
    read_result,
    recorded_path,
    recorded_result,
    result_path,
    save_result,
)
from switchpoint.paper.scale import SCALES, Scale
from switchpoint.paper.store import MeasurementStore
from switchpoint.paper.tasks import measurements_by_run, train_and_measure
from switchpoint.training.run_directory import is_trained
from switchpoint.zoo import Zoo

_LOCKS = "locks"
_TRAINING = 0.8  # share of the progress


def reproduce(
    scale: Scale,
    out: Path,
    only: Iterable[str] | None = None,
    progress: Progress | None = None,
    command: str = "",
    then: Callable[[Study, Result], object] | None = None,
    *,
    executor: str | Executor = "local",
    jobs: int | None = None,
    ray_address: str | None = None,
) -> dict[str, Result]:
    """Run the studies of these names, or all, save their results below `out`, and return them.

    Finished studies are not computed again, and a call that was stopped, even by `kill -9`, is
    resumed; the results are the same. `then` is called after each study. Networks are trained
    below `out`, or come from the zoo where the scale says so. Studies without networks and
    without recorded results are skipped.

    `executor` trains and measures the networks: `local`, `processes`, `ray`, or any object with
    `submit(function, *arguments)` that returns a `concurrent.futures.Future`; see
    `switchpoint.executors.open_executor` for the other options. Workers must reach `out` under the
    same path. Results are the same bytes for all executors on the same kind of device. Several
    processes may run with the same `out`; they share the work. Where a run fails, the studies
    that need it are left out, and the others are finished before a `FailedTasksError` names it.
    """
    runner = StudyRunner(scale, out, only, progress)
    with open_executor(executor, jobs=jobs, ray_address=ray_address) as opened:
        return runner.run(opened, command, then)


class StudyRunner:
    """Studies in one directory, whose results are read once."""

    def __init__(
        self,
        scale: Scale,
        out: Path,
        only: Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.scale, self.out = scale, out.absolute()  # workers may have another directory
        self.studies = select_studies(only)
        self._named = only is not None
        self.progress = progress or Progress()
        self.networks: TrainedNetworks | PretrainedNetworks = (
            TrainedNetworks(self.out / "runs")
            if scale.zoo is None
            else PretrainedNetworks(Zoo(scale.zoo), scale)
        )
        self.measurements = self.out / "measurements" / self.networks.identity
        self.results: dict[str, Result] = {}
        self.states: dict[str, str] = {}
        """Of each study: done, to do, recorded, or skipped without networks."""
        self._plans = {study.name: study.plan(scale) for study in self.studies}
        for study in self.studies:
            self._find(study)

    def _find(self, study: Study) -> None:
        """Read the results of a study that are there, and find out its state."""
        path = recorded_result(self.scale.recorded, study.name)
        recorded = None if path is None else read_result(path, study.name)
        local = None
        state = "skipped" if recorded is None else "recorded"
        if self._can_compute(study):
            local = finished(self.out, study, self._plans[study.name], self.progress.note)
            state = "to do" if local is None else "done"
        self.states[study.name] = state
        if local is not None or recorded is not None:
            self.results[study.name] = Result(local, recorded)

    def _can_compute(self, study: Study) -> bool:
        recorded_only = study.needs_logs or (study.on_request and not self._named)
        if recorded_only and self.scale.zoo is not None:
            return False
        return all(map(self.networks.can_have, study.runs(self.scale).values()))

    def run(
        self,
        executor: Executor,
        command: str = "",
        then: Callable[[Study, Result], object] | None = None,
    ) -> dict[str, Result]:
        """Compute the studies that are to do, and return the results of all."""
        ahead = [study for study in self.studies if self.states[study.name] == "to do"]
        self._store = MeasurementStore(self.measurements, self.progress.note)
        trained = self._train(ahead, executor)
        start = _TRAINING if trained.done else 0.0
        costs = {study.name: study.seconds.get(self.scale.name, 1.0) or 1.0 for study in ahead}
        for study in self.studies:
            if study in ahead:
                share = (1 - start) * costs[study.name] / sum(costs.values())
                progress = Part(self.progress, start, share, f"{study.name}: ")
                self._compute(study, trained, progress, command)
                start += share
            self._copy_record(study)
            if then is not None and study.name in self.results:
                then(study, self.results[study.name])
        trained.check()
        return self.results

    def _train(self, ahead: Iterable[Study], executor: Executor) -> TaskResults:
        """Train and measure the networks of the studies ahead.

        A run whose measurements are all there is trained only for a study that uses its networks.
        """
        make_directory(self.out / _LOCKS, "directory")
        if not isinstance(self.networks, TrainedNetworks):
            return TaskResults()
        wanted = measurements_by_run(self.scale, ahead)
        used = {run.name for study in ahead for run in study.networks(self.scale)}
        directories = self.networks.directory, self.measurements
        tasks = []
        for run in {n: r for study in ahead for n, r in study.runs(self.scale).items()}.values():
            own = wanted.get(run.name, [])
            ready = run.name not in used or is_trained(directories[0] / run.name, run.config)
            if not (ready and self._is_measured(run, own)):
                arguments = (self.scale, run, own, *directories)
                tasks.append(Task(run.name, train_and_measure, arguments, run.symbols))
        progress = Part(self.progress, 0.0, _TRAINING)
        results = run_tasks(executor, tasks, self.out / _LOCKS, progress)
        self._store.load()
        return results

    def _is_measured(self, run: Run, measurements: Iterable[Measurement]) -> bool:
        """Whether the store has these measurements of every network of a run."""
        stored = (self._store.find(each, self.scale.seed) for each in measurements)
        return all(set(run.seeds) <= set(seeds) for seeds in stored)

    def _compute(
        self, study: Study, trained: TaskResults, progress: Progress, command: str
    ) -> None:
        """Compute a study whose runs are done, unless another process has computed it."""
        runs, plan = study.runs(self.scale), self._plans[study.name]
        if failed := [name for name in runs if name in trained.failed]:
            progress.note(f"skipped, since these runs failed: {', '.join(failed)}")
            return
        lock = FileLock(self.out / _LOCKS / f"study-{study.name}.lock")
        try:
            held = lock.acquire(blocking=False)
        except Timeout:
            progress.update("waiting for another process, which computes this study", 0.0)
            held = lock.acquire()
        with held:
            local = finished(self.out, study, plan, lambda _: None)
            if local is None:
                begun = time.monotonic()
                context = StudyContext(self.scale, self.networks, self._store, progress)
                context.measure(study)
                local = study.analyse(context)
                seconds = time.monotonic() - begun
                cost = {**self._cost(study, seconds), "command": command}
                local = save_result(self.out, study, self.scale, plan, local, cost)
                progress.note(f"done in {duration(seconds)}")
        if any(each.test.length != self.scale.length for each in study.measurements(self.scale)):
            jax.clear_caches()  # compiled for lengths that no other study has
        self.results[study.name] = replace(self.results.get(study.name, Result(None)), local=local)

    def _cost(self, study: Study, seconds: float) -> dict[str, Any]:
        """Seconds spent on a study, with those of the networks that no earlier study needed."""
        runs = study.runs(self.scale)
        cost: dict[str, Any] = {"wall_seconds": seconds, "training_seconds": 0.0}
        if self.scale.zoo is None:
            earlier = {
                name
                for other in STUDIES.values()
                if other.name != study.name and result_path(self.out, other.name).exists()
                for name in other.runs(self.scale)
            }
            new = [run for name, run in runs.items() if name not in earlier]
            for each in self.networks.provenance(new).values():
                cost["wall_seconds"] += each["measuring_seconds"]
                cost["training_seconds"] += each["training_seconds"]
        cost = {name: round(value, 3) for name, value in cost.items()}
        networks = self.networks.provenance(runs.values())
        return cost | ({"networks": networks} if networks else {})

    def _copy_record(self, study: Study) -> None:
        """Copy the recorded result of a study into the directory, unless it is there."""
        path = recorded_result(self.scale.recorded, study.name)
        copy = recorded_path(self.out, study.name)
        if path is not None and not (copy.exists() and digest_of(copy) == digest_of(path)):
            copy_result(path, copy)


def select_studies(only: Iterable[str] | None) -> list[Study]:
    """The studies of these names in their usual order, or all."""
    wanted = set(STUDIES if only is None else only)
    for name in sorted(wanted):
        _checks.one_of("study", name, STUDIES)
    return [study for name, study in STUDIES.items() if name in wanted]


def recordable_plans(study: Study) -> list[dict[str, Any]]:
    """The plans of a study whose results are recorded.

    A study that measures the best networks alone has them from the zoo as well.
    """
    full, zoo = SCALES["full"], SCALES["zoo"]
    plans = [study.plan(full)]
    if not study.grids(full):
        sizes = {name: getattr(full, name) for name in study.scale_fields}
        plans.append(study.plan(zoo.replace(**sizes)))
    return plans


def draw(study: Study, result: Result, out: Path, again: bool = False) -> list[Path]:
    """Draw the figures of a study below `out`, unless they are newer than its results; their paths.

    A figure has the name of its caption.
    """
    files = result_path(out, study.name), recorded_path(out, study.name)
    sources = [path for path in files if path.exists()]
    newest = max(path.stat().st_mtime_ns for path in sources)
    try:
        names = study.captions(result.shown)
        paths = [out / "figures" / f"{name}.{kind}" for name in names for kind in ("pdf", "png")]
        if again or any(not p.exists() or p.stat().st_mtime_ns < newest for p in paths):
            for name, figure in study.figures(result.shown).items():
                write_figure(figure, out / "figures", name)
    except (LookupError, TypeError, ArithmeticError, AttributeError) as error:
        raise ValueError(
            f"{sources[0]} lacks what the figures of {study.name} show ({error!r}); without that "
            "file, switchpoint reproduce computes it again"
        ) from error
    return paths
