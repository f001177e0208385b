"""Recorded results: those shipped with the package, completed in as many parts as needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint._files import digest_of, read_json, write_json
from switchpoint.paper.base import Run, Study
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.results import copy_result, has_plan, read_result
from switchpoint.paper.scale import Scale

_MANIFEST = "manifest.json"
_MISSING = "missing_runs"


def record(result: Path, recorded: Path) -> None:
    """Copy a result into a directory of recorded ones, with its SHA-256 in the manifest."""
    digests = _digests(recorded) or {}
    recorded.mkdir(parents=True, exist_ok=True)
    copy_result(result, recorded / result.name)
    digests[result.name] = digest_of(recorded / result.name)
    content = {"format": 1, "results": dict(sorted(digests.items()))}
    write_json(recorded / _MANIFEST, content, "manifest")


def recorded_result(recorded: Path | None, study: str) -> Path | None:
    """The file of a recorded result, verified against the manifest's SHA-256, if there is one."""
    if recorded is None:
        return None
    path = recorded / f"{study}.nc"
    digests = _digests(recorded)
    digest = digest_of(path) if path.exists() else None
    if digests is not None and digest != digests.get(path.name):
        problem = "missing" if digest is None else "damaged"
        raise ValueError(
            f"{path} is {problem}: {_MANIFEST} has another SHA-256; install switchpoint again"
        )
    return path if digest else None


def _digests(recorded: Path) -> dict[str, Any] | None:
    """The content of the manifest of a directory; None where it has none."""
    path = recorded / _MANIFEST
    if not path.exists():
        return None
    return dict(read_json(path, results=dict)["results"])


def recorded_by_plan(
    recorded: Path | None, study: Study, plan: Mapping[str, Any]
) -> xr.Dataset | None:
    """The recorded result of a study, if there is one with this plan."""
    path = recorded_result(recorded, study.name)
    result = None if path is None else read_result(path, study.name)
    return result if result is not None and has_plan(result, plan) else None


def unrecorded_runs(scale: Scale, recorded: Path) -> dict[str, Run]:
    """The training runs that the recorded results of this scale lack."""
    lacking: dict[str, Run] = {}
    for study in STUDIES.values():
        if study.recorded:
            runs = study.runs(scale)
            result = recorded_by_plan(recorded, study, study.plan(scale))
            missing = runs if result is None else result.attrs.get(_MISSING, {})
            lacking |= {name: runs[name] for name in missing}
    return lacking


def complete(study: Study, scale: Scale, partial: xr.Dataset, record: xr.Dataset) -> xr.Dataset:
    """A result that lacks some runs, with the labels that only a record of the same plan has.

    Labels are those of the first dimension of the study's grids. All runs of a label must be in
    the partial result, or none: statistics over seeds cannot be computed from two results.
    """
    missing = partial.attrs[_MISSING]
    dimension, labels = next(iter(next(iter(study.grids(scale).values())).labels.items()))
    measured = set(partial[dimension].values.tolist())
    for grid in study.grids(scale).values():
        for key, cell in grid.cells.items():
            seeds = missing.get(cell.run_name, {}).get(cell.trained_on)
            if seeds and key[0] in measured:
                raise ValueError(
                    f"the shards lack seeds {', '.join(map(str, seeds))} of {cell.run_name} on "
                    f"{cell.trained_on}; recorded results are completed by whole runs, so add the "
                    "shards of these seeds"
                )
    recorded = record[dimension].values.tolist()
    ours = [label for label in labels if label in measured]
    theirs = [label for label in labels if label in recorded and label not in measured]
    whole = xr.concat(
        [partial.sel({dimension: ours}), record.sel({dimension: theirs})],
        dimension,
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="exact",
    )
    whole = whole.sel({dimension: [label for label in labels if label in (*ours, *theirs)]})
    missing = {
        name: seeds for name, seeds in missing.items() if name in record.attrs.get(_MISSING, {})
    }
    about = {name: value for name, value in partial.attrs.items() if name != _MISSING}
    whole.attrs = {**about, _MISSING: missing} if missing else about
    return whole
