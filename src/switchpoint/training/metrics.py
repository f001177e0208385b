"""The reports of a run in a file: one line of JSON each."""

import os
from pathlib import Path

from switchpoint._files import replacing
from switchpoint.training.report import Report


class MetricsFile:
    """The file that a run adds its reports to."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, report: Report) -> None:
        """Add one report; when this returns, it is on disk."""
        with self.path.open("ab") as file:
            file.write(report.to_json_line().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def rewind(self, step: int) -> None:
        """Keep the reports up to `step`, byte for byte, and nothing else.

        What a killed run had reported beyond its last checkpoint goes, since it will be
        reported again, and so does a line that it did not finish.
        """
        if self.path.exists():
            lines = self.path.read_bytes().splitlines(keepends=True)
            kept = b"".join(line for line in lines if _is_up_to(line, step))
            with replacing(self.path, "metrics") as file:
                file.write(kept)


def read_reports(path: Path) -> list[Report]:
    """All reports of a run, also of one that is still going on."""
    reports = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break  # still being written
        try:
            reports.append(Report.from_json(line.decode()))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return reports


def _is_up_to(line: bytes, step: int) -> bool:
    try:
        return line.endswith(b"\n") and Report.from_json(line.decode()).step <= step
    except ValueError:
        return False
