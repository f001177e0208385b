"""Which figures were drawn of which results."""

from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint._files import digest_of, read_json, write_json
from switchpoint.experiments.results import result_path


class Drawn:
    """The figures below a report's directory; those of an unchanged result are current.

    Where the file that says so is damaged, and where a figure is, it is drawn again.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._path = out / "figures" / "drawn.json"

    def is_current(self, study: str) -> bool:
        """Whether all figures of a study are there, and of the result that is there."""
        try:
            noted = self._notes()[study]
            return bool(noted["result"] == digest_of(result_path(self._out, study))) and all(
                digest_of(self._path.parent / name) == digest
                for name, digest in noted["files"].items()
            )
        except (LookupError, TypeError, AttributeError, OSError):
            return False

    def draw(self, study: str, result: xr.Dataset) -> list[Path]:
        """Draw the figures of a study; returns their paths."""
        from switchpoint.figures.studies import draw_study  # Matplotlib is slow to import

        result_file = result_path(self._out, study)
        try:
            paths = draw_study(study, result, self._path.parent)
        except (LookupError, TypeError, ArithmeticError, AttributeError) as error:
            raise ValueError(
                f"{result_file} lacks what is drawn of {study} ({error!r}); without that file, "
                "switchpoint reproduce computes it again"
            ) from error
        files = {path.name: digest_of(path) for path in paths}
        note = {"result": digest_of(result_file), "files": files}
        write_json(self._path, {"studies": {**self._notes(), study: note}})
        return paths

    def _notes(self) -> dict[str, Any]:
        try:
            return read_json(self._path, studies=dict)["studies"]
        except ValueError:
            return {}
