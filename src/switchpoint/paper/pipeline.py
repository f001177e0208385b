"""All studies, one after another; what is done already is left as it is."""

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from switchpoint._claims import ClaimState, claim_path, exclusive
from switchpoint._files import digest_of, json_digest, read_json, write_json
from switchpoint._work import Task, WorkQueue
from switchpoint.executors import Executor, open_executor
from switchpoint.figures.style import write_figure
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.paper.base import EXACT, Study, main_runs
from switchpoint.paper.context import StudyContext
from switchpoint.paper.networks import Networks, PretrainedNetworks, TrainedNetworks
from switchpoint.paper.progress import ProgressReporter, Stopwatch
from switchpoint.paper.recording import completed, recorded_by_plan, recorded_result
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.results import (
    Result,
    RunCost,
    copy_result,
    finished,
    load_result,
    recorded_path,
    result_path,
    save_result,
)
from switchpoint.paper.scale import Scale
from switchpoint.paper.shards import Shard, measurements_by_run, shard_times, train_and_measure
from switchpoint.paper.store import MeasurementStore
from switchpoint.zoo import Zoo

_CLAIMS = "claims"  # the directory in which processes agree who does what


@dataclass(frozen=True)
class Outcome:
    """The result of a study."""

    study: Study
    result: Result
    computed: bool
    """Whether it was computed now; otherwise it had been done before."""


def reproduce(
    scale: Scale,
    out: Path,
    only: Iterable[str] | None = None,
    reporter: ProgressReporter | None = None,
    command: str = "",
    then: Callable[[Outcome], None] | None = None,
    networks: Networks | None = None,
    *,
    executor: str | Executor = "local",
    jobs: int | None = None,
    shard_members: int | None = None,
    ray_address: str | None = None,
) -> list[Outcome]:
    """Run the studies of these names, or all, and save their results below `out`.

    What an earlier call finished is not done again, and one that was stopped, even by `kill -9`,
    is resumed; the results are the same. `then` is called after each study. Networks are trained
    below `out`, or come from the zoo where the scale says so, unless others are given. Studies
    without networks and without recorded results are skipped.

    `executor` trains and measures the networks: `local`, `processes`, `ray`, or any object with
    `submit(function, *arguments)` that returns a `concurrent.futures.Future`; see
    `switchpoint.executors.open_executor` for the other options. Workers must reach `out` under the
    same path. Results are the same bytes for all executors on the same kind of device. Several
    processes may run with the same `out`: none does what another is doing. Where a shard fails
    three times, the studies that need it are left out, and the others are done before a
    `FailedTasksError` names it.

    A shard is a whole run, or a part of one with at most `shard_members` members. Networks that
    are trained in parts of another size differ by rounding.
    """
    reporter = reporter or ProgressReporter()
    studies = select_studies(only)
    networks = networks or networks_for(scale, out, shard_members)
    plans = {study.name: plan_for(study, scale) for study in studies}
    out = out.absolute()  # workers may have another working directory
    ahead = [
        study
        for study in studies
        if can_compute(study, scale, networks)
        and finished(out, study, plans[study.name], reporter.note) is None
    ]
    outcomes = []
    with open_executor(executor, jobs=jobs, ray_address=ray_address) as opened:
        work = _Work(scale, out, networks, WorkQueue(opened, out / _CLAIMS, reporter), reporter)
        work.plan(ahead)
        for study in studies:
            recorded = recorded_result(scale.recorded, study.name)
            plan, computed = plans[study.name], False
            if study in ahead:
                computed = work.complete(study, plan, command)
            local = None
            if can_compute(study, scale, networks):
                local = finished(out, study, plan)
            if recorded is not None:
                recorded_path(out, study.name).parent.mkdir(exist_ok=True)
                copy_result(recorded, recorded_path(out, study.name))
            elif local is None:
                continue
            outcomes.append(Outcome(study, load_result(out, study.name), computed))
            if then is not None:
                then(outcomes[-1])
        work.queue.check()
    return outcomes


class _Work:
    """What the studies of one call have in common: measurements, networks, and shards to do."""

    def __init__(
        self,
        scale: Scale,
        out: Path,
        networks: Networks,
        queue: WorkQueue,
        reporter: ProgressReporter,
    ) -> None:
        self._scale, self._out, self._networks = scale, out, networks
        self.queue, self._reporter = queue, reporter
        # The measurements of shards are loaded when these are done.
        name = EXACT if isinstance(networks, TrainedNetworks) else None
        directory = out / "measurements" / networks.identity
        self._store = MeasurementStore(directory, reporter.note, name)
        for path in networks.measurements:
            self._store.merge(path)
        self._shards: dict[str, list[Shard]] = {}

    def plan(self, ahead: Sequence[Study]) -> None:
        """Find the shards of the studies ahead; they are submitted at once where others do them."""
        if not isinstance(self._networks, TrainedNetworks):
            return
        runs = {name: run for study in ahead for name, run in study.runs(self._scale).items()}
        wanted = measurements_by_run(self._scale, ahead)
        for name, run in runs.items():
            parts = self._networks.parts(run)
            self._shards[name] = [Shard.of(self._scale, run, part, wanted) for part in parts]
        if not self.queue.local:
            self.queue.add(self._tasks(runs))

    def complete(self, study: Study, plan: Mapping[str, Any], command: str) -> bool:
        """Compute a study when its shards are done; whether it was computed here."""
        out, reporter, queue = self._out, self._reporter, self.queue
        reporter.begin(study.name)
        path = out / "measurements" / f"{study.name}.seconds.json"
        clock = Stopwatch(path, reporter, json_digest(plan), lambda: queue.seconds)
        clock.begin()
        runs = study.runs(self._scale)
        needed = [shard.part.name for name in runs for shard in self._shards.get(name, ())]
        tasks = self._tasks(runs)
        queue.add(tasks)
        queue.finish([task.name for task in tasks])
        if failed := [name for name in needed if name in queue.failed]:
            reporter.note(f"skipped, since these shards failed: {', '.join(failed)}")
            return False
        for name in needed:
            self._store.load(name)
        claim = claim_path(out / _CLAIMS, f"study-{study.name}")

        def waiting(state: ClaimState) -> None:
            reporter.update(f"waiting for {state.where}, which has this study", 0.0)

        with exclusive(claim, waiting):
            if finished(out, study, plan) is not None:
                return False
            context = StudyContext(self._scale, self._networks, self._store, clock)
            context.measure(study)
            local = study.analyse(context)
            clock.save()
            cost = self._cost(study, clock, command)
            if context.missing_runs and self._scale.zoo is None:
                local = local.assign_attrs(missing_runs=context.missing_runs)
                known = recorded_by_plan(self._networks.recorded, study, plan)
                if known is not None:
                    local = completed(study, self._scale, local, known)
                    earlier = known.attrs["provenance"].get("networks", {})
                    cost = replace(cost, networks={**earlier, **cost.networks})
            save_result(out, study, self._scale, plan, local, cost)
            path.unlink(missing_ok=True)
        reporter.end(study.name, clock.seconds + clock.training_seconds)
        return True

    def _tasks(self, runs: Iterable[str]) -> list[Task]:
        """The shards of these runs that are not done."""
        tasks = []
        for shard in (shard for name in runs for shard in self._shards.get(name, ())):
            directories = self._out / "runs", self._store.directory
            self._store.load(shard.part.name, self._reporter.note)
            if not shard.is_done(directories[0], self._store):
                about = (shard, *directories)
                tasks.append(Task(shard.part.name, train_and_measure, about, shard.cost))
        return tasks

    def _cost(self, study: Study, clock: Stopwatch, command: str) -> RunCost:
        """What a study took, with the shards that no earlier study needed."""
        runs = study.runs(self._scale)
        earlier = {
            name
            for other in STUDIES.values()
            if other.name != study.name and result_path(self._out, other.name).exists()
            for name in other.runs(self._scale)
        }
        own = [s.part for name in runs if name not in earlier for s in self._shards.get(name, ())]
        times = [shard_times(self._out / "runs", part) for part in own]
        made = self._networks.provenance(runs)
        known = self._store.provenance
        made |= {name: known[name] for name in made if name in known}
        return RunCost(
            clock.seconds + sum(each.measuring for each in times),
            sum(each.training for each in times),
            command,
            made,
        )


def select_studies(only: Iterable[str] | None) -> list[Study]:
    """The studies of these names in their usual order, or all."""
    wanted = set(STUDIES if only is None else only)
    if unknown := sorted(wanted - set(STUDIES)):
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {unknown[0]!r}")
    return [study for name, study in STUDIES.items() if name in wanted]


def networks_for(scale: Scale, out: Path, shard_members: int | None = None) -> Networks:
    """Where the networks of a scale come from."""
    if scale.zoo is None:
        return TrainedNetworks(out.absolute() / "runs", shard_members)
    pretrained = PretrainedNetworks(Zoo(scale.zoo), scale)
    pretrained.check(scale)
    return pretrained


def plan_for(study: Study, scale: Scale) -> dict[str, Any]:
    """The plan of a study, with the digests of pretrained networks."""
    plan = study.plan(scale)
    if scale.zoo is not None:
        entries = Zoo(scale.zoo).entries
        plan["pretrained"] = {name: entry.sha256 for name, entry in entries.items()}
    return plan


def can_compute(study: Study, scale: Scale, networks: Networks) -> bool:
    """Whether there are networks for a study: for one that allows it, of some runs of its own."""
    if study.needs_logs and scale.zoo is not None:
        return False
    runs = study.runs(scale)
    ready = [name for name, run in runs.items() if networks.can_have(run)]
    if study.allow_partial and scale.zoo is None:
        shared = {run.name for run in main_runs(scale)}
        return bool(set(ready) - shared) or not set(runs) - set(ready)
    return len(ready) == len(runs)


def state_of(study: Study, scale: Scale, out: Path, networks: Networks) -> str:
    """How far a study is: done, partly done, to do, recorded, or skipped for want of networks."""
    if not can_compute(study, scale, networks):
        return "skipped" if recorded_result(scale.recorded, study.name) is None else "recorded"
    if finished(out, study, plan_for(study, scale)) is not None:
        return "done"
    begun = (out / "measurements" / f"{study.name}.seconds.json").exists() or any(
        any((out / "runs").glob(f"{glob.escape(name)}{suffix}/{file}"))
        for name in study.runs(scale)
        for suffix in ("", ".*")
        for file in ("checkpoints", MODEL_FILE)
        if scale.zoo is None
    )
    return "partly" if begun else "to do"


def draw(study: Study, out: Path, again: bool = False) -> list[Path]:
    """Draw the figures of a study below `out`, unless those there are current; their paths.

    `figures/figures.json` has the SHA-256 of every figure and of the results it was drawn from.
    """
    directory = out / "figures"
    sources = [path for path in _result_files(out, study) if path.exists()]
    digests = {f"{path.parent.name}/{path.name}": digest_of(path) for path in sources}
    notes = _figure_notes(directory)
    noted = notes.get(study.name, {})
    if not again and noted.get("results") == digests:
        current = {name: directory / name for name in noted.get("figures", {})}
        if all(p.exists() and digest_of(p) == noted["figures"][n] for n, p in current.items()):
            return list(current.values())
    result = load_result(out, study.name)
    try:
        figures = study.plot(result.shown, result.beside)
        paths = [
            path
            for name, figure in figures.items()
            for path in write_figure(figure, directory, name)
        ]
    except (LookupError, TypeError, ArithmeticError, AttributeError) as error:
        raise ValueError(
            f"{sources[0]} lacks what the figures of {study.name} show ({error!r}); without that "
            "file, switchpoint reproduce computes it again"
        ) from error
    note = {"results": digests, "figures": {path.name: digest_of(path) for path in paths}}
    content = {"format": 1, "studies": {**notes, study.name: note}}
    write_json(directory / "figures.json", content)
    return paths


def forget_partial(out: Path, studies: Iterable[str]) -> None:
    """Remove results that lack runs, which may be there now."""
    for name in studies:
        path = result_path(out, name)
        try:
            if path.exists() and "missing_runs" in load_result(out, name).shown.attrs:
                path.unlink()
        except ValueError:
            continue  # damaged: it is computed again


def _result_files(out: Path, study: Study) -> tuple[Path, Path]:
    return result_path(out, study.name), recorded_path(out, study.name)


def _figure_notes(directory: Path) -> Mapping[str, Any]:
    try:
        return dict(read_json(directory / "figures.json", steps=[{}], studies=dict)["studies"])
    except ValueError:
        return {}
