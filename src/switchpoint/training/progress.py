"""The progress of a training run: a bar on a terminal, plain lines elsewhere."""

import importlib.util
import io
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Literal, TextIO, TypeAlias, cast

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from switchpoint._numbers import duration
from switchpoint._progress import Progress
from switchpoint._text import printable
from switchpoint.training.config import Member
from switchpoint.training.metrics_log import EvalRecord

TextStream: TypeAlias = TextIO | io.TextIOBase
"""Standard output and error, a text file, or an `io.StringIO`."""

Choice: TypeAlias = bool | Progress | Literal["warnings"] | None
"""The argument `progress` of `train`."""


class LineProgress(Progress):
    """Prints notes at once, and the current task every few seconds; no control characters."""

    def __init__(self, stream: TextStream, seconds: float = 10.0) -> None:
        self._stream, self._seconds = stream, seconds
        self._first: tuple[float, float] | None = None  # the time and the share of the first update
        self._printed = time.monotonic()

    def update(self, text: str, done: float) -> None:
        now = time.monotonic()
        begun, share = self._first = self._first or (now, done)
        if now - self._printed >= self._seconds:
            left = (now - begun) * (1 - done) / (done - share) if done > share else math.nan
            self.note(f"{text}, {done:.0%}" + ("" if left != left else f", {duration(left)} left"))

    def note(self, text: str) -> None:
        self._printed = time.monotonic()
        encoding = self._stream.encoding or "utf-8"
        line = "".join(c if c.isprintable() else " " for c in text)
        # A stream that cannot encode ± must not end the run.
        print(line.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)


class BarProgress(Progress):
    """A bar with the current task and the time left; notes are printed above it."""

    def __init__(self, console: Console) -> None:
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._task = self.bar.add_task("preparing", total=1.0)

    def update(self, text: str, done: float) -> None:
        self.bar.update(self._task, description=text, completed=done)

    def note(self, text: str) -> None:
        self.bar.console.print(Text(printable(text)))


@contextmanager
def show_progress(stream: TextStream | None) -> Iterator[Progress]:
    """A bar if `stream` is a terminal that can show one, else lines; a notebook if it is None."""
    console = Console(file=cast(IO[str] | None, stream))
    if stream is None and importlib.util.find_spec("ipywidgets") is None:
        yield LineProgress(sys.stdout)
    elif stream is not None and (
        not stream.isatty() or console.is_dumb_terminal or console.options.ascii_only
    ):
        yield LineProgress(stream)
    else:
        progress = BarProgress(console)
        with progress.bar:
            yield progress


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
