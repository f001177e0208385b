"""`switchpoint prior`: the law of a prior's segment lengths and of its number of switches."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jaxtyping import Float
from rich.table import Table

from switchpoint.cli import config_options as options
from switchpoint.cli import output
from switchpoint.priors import PRIOR_NAMES, PTW, Prior

MAX_LENGTH = 4096
"""The longest sequence that this command computes exact statistics for: their table is n x n."""

_FEW = 16
_BAR_WIDTH = 24


@options.with_options(*options.PRIOR)
def prior(
    name: str = typer.Argument(metavar="NAME", help=f"One of {', '.join(PRIOR_NAMES)}."),
    length: int = typer.Option(256, help="The length of the sequence."),
    start: int = typer.Option(0, help="Where the segment starts, from 0."),
    plot: Path | None = options.PLOT,
    **given: Any,
) -> None:
    """Show a prior's distributions of the segment length and the number of switches.

    For example:

        switchpoint prior ptw --length 256 --start 64 --plot ptw.png
    """
    law = options.make_prior(name, length, given)
    if length > MAX_LENGTH:
        raise ValueError(f"length must be at most {MAX_LENGTH} for exact tables, got {length}")
    if not 0 <= start < length:
        raise ValueError(f"start must be from 0 to {length - 1}, got {start}")
    output.check_output(plot, "plot", output.PICTURE_SUFFIXES)
    counts = law.switch_count_pmf(length)
    # All lengths that a segment can have, if they fit in a table.
    longest = law.max_length
    longest = length if longest is None or longest > MAX_LENGTH else longest
    if plot is not None:
        output.write_picture(plot, _figure(law, length, start, longest, counts))
    output.console().print(output.shortened(repr(law)), style="bold")
    lengths = length_law(law, start, longest)
    rows = [(r, *(column[r - 1] for column in lengths)) for r in shown_lengths(lengths)]
    headings = ("r", "P(L = r)", "P(L >= r)", "hazard")
    title = f"length r of a segment from start {start}"
    output.console().print(_bar_table(title, headings, rows, lengths.pmf.max()))
    # The ten numbers around the most probable one.
    first = max(0, int(counts.argmax()) - 4)
    rows = [(k, counts[k]) for k in range(first, min(len(counts), first + 10)) if counts[k] > 0]
    rows.append(("others", max(0.0, 1 - sum(each for _, each in rows))))
    title = f"switches k in {length} symbols, {np.arange(len(counts)) @ counts:.4g} expected"
    output.console().print(_bar_table(title, ("k", "P(k)"), rows, counts.max()))


class LengthLaw(NamedTuple):
    """P(L = r | start), P(L >= r | start) and P(L = r | start, L >= r) at r = 1, 2, ..."""

    pmf: Float[np.ndarray, " lengths"]
    at_least: Float[np.ndarray, " lengths"]
    hazard: Float[np.ndarray, " lengths"]


def length_law(prior: Prior, start: int, longest: int) -> LengthLaw:
    """The law of the length of a segment that starts at `start`, up to `longest`, in float64."""
    with jax.enable_x64(True):
        lengths = jnp.arange(1, min(longest, prior.max_length or longest) + 1, dtype=jnp.int32)
        starts = jnp.full_like(lengths, start)
        return LengthLaw(
            pmf=np.exp(np.asarray(prior.log_pmf(starts, lengths))),
            at_least=np.exp(np.asarray(prior.log_survival(starts, lengths - 1))),
            hazard=np.broadcast_to(prior.hazard_after(starts, lengths), lengths.shape),
        )


def shown_lengths(law: LengthLaw) -> list[int]:
    """All possible lengths if they are few; otherwise powers of two, the support and the last."""
    count = int(np.count_nonzero(law.at_least))
    if count <= _FEW:
        return list(range(1, count + 1))
    support = np.flatnonzero(law.pmf) + 1
    few = support.tolist() if len(support) <= _FEW else []
    return sorted({2**k for k in range(count.bit_length())} | {count, *few})


def _bar_table(
    title: str, headings: Sequence[str], rows: Iterable[tuple[Any, ...]], highest: float
) -> Table:
    """Rows of a label and numbers; the first number of a row is also drawn as a bar."""
    table = output.table(title, *headings, "", texts=0)
    table.columns[-1].justify = "left"
    for label, *numbers in rows:
        share = numbers[0] / highest if isinstance(label, int) and highest else 0.0
        bar = ("#" if output.console().options.ascii_only else "█") * round(_BAR_WIDTH * share)
        table.add_row(str(label), *(f"{number:.4g}" for number in numbers), bar)
    return table


def _figure(prior: Prior, length: int, start: int, longest: int, counts: np.ndarray) -> Any:
    from switchpoint.figures import prior_figure  # imports Matplotlib

    starts = [start]
    if isinstance(prior, PTW):  # the only prior whose law depends on the start
        midpoints = [2 ** (prior.depth - k) for k in range(1, min(prior.depth, 3) + 1)]
        starts = list(dict.fromkeys([start, 0, *(s for s in midpoints if s < length)]))
    return prior_figure(
        length_laws={f"start {s}": length_law(prior, s, longest).pmf for s in starts},
        switch_probability=prior.switch_probability(length),
        count_law=counts,
        title=output.shortened(repr(prior)),
    )
