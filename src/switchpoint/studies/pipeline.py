"""All studies, one after another; what is done already is left as it is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchpoint._files import atomic_write, digest_of, json_digest, read_json, write_json
from switchpoint.figures.style import write_figure
from switchpoint.studies.base import Study, main_runs
from switchpoint.studies.context import StudyContext
from switchpoint.studies.networks import (
    Networks,
    PretrainedNetworks,
    TrainedNetworks,
    is_trained,
)
from switchpoint.studies.progress import ProgressReporter, Stopwatch
from switchpoint.studies.registry import STUDIES
from switchpoint.studies.results import (
    Result,
    RunCost,
    finished,
    load_result,
    recorded_path,
    recorded_result,
    result_path,
    save_result,
)
from switchpoint.studies.scale import Scale
from switchpoint.studies.store import MeasurementStore
from switchpoint.training.checkpoints import run_lock
from switchpoint.zoo import Zoo


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
) -> list[Outcome]:
    """Run the studies of these names, or all, and save their results below `out`.

    What an earlier call finished is not done again, and one that was stopped, even by `kill -9`,
    is resumed; the results are the same. `then` is called after each study. Networks are trained
    below `out`, or come from the zoo where the scale says so, unless others are given. Studies
    without networks and without recorded results are skipped.
    """
    reporter = reporter or ProgressReporter()
    studies = select_studies(only)
    networks = networks or networks_for(scale, out)
    plans = {study.name: plan_for(study, scale) for study in studies}
    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    with run_lock(out):
        store = MeasurementStore(out / "measurements" / networks.identity, reporter.note)
        for path in networks.measurements:
            store.merge(path)
        for study in studies:
            recorded = recorded_result(scale.recorded, study.name)
            local, computed = None, False
            if can_compute(study, scale, networks):
                plan = plans[study.name]
                local = finished(out, study, plan, reporter.note)
                if computed := local is None:
                    clock = Stopwatch(
                        _seconds_path(out, study),
                        reporter,
                        json_digest(plan),
                        lambda: networks.training_seconds,
                    )
                    clock.begin(study.name)
                    networks.reporter = clock
                    context = StudyContext(scale, networks, store, clock)
                    context.measure(study)
                    local = study.analyse(context)
                    if context.missing_runs and scale.zoo is None:
                        local = local.assign_attrs(missing_runs=context.missing_runs)
                    clock.save()
                    made = networks.provenance(study.runs(scale))
                    made |= {
                        name: store.provenance[name] for name in made if name in store.provenance
                    }
                    cost = RunCost(clock.seconds, clock.training_seconds, command, made)
                    local = save_result(out, study, scale, plan, local, cost)
                    _seconds_path(out, study).unlink(missing_ok=True)
                    reporter.end(study.name, clock.seconds + clock.training_seconds)
            if recorded is not None and (local is None or "seed" in local.dims):
                recorded_path(out, study.name).parent.mkdir(exist_ok=True)
                with atomic_write(recorded_path(out, study.name)) as file:
                    file.write(recorded.read_bytes())
            elif local is None:
                continue
            outcomes.append(Outcome(study, load_result(out, study.name), computed))
            if then is not None:
                then(outcomes[-1])
    return outcomes


def select_studies(only: Iterable[str] | None) -> list[Study]:
    """The studies of these names in their usual order, or all."""
    wanted = set(STUDIES if only is None else only)
    if unknown := sorted(wanted - set(STUDIES)):
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {unknown[0]!r}")
    return [study for name, study in STUDIES.items() if name in wanted]


def networks_for(scale: Scale, out: Path) -> Networks:
    """Where the networks of a scale come from."""
    if scale.zoo is None:
        return TrainedNetworks(out / "runs")
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
    begun = _seconds_path(out, study).exists() or any(
        is_trained(out / "runs", run) or (out / "runs" / run.name / "checkpoints").exists()
        for run in study.runs(scale).values()
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


def _seconds_path(out: Path, study: Study) -> Path:
    """Where the time is kept that a study has taken so far."""
    return out / "measurements" / f"{study.name}.seconds.json"
