"""`switchpoint prior`: the law of a prior's segment lengths and of its number of switches."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer
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
    title = f"length r of a segment from start {start}"
    output.console().print(_bar_table(title, lengths.loc[shown_lengths(lengths)]))
    # The ten numbers around the most probable one.
    first = max(0, int(counts.argmax()) - 4)
    switches = pd.DataFrame({"P(k)": counts}).rename_axis("k").iloc[first : first + 10]
    switches = switches[switches["P(k)"] > 0]
    table = _bar_table(
        f"switches k in {length} symbols, {np.arange(len(counts)) @ counts:.4g} expected", switches
    )
    table.add_row("others", f"{max(0.0, 1 - switches['P(k)'].sum()):.4g}")
    output.console().print(table)


def length_law(prior: Prior, start: int, longest: int) -> pd.DataFrame:
    """The law of the length r of a segment that starts at `start`, up to `longest`, in float64."""
    with jax.enable_x64(True):
        lengths = jnp.arange(1, min(longest, prior.max_length or longest) + 1, dtype=jnp.int32)
        starts = jnp.full_like(lengths, start)
        columns = {
            "P(L = r)": np.exp(np.asarray(prior.log_pmf(starts, lengths))),
            "P(L >= r)": np.exp(np.asarray(prior.log_survival(starts, lengths - 1))),
            "hazard": np.broadcast_to(prior.hazard_after(starts, lengths), lengths.shape),
        }
        return pd.DataFrame(columns, index=pd.Index(np.asarray(lengths), name="r"))


def shown_lengths(law: pd.DataFrame) -> list[int]:
    """All possible lengths if they are few; otherwise powers of two, the support and the last."""
    count = int(np.count_nonzero(law["P(L >= r)"]))
    if count <= _FEW:
        return list(range(1, count + 1))
    support = law.index[law["P(L = r)"] != 0].tolist()
    few = support if len(support) <= _FEW else []
    return sorted({2**k for k in range(count.bit_length())} | {count, *few})


def _bar_table(title: str, frame: pd.DataFrame) -> Table:
    """A row for each row of the frame; its first number is also drawn as a bar."""
    table = output.table(title, str(frame.index.name), *frame.columns, "", texts=0)
    table.columns[-1].justify = "left"
    mark = "#" if output.console().options.ascii_only else "█"
    bars = (_BAR_WIDTH * frame.iloc[:, 0] / (frame.iloc[:, 0].max() or 1)).round().astype(int)
    for (label, *numbers), bar in zip(frame.itertuples(), bars, strict=True):
        table.add_row(str(label), *(f"{number:.4g}" for number in numbers), mark * bar)
    return table


def _figure(prior: Prior, length: int, start: int, longest: int, counts: np.ndarray) -> Any:
    from switchpoint.figures import prior_figure  # imports Matplotlib

    starts = [start]
    if isinstance(prior, PTW):  # the only prior whose law depends on the start
        midpoints = [2 ** (prior.depth - k) for k in range(1, min(prior.depth, 3) + 1)]
        starts = list(dict.fromkeys([start, 0, *(s for s in midpoints if s < length)]))
    return prior_figure(
        length_laws={
            f"start {s}": length_law(prior, s, longest)["P(L = r)"].to_numpy() for s in starts
        },
        switch_probability=prior.switch_probability(length),
        count_law=counts,
        title=output.shortened(repr(prior)),
    )
