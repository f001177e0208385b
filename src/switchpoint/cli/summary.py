"""A short account of an analysed sequence for the terminal."""

import math

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from switchpoint.cli.analysis import Analysis

_MOST_POSITIONS = 20
_LONGEST_NAME = 60
_LONGEST_LINE = 100


def print_summary(console: Console, analysis: Analysis) -> None:
    """Print what was predicted, with what, at what cost, and where the switching points are."""
    count, subject, switching = len(analysis.symbols), analysis.subject, analysis.switching
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    table.add_row("symbols", Text(f"{count} of the alphabet 0..{analysis.probs.shape[1] - 1}"))
    for heading, line in subject.lines.items():
        table.add_row(heading, Text(shortened(line, _LONGEST_LINE)))
    if subject.trained_length is not None and count > subject.trained_length:
        table.add_row("", Text("this sequence is longer than that", "yellow"))
    table.add_row("code length", _bits(analysis.bits, count))
    table.add_row("plain KT", _bits(analysis.kt_bits, count))
    if switching is not None:
        table.add_row("switches", Text(_positions(switching.best_positions)))
        table.add_row(
            "", Text(f"{_probability(switching.best_log_prob)} for this partition", "dim")
        )
    console.print(Panel(table, title="switchpoint predict", expand=False, border_style="dim"))


def shortened(text: str, longest: int = _LONGEST_NAME) -> str:
    """A text that is not too long for a line."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _bits(bits: float, count: int) -> Text:
    return Text.assemble((f"{bits:.2f}", "bold"), f" bits, {bits / count:.4f} per symbol")


def _positions(positions: list[int]) -> str:
    if not positions:
        return "none is most probable"
    listed = ", ".join(map(str, positions[:_MOST_POSITIONS]))
    more = len(positions) - _MOST_POSITIONS
    return f"{listed} and {more} more" if more > 0 else listed


def _probability(log_prob: float) -> str:
    exponent = log_prob / math.log(10)
    if exponent > -300:
        return f"probability {math.exp(min(log_prob, 0)):.3g}"
    return f"probability 10^{exponent:.0f}"
