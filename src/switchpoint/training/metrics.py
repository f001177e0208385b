"""The reports of a run in a file: one line of JSON each, with a checksum of its own."""

import os
from dataclasses import dataclass
from pathlib import Path

from switchpoint._files import atomic_write
from switchpoint.training.report import Report


@dataclass(frozen=True)
class MetricsLines:
    """The whole lines of a metrics file, up to the first damaged one."""

    content: bytes
    reports: tuple[Report, ...]
    damage: str | None
    """The file, the line and what is wrong with it, where there is a damaged one."""

    @staticmethod
    def of(content: bytes, path: Path) -> "MetricsLines":
        """The lines in `content`, which was read from `path`."""
        *lines, _ = content.split(b"\n")  # what comes after the last line's end is unfinished
        reports: list[Report] = []
        damage = None
        for number, line in enumerate(lines, start=1):
            try:
                reports.append(Report.from_json(line.decode(errors="replace")))
            except ValueError as error:
                damage = f"{path}, line {number}: {error}"
                break
        whole = b"".join(line + b"\n" for line in lines[: len(reports)])
        return MetricsLines(whole, tuple(reports), damage)

    def up_to(self, step: int) -> "MetricsLines":
        """The lines of the reports up to `step`, byte for byte."""
        count = sum(report.step <= step for report in self.reports)
        lines = self.content.split(b"\n")[:count]
        return MetricsLines(b"".join(line + b"\n" for line in lines), self.reports[:count], None)


class MetricsFile:
    """The file that a run adds its reports to."""

    path: Path
    content: bytes
    """What the run has written, also where the file has lost some of it since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = b""

    def append(self, report: Report) -> None:
        """Add one report; when this returns, it is on disk."""
        line = report.to_json_line().encode() + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.content += line

    def lines(self) -> MetricsLines:
        """What the file holds; nothing where there is none."""
        return MetricsLines.of(self._read(), self.path)

    def replace(self, content: bytes) -> None:
        """Let the file hold `content` and nothing else."""
        self.content = content
        if self._read() != content:
            with atomic_write(self.path, "metrics") as file:
                file.write(content)

    def _read(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


def read_reports(path: Path) -> list[Report]:
    """All reports of a run, also of one that is still going on; a damaged line is refused."""
    lines = MetricsLines.of(path.read_bytes(), path)
    if lines.damage is not None:
        raise ValueError(lines.damage)
    return list(lines.reports)
