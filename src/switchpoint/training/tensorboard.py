"""The reports of a run for TensorBoard."""

import importlib
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from switchpoint.training.members import Member
from switchpoint.training.report import Report


class EventWriter:
    """Writes each report as the scalars `loss/LABEL` and `excess/LABEL`, one per member.

    `first_step` is where the run begins or goes on: what an earlier process has written
    beyond it is out of date, and TensorBoard is told to drop it.
    """

    _members: tuple[Member, ...]
    _writer: Any
    _protos: Any
    _summary: Any

    def __init__(self, directory: Path, members: Sequence[Member], first_step: int) -> None:
        try:
            # Here, since the package is an extra; by name, since it has no types to check.
            writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
            self._protos = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        except ImportError as error:
            raise ValueError(
                "tensorboard is not installed; get it with pip install 'switchpoint[tensorboard]'"
            ) from error
        self._members = tuple(members)
        self._writer = writer.EventFileWriter(str(directory))
        # TensorBoard drops what has this step or a later one; the report of `first_step` holds.
        session = self._protos.SessionLog
        self._add(first_step + 1, session_log=session(status=session.START))
        self._writer.flush()

    def report(self, report: Report) -> None:
        """Write one report; numbers that are not finite are left out."""
        values = [self._summary.Value(tag=tag, simple_value=x) for tag, x in self._scalars(report)]
        self._add(report.step, summary=self._summary(value=values))
        self._writer.flush()

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def _scalars(self, report: Report) -> Iterator[tuple[str, float]]:
        for member in self._members:
            for name, values in (("loss", report.loss), ("excess", report.excess)):
                if math.isfinite(values[member.index]):
                    yield f"{name}/{member.label}", values[member.index]

    def _add(self, step: int, **what: Any) -> None:
        self._writer.add_event(self._protos.Event(wall_time=time.time(), step=step, **what))
