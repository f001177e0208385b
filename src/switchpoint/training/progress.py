"""The progress of a training run in words."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from rich.console import Console

from switchpoint._display import LineProgress, show_progress
from switchpoint._progress import Progress
from switchpoint.training.config import Member
from switchpoint.training.metrics_log import EvalRecord

Choice: TypeAlias = bool | Progress | Literal["warnings"] | None
"""The argument `progress` of `train`."""


class RunProgress:
    """The progress of a training run in words; `reports` also shows every evaluation."""

    def __init__(self, progress: Progress, warnings: Progress, reports: bool) -> None:
        self._progress, self._warnings, self._reports = progress, warnings, reports
        self.note = progress.note
        self.warning = warnings.note

    def begin(self, members: int, step: int, steps: int) -> None:
        """The run starts or resumes at `step`."""
        if self._reports:
            count = f"{members} member{'s' * (members != 1)}"
            self.note(f"training {count} from step {step} to {steps}")

    def step(self, step: int, steps: int, members: int, steps_per_second: float) -> None:
        """`step` of `steps` is done; every member takes this many steps in a second."""
        text = f"step {step:,} of {steps:,}"
        if steps_per_second:
            pace, total = (
                f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
                for rate in (steps_per_second, members * steps_per_second)
            )
            text += f", {pace} steps/s, {total} seed-steps/s"
        self._progress.update(text, step / steps)

    def report(self, members: Sequence[Member], record: EvalRecord, steps: int) -> None:
        """The loss and the excess of the best and the median member of each prior."""
        for prior in dict.fromkeys(member.prior for member in members) if self._reports else ():
            every = [member.index for member in members if member.prior == prior]
            active = [index for index in every if index not in record.diverged]
            loss = [f"{record.loss[i]:.4f}" for i in _best_and_median(active, record.loss)]
            excess = [
                f"{_bits(record.excess[i])} ± {_bits(record.excess_error[i])}"
                for i in _best_and_median(active, record.excess)
            ]
            facts = [
                f"step {record.step}/{steps}",
                prior,
                f"loss {_pair(loss)} bits/symbol",
                f"excess {_pair(excess)} bits",
            ]
            if len(active) < len(every):
                facts.append(f"{len(every) - len(active)} of {len(every)} diverged")
            self.note(" | ".join(facts))


@contextmanager
def run_progress(choice: Any) -> Iterator[RunProgress]:
    """The display that `train(progress=choice)` asks for; see there."""
    if isinstance(choice, Progress):
        yield RunProgress(choice, choice, reports=False)
        return
    if choice not in (None, True, False, "warnings"):
        raise ValueError(f"progress must be True, False, 'warnings' or a Progress, got {choice!r}")
    notebook = Console().is_jupyter
    if choice is True or (choice is None and (notebook or sys.stderr.isatty())):
        with show_progress(None if notebook else sys.stderr) as progress:
            yield RunProgress(progress, progress, reports=True)
    else:
        silent = Progress()
        warnings = silent if choice is False else LineProgress(sys.stderr)
        yield RunProgress(silent, warnings, reports=False)


def _best_and_median(indices: Sequence[int], values: Sequence[float]) -> list[int]:
    """The members with the lowest and the median value; NaN counts as the highest."""
    ranked = sorted(indices, key=lambda index: (math.isnan(values[index]), values[index]))
    return [ranked[0], ranked[(len(ranked) - 1) // 2]] if len(ranked) > 1 else ranked


def _pair(values: Sequence[str]) -> str:
    return f"best {values[0]}, median {values[1]}" if len(values) > 1 else (*values, "-")[0]


def _bits(number: float) -> str:
    """A number with a fixed number of digits, which aligns in columns."""
    return f"{number:.3f}" if abs(number) < 100 else f"{number:.1f}"
