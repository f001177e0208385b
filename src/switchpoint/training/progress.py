"""What a training run shows while it goes on: live on a terminal, plain lines elsewhere."""

import importlib.util
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Protocol, cast, runtime_checkable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from switchpoint.training.members import Member
from switchpoint.training.report import Report

_UNITS = "loss in bits/symbol, excess over the optimum in bits/sequence ± standard error"


class Progress(ABC):
    """Is told how a run goes: `start` first, `close` last, the others in any order between."""

    @abstractmethod
    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        """The run goes from `first_step`, which is done, to `last_step`."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something happened that the user should know; also before `start`."""

    def warning(self, text: str) -> None:
        """Something is wrong that the user must know; also before `start`."""
        self.note(text)

    @abstractmethod
    def tick(self, step: int, steps_per_second: float) -> None:
        """`step` is done; every member takes so many steps in a second now."""

    @abstractmethod
    def report(self, report: Report) -> None:
        """The members have been measured."""

    @abstractmethod
    def close(self) -> None:
        """The run has ended, whether it is complete or not."""


@runtime_checkable
class TextStream(Protocol):
    """Where text can go: standard output and error, a file, an `io.StringIO`."""

    @property
    def encoding(self) -> str | None:
        """The name of the encoding; None where text stays text."""

    def write(self, text: str, /) -> int:
        """Take the text."""

    def flush(self) -> None:
        """Pass on what was written."""

    def isatty(self) -> bool:
        """Whether a person looks at it."""


def progress_of(choice: "bool | Progress | None") -> Progress:
    """What `train(progress=choice)` shows on standard error or in a notebook.

    None is True where a person looks on; elsewhere there are warnings and nothing else.
    """
    if isinstance(choice, Progress):
        return choice
    if choice not in (None, True, False):
        raise ValueError(f"progress must be True, False or a Progress, got {choice!r}")
    if choice is False:
        return SilentProgress()
    console = Console()
    if console.is_jupyter:  # which shows what changes by means of a widget
        widgets = importlib.util.find_spec("ipywidgets") is not None
        return RichProgress(console) if widgets else PlainProgress(sys.stdout)
    return progress_for(sys.stderr) if choice or sys.stderr.isatty() else Warnings(sys.stderr)


def progress_for(stream: TextStream) -> Progress:
    """A live display where `stream` is a terminal that can show one, else plain lines."""
    console = Console(file=cast(IO[str], stream))
    able = not console.is_dumb_terminal and not console.options.ascii_only
    return RichProgress(console) if stream.isatty() and able else PlainProgress(stream)


class SilentProgress(Progress):
    """Shows nothing."""

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def tick(self, step: int, steps_per_second: float) -> None:
        pass

    def report(self, report: Report) -> None:
        pass

    def close(self) -> None:
        pass


class Warnings(SilentProgress):
    """Shows warnings as plain lines, and nothing else."""

    def __init__(self, stream: TextStream) -> None:
        self._lines = PlainProgress(stream)

    def warning(self, text: str) -> None:
        self._lines.note(text)


class PlainProgress(Progress):
    """One line for each note, and for each prior of a report; no control characters."""

    _stream: TextStream
    _members: tuple[Member, ...]
    _pace: "_Pace"

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream
        self._members = ()
        self._pace = _Pace(0, 0, 0)

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        self._members = tuple(members)
        self._pace = _Pace(len(members), first_step, last_step)
        count = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        self.note(f"training {count} from step {first_step} to {last_step}")

    def note(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        line = "".join(c if c.isprintable() else " " for c in text)
        # A stream that has no ± shall not end the run.
        print(line.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)

    def tick(self, step: int, steps_per_second: float) -> None:
        self._pace = self._pace.at(step, steps_per_second)

    def report(self, report: Report) -> None:
        self._pace = self._pace.at(report.step, self._pace.steps_per_second)
        for standing in _standings(self._members, report):
            facts = [
                f"step {report.step}/{self._pace.last_step}",
                standing.prior,
                f"loss {_plain_pair(standing.loss)} bits/symbol",
                f"excess {_plain_pair(standing.excess)} bits",
                *([f"{standing.frozen} of {standing.members} frozen"] if standing.frozen else []),
                *self._pace.facts(),
            ]
            self.note(" | ".join(facts))

    def close(self) -> None:
        pass


class RichProgress(Progress):
    """A bar, the pace and a table of the priors, kept up to date in place; notes above."""

    _console: Console
    _members: tuple[Member, ...]
    _pace: "_Pace"
    _standings: "list[_Standing]"
    _live: Live | None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._members = ()
        self._pace = _Pace(0, 0, 0)
        self._standings = []
        self._live = None

    def start(self, members: Sequence[Member], first_step: int, last_step: int) -> None:
        self._members = tuple(members)
        self._pace = _Pace(len(members), first_step, last_step)
        self._live = Live(get_renderable=self._render, console=self._console)
        self._live.start(refresh=True)

    def note(self, text: str) -> None:
        self._console.print(Text(f"• {text}"))

    def tick(self, step: int, steps_per_second: float) -> None:
        self._pace = self._pace.at(step, steps_per_second)

    def report(self, report: Report) -> None:
        self._pace = self._pace.at(report.step, self._pace.steps_per_second)
        self._standings = _standings(self._members, report)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        pace = self._pace
        bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True, justify="right")
        bar.add_row(
            Text(f"step {pace.step:,} of {pace.last_step:,}", style="bold"),
            ProgressBar(total=max(pace.last_step, 1), completed=pace.step),
            f"{pace.done:.0%}",
        )
        facts = Text(" · ".join(pace.facts()) or "preparing the first steps", style="cyan")
        if not self._standings:
            return Group(bar, facts)
        return Group(bar, facts, "", _table(self._standings), Text(_UNITS, style="dim"))


@dataclass(frozen=True)
class _Pace:
    """How far the run is, and how fast it goes."""

    members: int
    step: int
    last_step: int
    steps_per_second: float = 0.0

    def at(self, step: int, steps_per_second: float) -> "_Pace":
        return _Pace(self.members, max(step, self.step), self.last_step, steps_per_second)

    @property
    def done(self) -> float:
        return self.step / self.last_step if self.last_step else 1.0

    def facts(self) -> list[str]:
        """The pace in words; nothing before it is known."""
        if not (math.isfinite(self.steps_per_second) and self.steps_per_second > 0):
            return []
        seconds = (self.last_step - self.step) / self.steps_per_second
        return [
            f"{_rate(self.steps_per_second)} steps/s",
            f"{_rate(self.members * self.steps_per_second)} seed-steps/s",
            f"{_duration(seconds)} left",
        ]


@dataclass(frozen=True)
class _Standing:
    """The members of one prior in a report: numbers of the best and of the median member."""

    prior: str
    members: int
    frozen: int
    loss: tuple[str, ...]
    excess: tuple[str, ...]


def _standings(members: Sequence[Member], report: Report) -> list[_Standing]:
    """One standing for each prior, in the order of the members; the frozen ones do not count."""
    standings = []
    for prior in dict.fromkeys(member.prior for member in members):
        all_of_it = [member.index for member in members if member.prior == prior]
        going = [index for index in all_of_it if index not in report.frozen]
        by_loss = _ranked(going, report.loss)
        by_excess = _ranked(going, report.excess)
        standings.append(
            _Standing(
                prior,
                len(all_of_it),
                len(all_of_it) - len(going),
                tuple(f"{report.loss[i]:.4f}" for i in _best_and_median(by_loss)),
                tuple(
                    f"{_bits(report.excess[i])} ± {_bits(report.excess_error[i])}"
                    for i in _best_and_median(by_excess)
                ),
            )
        )
    return standings


def _ranked(indices: Sequence[int], values: Sequence[float]) -> list[int]:
    """The indices by their values, NaN last."""
    return sorted(indices, key=lambda index: (math.isnan(values[index]), values[index]))


def _best_and_median(ranked: Sequence[int]) -> list[int]:
    """The first and the middle one; a member each, so that each has an error of its own."""
    return [ranked[0], ranked[(len(ranked) - 1) // 2]] if len(ranked) > 1 else list(ranked)


def _plain_pair(values: Sequence[str]) -> str:
    if not values:
        return "-"
    return values[0] if len(values) == 1 else f"best {values[0]}, median {values[1]}"


def _table(standings: Sequence[_Standing]) -> Table:
    """One row for each prior; columns that would say nothing are left out."""
    which = ("best", "median") if any(len(s.excess) > 1 for s in standings) else ("",)
    frozen = any(standing.frozen for standing in standings)
    gap = "\n" if len(which) > 1 else ""  # two lines of headings, the names on the lower one
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(f"{gap}prior", no_wrap=True)
    table.add_column(f"{gap}members", justify="right", no_wrap=True)
    for what in ("loss", "excess"):
        for member in which:
            table.add_column(f"{member}{gap}{what}", justify="right", no_wrap=True)
    if frozen:
        table.add_column(f"{gap}frozen", justify="right", no_wrap=True)
    for standing in standings:
        table.add_row(
            Text(standing.prior),
            str(standing.members),
            *_cells(standing.loss, len(which)),
            *_cells(standing.excess, len(which)),
            *([Text(str(standing.frozen), style="red")] if frozen and standing.frozen else []),
        )
    return table


def _cells(values: Sequence[str], size: int) -> list[str]:
    """The values for `size` cells; a single one is both the best and the median."""
    return list(values) if len(values) == size else [values[0] if values else "-"] * size


def _bits(number: float) -> str:
    """Thousandths of a bit, or tenths of many: what fits into a column."""
    return f"{number:.3f}" if abs(number) < 100 else f"{number:.1f}"


def _rate(number: float) -> str:
    """Three digits or more."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _duration(seconds: float) -> str:
    """The two largest units."""
    whole = round(seconds)
    for unit, name, smaller, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // smaller} {small_name}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
