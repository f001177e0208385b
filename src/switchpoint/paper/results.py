"""Results in files: one for each study, with the plan that made it."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation
from switchpoint._files import atomic_write, read_json, write_json
from switchpoint._formats import upgrade
from switchpoint._provenance import environment_info
from switchpoint.paper.base import Study
from switchpoint.paper.scale import Scale, ablation_plan
from switchpoint.training import TrainConfig

_TIMES = ("wall_seconds", "training_seconds")
_STEPS = [{"description": "plan", "not_run": "missing_runs"}]  # attributes, from format 0
_RENAMED_FIELDS = {  # fields of a scale, from format 0
    "deepest": "max_depth",
    "most_switches": "max_switches",
    "heat_sequences": "heatmap_sequences",
    "forgetful": "memoryless_settings",
}
_LOCAL = "here_"  # in format 0, the prefix of local measurements within a recorded result


@dataclass(frozen=True)
class Result:
    """What there is of a study: measured on this machine, recorded elsewhere, or both."""

    local: xr.Dataset | None
    recorded: xr.Dataset | None = None

    @property
    def shown(self) -> xr.Dataset:
        """The one that figures and tables show: the record, unless the local result is as large."""
        local, recorded = self.local, self.recorded
        whole = recorded is None or (local is not None and _as_large(local, recorded))
        shown = local if whole else recorded
        if shown is None:
            raise ValueError("there is no result")
        return shown

    @property
    def beside(self) -> xr.Dataset | None:
        """The local measurement that is drawn over the record."""
        return None if self.shown is self.local else self.local


def _as_large(local: xr.Dataset, recorded: xr.Dataset) -> bool:
    """Whether a local result of a record has as many sequences, and is not of single seeds."""
    own, known = (each.attrs.get("sequences", 0) for each in (local, recorded))
    return "seed" not in local.dims and own >= known


def result_path(out: Path, study: str) -> Path:
    """The file of a result that was computed on this machine."""
    return out / "results" / f"{study}.nc"


def recorded_path(out: Path, study: str) -> Path:
    """The file of a recorded result, beside those computed on this machine."""
    return out / "recorded" / f"{study}.nc"


def cost_path(result: Path) -> Path:
    """The file beside a result that has what it took.

    Times and commands differ whenever a study is repeated, and results are the same bytes.
    """
    return result.with_suffix(".json")


def load_result(out: Path, study: str, path: Path | None = None) -> Result:
    """The saved results of a study in a report's directory, or in a file of its own."""
    local, recorded = path or result_path(out, study), recorded_path(out, study)
    if not (local.exists() or recorded.exists()):
        raise ValueError(f"there is no result of {study} in {out}; switchpoint reproduce makes it")
    own = read_result(local, study) if local.exists() else Result(None)
    return Result(own.local, read_result(recorded, study).local) if recorded.exists() else own


def read_result(path: Path, study: str) -> Result:
    """The result in one file; a file of format 0 may hold a recorded and a local one."""
    found = evaluation.load(path)
    attributes = upgrade(found.attrs, str(path), _STEPS)
    made = attributes.get("provenance")
    if isinstance(made, dict):
        cost = {"command": "unknown", **dict.fromkeys(_TIMES, math.nan)}  # copied without its file
        if cost_path(path).exists():
            cost = read_json(cost_path(path), steps=[{}], study=str, cost=dict)["cost"]
        made = attributes["provenance"] = {**cost, **made}
    found.attrs = attributes
    if attributes.get("study") != study or not (
        isinstance(made, dict) and all(isinstance(made.get(name), int | float) for name in _TIMES)
    ):
        raise ValueError(f"{path} is not a result of {study}")
    if "recorded" not in attributes:
        return Result(found)
    told = attributes.pop("recorded")
    recorded = found.drop_vars([n for n in found.data_vars if str(n).startswith(_LOCAL)])
    local_sequences = told.pop("here_sequences")
    recorded.attrs = {**attributes, "plan": {}, **told}
    own = {
        str(name).removeprefix(_LOCAL): values
        for name, values in found.data_vars.items()
        if str(name).startswith(_LOCAL)
    }
    if not own:
        return Result(None, recorded)
    seeds = [name for name in ("regret", "excess") if name in own]
    local = xr.Dataset(own, attrs={**attributes, "sequences": local_sequences})
    local = local.assign({name: local[name].expand_dims("seed") for name in seeds})
    return Result(local, recorded)


def finished(
    out: Path,
    study: Study,
    plan: Mapping[str, Any],
    note: Callable[[str], None] = lambda _: None,
) -> xr.Dataset | None:
    """The saved local result, where it is whole and was made by this plan."""
    path = result_path(out, study.name)
    if not path.exists():
        return None
    try:
        found = read_result(path, study.name).local
    except ValueError as error:
        note(f"{error}; it is computed again")
        return None
    same = found is not None and in_current_terms(found.attrs.get("plan", {})) == plan
    return found if same else None


def in_current_terms(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan that an earlier version wrote, with the names and fields of this one."""
    scale = {_RENAMED_FIELDS.get(k, k): v for k, v in plan.get("scale", {}).items()}
    try:
        runs = {
            name: TrainConfig.from_dict(config).to_dict()
            for name, config in plan.get("runs", {}).items()
        }
    except (TypeError, ValueError):
        return {}
    if "ablations" in scale:
        scale["ablations"] = [ablation_plan(each) for each in scale["ablations"]]
        seeds = [run["seeds"] for name, run in runs.items() if name.startswith("ablation-")]
        scale.setdefault("ablation_seeds", min(seeds, default=None))
    return {**plan, "scale": scale, "runs": runs}


@dataclass(frozen=True)
class RunCost:
    """What a result took, and the command that asked for it."""

    seconds: float
    """Computing time without training, of all processes."""
    training_seconds: float
    command: str
    networks: Mapping[str, Any]
    """What made the networks, where that was not this process."""


def save_result(
    out: Path,
    study: Study,
    scale: Scale,
    plan: Mapping[str, Any],
    result: xr.Dataset,
    cost: RunCost,
) -> xr.Dataset:
    """Write the result of a study, whole or not at all, and read it back."""
    path = result_path(out, study.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    sequences = study.tested_sequences(plan["scale"])
    about = {
        "format": len(_STEPS),
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
    took = {
        "wall_seconds": round(cost.seconds, 3),
        "training_seconds": round(cost.training_seconds, 3),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "command": cost.command,
        **({"networks": dict(cost.networks)} if cost.networks else {}),
    }
    write_json(cost_path(path), {"format": 1, "study": study.name, "cost": took})
    evaluation.save(result.assign_attrs(about), path)
    saved = finished(out, study, plan)
    if saved is None:
        raise OSError(f"the result of {study.name} cannot be read back from {out}")
    return saved


def copy_result(result: Path, target: Path) -> None:
    """Copy the file of a result, and the one beside it that has what it took."""
    for path, copy in ((cost_path(result), cost_path(target)), (result, target)):
        if path.exists():
            with atomic_write(copy) as file:
                file.write(path.read_bytes())
