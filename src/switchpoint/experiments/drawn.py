"""Which figures were drawn of which results."""

import hashlib
import json
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint._files import replacing
from switchpoint.experiments.results import result_path


class Drawn:
    """The figures below a report's directory; those of an unchanged result are current."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._path = out / "figures" / "drawn.json"

    def is_current(self, study: str) -> bool:
        """Whether all figures of a study are there, and of the result that is there."""
        noted = self._notes().get(study)
        return (
            isinstance(noted, dict)
            and noted.get("result") == self._digest(study)
            and all((self._path.parent / name).exists() for name in noted.get("files", []))
        )

    def draw(self, study: str, result: xr.Dataset) -> list[Path]:
        """Draw the figures of a study; returns their paths."""
        from switchpoint.figures.studies import draw_study  # Matplotlib is slow to import

        paths = draw_study(study, result, self._path.parent)
        notes = self._notes()
        notes[study] = {"result": self._digest(study), "files": [path.name for path in paths]}
        with replacing(self._path) as file:
            file.write((json.dumps(notes, indent=2) + "\n").encode())
        return paths

    def _notes(self) -> dict[str, Any]:
        try:
            notes = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}

    def _digest(self, study: str) -> str:
        return hashlib.sha256(result_path(self._out, study).read_bytes()).hexdigest()
