"""Results in files: one for each study, with what it was made from."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation
from switchpoint._provenance import made_with
from switchpoint.experiments.scales import Scale
from switchpoint.experiments.studies import Study, tested_sequences
from switchpoint.training.config import upgrade_config


def result_path(out: Path, study: str) -> Path:
    """The file of a study's result."""
    return out / "results" / f"{study}.nc"


_TIMES = ("wall_seconds", "training_seconds")


def load_result(out: Path, study: str) -> xr.Dataset:
    """The saved result of a study."""
    path = result_path(out, study)
    if not path.exists():
        raise ValueError(f"there is no result of {study} in {out}; switchpoint reproduce makes it")
    found = evaluation.load(path)
    made = found.attrs.get("provenance")
    if found.attrs.get("study") != study or not (
        isinstance(made, dict) and all(isinstance(made.get(name), int | float) for name in _TIMES)
    ):
        raise ValueError(f"{path} is not a result of {study}")
    return found


def finished(
    out: Path, study: Study, scale: Scale, note: Callable[[str], None] | None = None
) -> xr.Dataset | None:
    """The saved result, where it is whole and of the study as it is described now.

    `note` is told of one that is there and is damaged.
    """
    try:
        found = load_result(out, study.name)
    except ValueError as error:
        if note is not None and result_path(out, study.name).exists():
            note(f"{error}; it is computed again")
        return None
    described = found.attrs.get("description")
    if isinstance(described, dict) and "runs" in described:
        runs = {name: upgrade_config(config) for name, config in described["runs"].items()}
        described = {**described, "runs": runs}
    return found if described == study.description(scale) else None


@dataclass(frozen=True)
class Effort:
    """What a result took, and what asked for it."""

    seconds: float
    """Of wall time, training not counted."""
    training_seconds: float
    command: str
    networks: Mapping[str, Any]
    """What made the networks, where that was not this process."""


def save_result(out: Path, study: Study, scale: Scale, result: xr.Dataset, effort: Effort) -> None:
    """Write the result of a study, whole or not at all."""
    path = result_path(out, study.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    description = study.description(scale)
    sequences = tested_sequences(study, description["scale"])
    about = {
        **({} if sequences is None else {"sequences": sequences}),
        **result.attrs,
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "question": study.question,
        "scale": scale.name,
        "length": scale.length,
        "labels": scale.labels(),
        "description": description,
        "provenance": _provenance(scale, effort),
    }
    evaluation.save(result.assign_attrs(about), path)


def _provenance(scale: Scale, effort: Effort) -> dict[str, Any]:
    return {
        **made_with(),
        "seed": scale.seed,
        "wall_seconds": round(effort.seconds, 3),
        "training_seconds": round(effort.training_seconds, 3),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "command": effort.command,
        **({"networks": dict(effort.networks)} if effort.networks else {}),
    }
