"""Results in files, one for each study with its plan: computed here, or recorded before."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation
from switchpoint._files import atomic_write, read_json, write_json
from switchpoint._formats import check_format
from switchpoint._provenance import environment_info
from switchpoint.paper.base import Study
from switchpoint.paper.scale import Scale
from switchpoint.training import TrainConfig
from switchpoint.training.custom import CustomConfig

FORMAT = 1
"""Of the files of results and of their costs."""

_TIMES = ("wall_seconds", "training_seconds")


@dataclass(frozen=True)
class Result:
    """The results of a study: measured on this machine, recorded elsewhere, or both."""

    local: xr.Dataset | None
    recorded: xr.Dataset | None = None

    @property
    def shown(self) -> xr.Dataset:
        """The dataset of figures and tables: the record, unless the local result is as large.

        That is one of as many sequences, and not of single seeds.
        """
        local, recorded = self.local, self.recorded
        if local is None or recorded is None:
            shown = recorded if local is None else local
            if shown is None:
                raise ValueError("there is no result")
            return shown
        own, known = (each.attrs.get("sequences", 0) for each in (local, recorded))
        return local if "seed" not in local.dims and own >= known else recorded

    @property
    def beside(self) -> xr.Dataset | None:
        """The local measurement where the record is shown."""
        return None if self.shown is self.local else self.local


def result_path(out: Path, study: str) -> Path:
    """The file of a result that was computed on this machine."""
    return out / "results" / f"{study}.nc"


def recorded_path(out: Path, study: str) -> Path:
    """The file of a recorded result, beside those computed on this machine."""
    return out / "recorded" / f"{study}.nc"


def cost_path(result: Path) -> Path:
    """The file with the cost of a result.

    Times and commands differ whenever a study is repeated, and results are the same bytes.
    """
    return result.with_suffix(".json")


def load_result(out: Path, study: str) -> Result:
    """The saved results of a study in a report's directory, or in a directory of result files."""
    if (found := find_result(out, study)) is None:
        raise ValueError(f"there is no result of {study} in {out}; switchpoint reproduce makes it")
    return found


def find_result(out: Path, study: str) -> Result | None:
    """The same, or None if there is no result."""
    own = out / f"{study}.nc"
    paths = own if own.exists() else result_path(out, study), recorded_path(out, study)
    local, recorded = (read_result(path, study) if path.exists() else None for path in paths)
    return None if local is None and recorded is None else Result(local, recorded)


def read_result(path: Path, study: str) -> xr.Dataset:
    """The result in a file, with its cost in the provenance."""
    result = evaluation.load(path)
    check_format(result.attrs, str(path))
    provenance = result.attrs.get("provenance")
    if result.attrs.get("study") != study or not isinstance(provenance, dict):
        raise ValueError(f"{path} is not a result of {study}")
    cost = read_json(cost_path(path), study=str, cost=dict)["cost"]
    if not all(isinstance(cost.get(name), int | float) for name in _TIMES):
        raise ValueError(f"{cost_path(path)} is not the cost of a result")
    result.attrs["provenance"] = {**cost, **provenance}
    return result


def finished(
    out: Path, study: Study, plan: Mapping[str, Any], note: Callable[[str], None]
) -> xr.Dataset | None:
    """The saved local result, if it has this plan."""
    path = result_path(out, study.name)
    try:
        result = read_result(path, study.name) if path.exists() else None
    except ValueError as error:
        note(f"{error}; it is computed again")
        return None
    return result if result is not None and has_plan(result, plan) else None


def has_plan(result: xr.Dataset, plan: Mapping[str, Any]) -> bool:
    """Whether a result has this plan; settings that are newer than the result have defaults."""
    saved = result.attrs.get("plan", {})
    try:
        runs = {
            name: (CustomConfig if "sources" in config else TrainConfig).from_dict(config).to_dict()
            for name, config in saved.get("runs", {}).items()
        }
    except (AttributeError, TypeError, ValueError):
        return False
    return {**saved, "runs": runs} == plan


def save_result(
    out: Path,
    study: Study,
    scale: Scale,
    plan: Mapping[str, Any],
    result: xr.Dataset,
    cost: Mapping[str, Any],
) -> xr.Dataset:
    """Write the result of a study and its cost, and read them back."""
    path = result_path(out, study.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    sequences = study.tested_sequences(plan["scale"])
    about = {
        "format": FORMAT,
        **({} if sequences is None else {"sequences": sequences}),
        **result.attrs,
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "question": study.question,
        "scale": scale.name,
        "length": scale.length,
        "labels": scale.labels(),
        "plan": dict(plan),
        "provenance": {**environment_info(), "seed": scale.seed},
    }
    finish = {"finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
    content = {"format": FORMAT, "study": study.name, "cost": {**cost, **finish}}
    write_json(cost_path(path), content)
    evaluation.save(result.assign_attrs(about), path)
    return read_result(path, study.name)


def copy_result(result: Path, target: Path) -> None:
    """Copy the file of a result, and that of its cost."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for path, copy in ((cost_path(result), cost_path(target)), (result, target)):
        with atomic_write(copy) as file:
            file.write(path.read_bytes())


def recorded_result(recorded: Path | None, study: str) -> Path | None:
    """The file of a recorded result, if there is one."""
    path = None if recorded is None else recorded / f"{study}.nc"
    return path if path is not None and path.exists() else None
