"""Recorded results: those shipped with the package, completed in as many sittings as it takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint._files import digest_of, read_json, write_json
from switchpoint._numbers import join_and
from switchpoint.paper.base import Run, Study
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.results import copy_result, in_current_terms, read_result
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
    """The file of a recorded result, proved to be the one in the manifest, if there is one."""
    if recorded is None:
        return None
    path = recorded / f"{study}.nc"
    digests = _digests(recorded)
    there = digest_of(path) if path.exists() else None
    if digests is not None and there != digests.get(path.name):
        problem = "missing" if there is None else "damaged"
        raise ValueError(
            f"{path} is {problem}: {_MANIFEST} has another SHA-256; install switchpoint again"
        )
    return path if there else None


def _digests(recorded: Path) -> dict[str, Any] | None:
    """The content of the manifest of a directory; None where it has none."""
    path = recorded / _MANIFEST
    if not path.exists():
        return None
    return dict(read_json(path, steps=[{}], results=dict)["results"])


def recorded_by_plan(
    recorded: Path | None, study: Study, plan: Mapping[str, Any]
) -> xr.Dataset | None:
    """The recorded result of a study, if there is one that was made by this plan."""
    path = recorded_result(recorded, study.name)
    found = None if path is None else read_result(path, study.name).local
    same = found is not None and in_current_terms(found.attrs.get("plan", {})) == plan
    return found if same else None


def unrecorded_runs(scale: Scale, recorded: Path) -> dict[str, Run]:
    """The training runs that the recorded results of this scale lack."""
    lacking: dict[str, Run] = {}
    for study in STUDIES.values():
        if study.recorded:
            runs = study.runs(scale)
            found = recorded_by_plan(recorded, study, study.plan(scale))
            missing = runs if found is None else found.attrs.get(_MISSING, {})
            lacking |= {name: runs[name] for name in missing}
    return lacking


def completed(study: Study, scale: Scale, partial: xr.Dataset, known: xr.Dataset) -> xr.Dataset:
    """A result that lacks some runs, with the numbers that `known`, of the same plan, has of them.

    A run must be there with all its seeds or not at all: statistics over seeds cannot be put
    together from two results.
    """
    lacking = partial.attrs[_MISSING]
    grids = study.grids(scale).values()
    for cell in (cell for grid in grids for cell in grid.cells.values()):
        seeds = lacking.get(cell.run_name, {}).get(cell.trained_on, [])
        if seeds and len(seeds) < len(cell.all_seeds):
            raise ValueError(
                f"the shards have only some seeds of {cell.run_name} on {cell.trained_on} "
                f"(missing: {join_and(list(map(str, seeds)))}); recorded results are completed by "
                "whole runs, so add the shards of the missing seeds"
            )
    for name, values in partial.data_vars.items():
        if "seed" in values.dims:  # a seed that diverged stays as it is
            measured = values.notnull().any("seed").reindex_like(known[name], fill_value=False)
            known = known.assign({name: known[name].where(~measured)})
    whole = partial.combine_first(known)
    for grid in grids:
        for dimension, labels in grid.labels.items():
            there = set(whole[dimension].values.tolist())
            whole = whole.sel({dimension: [label for label in labels if label in there]})
    for name, values in partial.data_vars.items():  # labels that were added made numbers floats
        one = whole[name].transpose(*values.dims).assign_attrs(values.attrs)
        whole[name] = one.astype(values.dtype) if values.dtype.kind in "biuf" else one
    still = known.attrs.get(_MISSING, {})
    missing = {name: seeds for name, seeds in lacking.items() if name in still}
    others = {name: value for name, value in partial.attrs.items() if name != _MISSING}
    return whole.drop_attrs(deep=False).assign_attrs(
        {**others, **({_MISSING: missing} if missing else {})}
    )
