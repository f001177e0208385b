"""Measurements in files, so that what was stopped goes on where it was."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation


class Kept:
    """Files below a directory, one for each part of a larger work.

    `description` guards against files of a work that was described in another way; `note` is
    told of damaged ones, which are measured again.
    """

    def __init__(
        self, directory: Path, description: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._description = description
        self._note = note

    def get(self, part: str, measure: Callable[[], xr.Dataset]) -> xr.Dataset:
        """What the file of this part holds, or what is measured now and kept there."""
        path = self._directory / f"{part.replace(' ', '-')}.nc"
        try:
            found = evaluation.load(path)
            if found.attrs == self._description:
                return found
        except ValueError as error:
            if path.exists():
                self._note(f"{error}; it is measured again")
        made = measure().assign_attrs(self._description)
        self._directory.mkdir(parents=True, exist_ok=True)
        evaluation.save(made, path)
        return made
