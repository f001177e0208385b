"""All studies, one after another; those that are done are left as they are."""

import contextlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import xarray as xr

from switchpoint._files import json_digest, write_json
from switchpoint.experiments.findings import findings
from switchpoint.experiments.from_shipped import can_be_made, result_of
from switchpoint.experiments.kept import Kept
from switchpoint.experiments.results import Effort, finished, save_result
from switchpoint.experiments.runs import Networks, Runs, is_complete
from switchpoint.experiments.scales import Scale
from switchpoint.experiments.shipped import ShippedNetworks
from switchpoint.experiments.stopwatch import Stopwatch
from switchpoint.experiments.studies import STUDIES, Study
from switchpoint.experiments.watching import Watcher
from switchpoint.experiments.work import Work
from switchpoint.training.checkpoints import run_lock

State = Literal["done", "partly", "to do", "not run"]


@dataclass(frozen=True)
class Outcome:
    """What became of a study."""

    study: Study
    result: xr.Dataset
    computed: bool
    """Whether it was computed now; otherwise it had been done before."""


def reproduce(
    scale: Scale,
    out: Path,
    only: Iterable[str] | None = None,
    watcher: Watcher | None = None,
    command: str = "",
    then: Callable[[Outcome], None] | None = None,
    networks: Networks | None = None,
) -> list[Outcome]:
    """Carry out the studies of these names, or all, and save their results below `out`.

    What an earlier call finished is not done again, and one that was stopped, even by
    `kill -9`, is gone on with; the results are the same. `then` is called after each study.
    Networks are trained below `out`, or are the shipped ones where the scale says so, unless
    others are given. Studies that a shipped scale has nothing for are left out.
    """
    watcher = Watcher() if watcher is None else watcher
    outcomes, studies = [], chosen(only)
    for study in studies:
        study.description(scale)  # settings of training that are wrong are refused at once
    out.mkdir(parents=True, exist_ok=True)
    with run_lock(out):
        runs = _networks(scale, out, watcher) if networks is None else networks
        for study in studies:
            if not can_be_made(study, scale):
                continue
            result = finished(out, study, scale, watcher.note)
            computed = result is None
            if result is None:
                result = _carried_out(study, scale, out, runs, watcher, command)
            outcome = Outcome(study, result, computed)
            outcomes.append(outcome)
            if then is not None:
                then(outcome)
        _save_findings(scale, out)
    return outcomes


def chosen(only: Iterable[str] | None) -> list[Study]:
    """The studies of these names in their usual order, or all."""
    wanted = set(STUDIES if only is None else only)
    unknown = sorted(wanted - set(STUDIES))
    if unknown:
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {unknown[0]!r}")
    return [study for name, study in STUDIES.items() if name in wanted]


def state_of(study: Study, scale: Scale, out: Path) -> State:
    """How far a study is; `not run` is one that nothing was shipped for."""
    if not can_be_made(study, scale):
        return "not run"
    if finished(out, study, scale) is not None:
        return "done"
    begun = _parts(out, study).exists() or any(
        is_complete(out / "runs", run) or (out / "runs" / run.name / "checkpoints").exists()
        for run in study.runs(scale)
        if scale.shipped is None
    )
    return "partly" if begun else "to do"


def _networks(scale: Scale, out: Path, watcher: Watcher) -> Networks:
    if scale.shipped is None:
        return Runs(out / "runs", watcher)
    scale.shipped.check(scale.architectures)
    return ShippedNetworks(scale.shipped)


def _carried_out(
    study: Study, scale: Scale, out: Path, runs: Networks, watcher: Watcher, command: str
) -> xr.Dataset:
    parts, description = _parts(out, study), study.description(scale)
    identity = json_digest(description)
    clock = Stopwatch(parts / "seconds.json", watcher, identity, lambda: runs.seconds)
    clock.begin(study.name)
    work = Work(scale, runs, Kept(parts, description, watcher.note), clock)
    runs.watcher = clock
    try:
        result = result_of(study, work)
    finally:
        seconds = clock.stop()
    if work.not_run:
        result = result.assign_attrs(not_run=work.not_run)
    training = clock.training_seconds
    effort = Effort(seconds, training, command, runs.provenance(study.runs(scale)))
    save_result(out, study, scale, result, effort)
    shutil.rmtree(parts, ignore_errors=True)
    with contextlib.suppress(OSError):  # another study may have begun
        parts.parent.rmdir()
    watcher.end(study.name, seconds + training)
    saved = finished(out, study, scale)
    if saved is None:
        raise OSError(f"the result of {study.name} cannot be read back from {out}")
    return saved


def _parts(out: Path, study: Study) -> Path:
    """Where a study that is not complete keeps its evaluations."""
    return out / "parts" / study.name


def _save_findings(scale: Scale, out: Path) -> None:
    results = {name: finished(out, study, scale) for name, study in STUDIES.items()}
    known = {name: result for name, result in results.items() if result is not None}
    (out / "results").mkdir(exist_ok=True)
    judged = [finding.fields() for finding in findings(known)]
    write_json(out / "results" / "findings.json", {"findings": judged})
