"""The records of a run for TensorBoard."""

import importlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from switchpoint.training.config import Member
from switchpoint.training.metrics_log import EvalRecord


class EventWriter:
    """Writes each record as the scalars `loss/LABEL` and `excess/LABEL`, one per member.

    `first_step` is where the run starts or resumes: TensorBoard then drops what an earlier
    process wrote after it.
    """

    def __init__(self, directory: Path, members: Sequence[Member], first_step: int) -> None:
        try:
            # Here, since the package is an extra; by name, since it has no types to check.
            writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
            self._event = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        except ImportError as error:
            raise ValueError(
                "tensorboard is not installed; get it with pip install 'switchpoint[tensorboard]'"
            ) from error
        self._members = members
        self._writer = writer.EventFileWriter(str(directory))
        # It drops what has this step or a later one; the record of `first_step` holds.
        session = self._event.SessionLog
        self._add(first_step + 1, session_log=session(status=session.START))

    def report(self, record: EvalRecord) -> None:
        """Write one record; numbers that are not finite are left out."""
        values = [
            self._summary.Value(tag=f"{name}/{member.label}", simple_value=numbers[member.index])
            for member in self._members
            for name, numbers in (("loss", record.loss), ("excess", record.excess))
            if math.isfinite(numbers[member.index])
        ]
        self._add(record.step, summary=self._summary(value=values))

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def _add(self, step: int, **content: Any) -> None:
        event = self._event.Event(wall_time=time.time(), step=step, **content)
        self._writer.add_event(event)
        self._writer.flush()
