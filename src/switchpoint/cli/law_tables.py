"""Laws on the terminal: tables with bars."""

import numpy as np
from jaxtyping import Float
from rich import box
from rich.console import Console
from rich.table import Table

from switchpoint.cli.laws import LengthLaw, densest

_BAR_WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_length_law(console: Console, law: LengthLaw, start: int) -> None:
    """Print P(L = r | start), P(L >= r | start) and the hazard at the lengths that tell most."""
    table = _table(f"length r of a segment from start {start}")
    for name in ("r", "P(L = r)", "P(L >= r)", "hazard"):
        table.add_column(name, justify="right")
    table.add_column("")
    highest = float(law.pmf.max())
    for length in law.telling_lengths():
        at = length - 1
        table.add_row(
            str(length),
            _number(law.pmf[at]),
            _number(law.at_least[at]),
            _number(law.hazard[at]),
            _bar(console, law.pmf[at] / highest if highest else 0.0),
        )
    console.print(table)


def print_count_law(console: Console, law: Float[np.ndarray, " count"], length: int) -> None:
    """Print the expected number of switches, and the probabilities of the likely numbers."""
    expected = float(np.arange(len(law)) @ law)
    window = densest(law)
    fewer, more = law[: window[0]].sum(), law[window[-1] + 1 :].sum()
    table = _table(f"switches k in {length} symbols, {expected:.4g} expected")
    table.add_column("k", justify="right")
    table.add_column("P(k)", justify="right")
    table.add_column("")
    highest = float(law.max())
    if fewer > 0:
        table.add_row(f"< {window[0]}", _number(fewer), "")
    for count in window:
        table.add_row(str(count), _number(law[count]), _bar(console, law[count] / highest))
    if more > 0:
        table.add_row(f"> {window[-1]}", _number(more), "")
    console.print(table)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="cyan", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.4g}"


def _bar(console: Console, share: float) -> str:
    """A bar whose length is a share of the longest."""
    if console.options.ascii_only:
        return "#" * round(_BAR_WIDTH * share)
    full, eighths = divmod(round(8 * _BAR_WIDTH * share), 8)
    return ("█" * full + _EIGHTHS[eighths]).rstrip()
