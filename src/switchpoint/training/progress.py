"""What a training run shows: live on a terminal, plain lines elsewhere."""

import importlib.util
import io
import math
import sys
from collections.abc import Sequence
from typing import IO, TextIO, TypeAlias, cast

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from switchpoint._progress import Progress as TaskProgress
from switchpoint._text import printable
from switchpoint.training.config import Member
from switchpoint.training.metrics_log import EvalRecord

TextStream: TypeAlias = TextIO | io.TextIOBase
"""Standard output and error, a text file, or an `io.StringIO`."""


class Progress:
    """What `train` calls: `start` first, `close` last. This one shows nothing; extend it."""

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        """The run goes from `first_step`, which is done, to `last_step`."""

    def note(self, text: str) -> None:
        """Something happened that the user should know; also before `start`."""

    def warning(self, text: str) -> None:
        """Something is wrong that the user must know; also before `start`."""
        self.note(text)

    def tick(self, step: int, steps_per_second: float) -> None:
        """`step` is done; every member takes so many steps in a second now."""

    def report(self, record: EvalRecord) -> None:
        """The members have been evaluated."""

    def close(self) -> None:
        """The run has ended, whether it is complete or not."""


def progress_of(choice: "bool | Progress | None") -> Progress:
    """What `train(progress=choice)` shows on standard error or in a notebook.

    None is True on a terminal and in a notebook; elsewhere only warnings are shown.
    """
    if isinstance(choice, Progress):
        return choice
    if choice not in (None, True, False):
        raise ValueError(f"progress must be True, False or a Progress, got {choice!r}")
    if choice is False:
        return Progress()
    console = Console()
    if console.is_jupyter:  # where a live display needs a widget
        widgets = importlib.util.find_spec("ipywidgets") is not None
        return RichProgress(console) if widgets else PlainProgress(sys.stdout)
    return progress_for(sys.stderr) if choice or sys.stderr.isatty() else Warnings(sys.stderr)


def progress_for(stream: TextStream) -> Progress:
    """A live display if `stream` is a terminal that can show one, else plain lines."""
    console = Console(file=cast(IO[str], stream))
    able = not console.is_dumb_terminal and not console.options.ascii_only
    return RichProgress(console) if stream.isatty() and able else PlainProgress(stream)


class Warnings(Progress):
    """Shows warnings as plain lines, and nothing else."""

    def __init__(self, stream: TextStream) -> None:
        self._lines = PlainProgress(stream)

    def warning(self, text: str) -> None:
        self._lines.note(text)


class PlainProgress(Progress):
    """One line for each note, and for each prior of a record; no control characters."""

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        self._pace = _Pace(members, first_step, last_step)
        count = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        self.note(f"training {count} from step {first_step} to {last_step}")

    def note(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        line = "".join(c if c.isprintable() else " " for c in text)
        # A stream that cannot encode ± must not end the run.
        print(line.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)

    def tick(self, step: int, steps_per_second: float) -> None:
        self._pace.update(step, steps_per_second)

    def report(self, record: EvalRecord) -> None:
        for facts in self._pace.standings(record):
            self.note(" | ".join([*facts, *self._pace.facts()]))


class RichProgress(Progress):
    """A bar with the pace, kept up to date in place; notes and records above."""

    def __init__(self, console: Console) -> None:
        self._bar = bars.Progress(
            bars.TextColumn("[bold]step {task.completed:,} of {task.total:,}"),
            bars.BarColumn(None),
            bars.TaskProgressColumn(),
            bars.TextColumn("[cyan]{task.description}"),
            console=console,
            expand=True,
        )

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        self._pace = _Pace(members, first_step, last_step)
        self._bar.add_task("preparing", total=last_step, completed=first_step)
        self._bar.start()

    def note(self, text: str) -> None:
        self._bar.console.print(Text(f"• {printable(text)}"))

    def tick(self, step: int, steps_per_second: float) -> None:
        self._pace.update(step, steps_per_second)
        pace = " · ".join(self._pace.facts()) or "preparing"
        self._bar.update(self._bar.task_ids[0], completed=self._pace.step, description=pace)

    def report(self, record: EvalRecord) -> None:
        for facts in self._pace.standings(record):
            self._bar.console.print(Text(" | ".join(facts)))

    def close(self) -> None:
        self._bar.stop()


class _Pace:
    """How far a run is, how fast it is, and how its members do, in words."""

    def __init__(self, members: Sequence[Member], step: int, last_step: int) -> None:
        self.step = step
        self._members, self._last_step, self._speed = members, last_step, 0.0

    def update(self, step: int, steps_per_second: float) -> None:
        self.step, self._speed = max(step, self.step), steps_per_second

    def facts(self) -> list[str]:
        """The pace; nothing before it is known."""
        if not (math.isfinite(self._speed) and self._speed > 0):
            return []
        rates = (self._speed, len(self._members) * self._speed)
        steps, seed_steps = (f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in rates)
        left = round((self._last_step - self.step) / self._speed)
        text = f"{left} s"
        for unit, name, smaller, small in ((60, "min", 1, "s"), (3600, "h", 60, "min")):
            if left >= unit:
                text = f"{left // unit} {name} {left % unit // smaller} {small}"
        if left >= 86400:
            text = f"{left // 86400} d {left % 86400 // 3600} h"
        return [f"{steps} steps/s", f"{seed_steps} seed-steps/s", f"{text} left"]

    def standings(self, record: EvalRecord) -> list[list[str]]:
        """For each prior the loss and the excess of its best and its median member."""
        self.step = max(record.step, self.step)
        lines = []
        for prior in dict.fromkeys(member.prior for member in self._members):
            every = [member.index for member in self._members if member.prior == prior]
            active = [index for index in every if index not in record.diverged]
            loss = [f"{record.loss[i]:.4f}" for i in _best_and_median(active, record.loss)]
            excess = [
                f"{_bits(record.excess[i])} ± {_bits(record.excess_error[i])}"
                for i in _best_and_median(active, record.excess)
            ]
            diverged = len(every) - len(active)
            lines.append(
                [
                    f"step {record.step}/{self._last_step}",
                    prior,
                    f"loss {_pair(loss)} bits/symbol",
                    f"excess {_pair(excess)} bits",
                    *([f"{diverged} of {len(every)} diverged"] if diverged else []),
                ]
            )
        return lines


def _best_and_median(indices: Sequence[int], values: Sequence[float]) -> list[int]:
    """The members with the lowest and the median value; NaN counts as the highest."""
    ranked = sorted(indices, key=lambda index: (math.isnan(values[index]), values[index]))
    return [ranked[0], ranked[(len(ranked) - 1) // 2]] if len(ranked) > 1 else ranked


def _pair(values: Sequence[str]) -> str:
    return f"best {values[0]}, median {values[1]}" if len(values) > 1 else (*values, "-")[0]


def _bits(number: float) -> str:
    """Thousandths of a bit, or tenths of many: what fits into a column."""
    return f"{number:.3f}" if abs(number) < 100 else f"{number:.1f}"


class TrainingProgress(Progress):
    """Passes the progress of a training run to a listener."""

    def __init__(self, listener: TaskProgress, run: str) -> None:
        self._listener = listener
        self._run = run
        self._steps = 1

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        del members
        self._steps = last_step
        self.tick(first_step, 0.0)

    def note(self, text: str) -> None:
        self._listener.note(f"{self._run}: {text}")

    def tick(self, step: int, steps_per_second: float) -> None:
        del steps_per_second
        self._listener.update(f"training {self._run}", step / self._steps)
