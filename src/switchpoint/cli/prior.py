"""`switchpoint prior`: what a prior believes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from switchpoint.cli import options
from switchpoint.cli.config_options import PRIOR, prior_of, with_options
from switchpoint.cli.files import check_output
from switchpoint.cli.law_tables import print_count_law, print_length_law
from switchpoint.cli.laws import length_law
from switchpoint.cli.pictures import PICTURE_SUFFIXES, write_picture
from switchpoint.cli.summary import shortened
from switchpoint.priors import PTW, Prior

LONGEST_TABLE = 4096
"""The longest sequence whose exact statistics this command takes on: their table is n x n."""


@with_options(*PRIOR)
def prior(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="ptw, lin, regular, uniform, geometric or renewal."),
    ],
    length: Annotated[int, typer.Option(help="The length of the sequence.")] = 256,
    start: Annotated[int, typer.Option(help="Where the segment starts, from 0.")] = 0,
    plot: options.Plot = None,
    **given: Any,
) -> None:
    """Show what a prior believes: how long segments last, and how many switches there are.

    For example:

        switchpoint prior ptw --length 256 --start 64 --plot ptw.png
    """
    law = prior_of(name, length, given)
    if length > LONGEST_TABLE:
        raise ValueError(f"length must be at most {LONGEST_TABLE} for exact tables, got {length}")
    if not 0 <= start < length:
        raise ValueError(f"start must be from 0 to {length - 1}, got {start}")
    check_output(plot, "plot", PICTURE_SUFFIXES)
    counts = law.switch_count_pmf(length)
    if plot is not None:
        _draw(plot, law, length, start, counts)
    console = Console(file=sys.stdout, highlight=False)
    console.print(shortened(repr(law)), style="bold", markup=False)
    print_length_law(console, length_law(law, start, _longest_shown(law, length)), start)
    print_count_law(console, counts, length)


def _draw(path: Path, prior: Prior, length: int, start: int, counts: np.ndarray) -> None:
    from switchpoint.figures import prior_figure  # only pictures pay for Matplotlib

    longest = _longest_shown(prior, length)
    starts = [start]
    if isinstance(prior, PTW):  # whose law alone depends on where the segment starts
        midpoints = [2 ** (prior.depth - k) for k in range(1, min(prior.depth, 3) + 1)]
        starts = list(dict.fromkeys([start, 0, *(s for s in midpoints if s < length)]))
    write_picture(
        path,
        prior_figure(
            length_laws={f"start {s}": length_law(prior, s, longest).pmf for s in starts},
            switch_probability=prior.switch_probability(length),
            count_law=counts,
            title=shortened(repr(prior)),
        ),
    )


def _longest_shown(prior: Prior, length: int) -> int:
    """All lengths a segment can have, where that is a table of decent size."""
    longest = prior.max_length
    return longest if longest is not None and longest <= LONGEST_TABLE else length
