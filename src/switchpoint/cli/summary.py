"""A short account of an analysed sequence for the terminal."""

import math

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from switchpoint.cli.analysis import Analysis, Switching
from switchpoint.cli.preferred_prior import is_dyadic

_DYADIC = (
    "PTW switches only at midpoints of a binary tree, so these are no estimate of where the "
    "sequence changed; --prior geometric tells that"
)
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
        _add_switches(table, switching)
        if is_dyadic(subject.predictor):
            table.add_row("", Text(_DYADIC, "yellow"))
    console.print(Panel(table, title="switchpoint predict", expand=False, border_style="dim"))


def _add_switches(table: Table, switching: Switching) -> None:
    """How many switches there were, and where."""
    table.add_row("switches", Text(_counts(switching.count_pmf)))
    for each in switching.intervals[:_MOST_POSITIONS]:
        line = f"at {each.position}, {_share(each.probability)}"
        if each.begin < each.end:
            line += f"; in {each.begin}..{each.end}, {_share(each.interval_probability)}"
        table.add_row("", Text(line))
    more = len(switching.intervals) - _MOST_POSITIONS
    if more > 0:
        table.add_row("", Text(f"and {more} more"))
    if switching.intervals:
        table.add_row("", Text(f"this partition: {_probability(switching.best_log_prob)}", "dim"))


def _counts(pmf: Float[np.ndarray, " counts"]) -> str:
    """The likely numbers of switches, such as `1 (97%), 2 (3%)`, and that there is none."""
    likely = [int(k) for k in np.argsort(-pmf, kind="stable")[:4] if pmf[k] >= 0.01]
    told = ", ".join(f"{k} ({_share(float(pmf[k]))})" for k in sorted(likely))
    beyond = 1 - float(pmf.sum())
    if beyond > 0.01:
        told = f"{told + ', ' if told else ''}more than {len(pmf) - 1} ({_share(beyond)})"
    return told if 0 in likely else f"{told}; no switch: {_share(float(pmf[0]))}"


def _share(probability: float) -> str:
    if 0.01 <= probability < 0.995:
        return f"{probability:.0%}"
    return f"{probability:.2g}" if probability < 0.01 else f"{probability:.4g}"


def shortened(text: str, longest: int = _LONGEST_NAME) -> str:
    """A text that is not too long for a line."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _bits(bits: float, count: int) -> Text:
    return Text.assemble((f"{bits:.2f}", "bold"), f" bits, {bits / count:.4f} per symbol")


def _probability(log_prob: float) -> str:
    exponent = log_prob / math.log(10)
    if exponent > -300:
        return f"probability {math.exp(log_prob):.3g}"
    return f"probability 10^{exponent:.0f}"
