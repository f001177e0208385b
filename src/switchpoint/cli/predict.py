"""`switchpoint predict`: the Bayes optimum on a file of symbols."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from switchpoint._files import replacing
from switchpoint.cli import options
from switchpoint.cli.analysis import Analysis, analyse, check_work
from switchpoint.cli.files import check_output
from switchpoint.cli.pictures import PICTURE_SUFFIXES, write_picture
from switchpoint.cli.reading import read_symbols
from switchpoint.cli.rows import FORMATS
from switchpoint.cli.summary import print_summary, shortened
from switchpoint.sources import Source


def predict(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Symbols as text, in a column of a .csv or .tsv table, in an .npy or an .npz "
            "file; - is standard input.",
        ),
    ],
    prior: options.PriorName = "ptw",
    form: Annotated[
        str | None,
        typer.Option("--format", help="csv or json; by the ending of --out, or csv, if not given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the rows there instead of printing them."),
    ] = None,
    plot: options.Plot = None,
    column: Annotated[
        str | None, typer.Option(help="The table's column, by its name or number from 0.")
    ] = None,
    row: Annotated[
        int | None, typer.Option(help="Which sequence, from 0, where the file holds several.")
    ] = None,
    depth: options.Depth = None,
    split: options.Split = None,
    period: options.Period = None,
    longest: options.Longest = None,
    hazard: options.Hazard = None,
    pmf: options.Pmf = None,
    alphabet: options.Alphabet = 2,
    alpha: options.Alpha = None,
    beta: options.Beta = None,
    concentration: options.Concentration = None,
) -> None:
    """Predict a sequence with the exact Bayes optimum, and find its switching points.

    There is a row for each position t: the symbol, the probability of each symbol before it
    was seen, and the probability of a switch at t given the symbols up to t
    (switch_filtered) and given all of them (switch_smoothed).

    For example:

        switchpoint predict bits.txt --prior lin --out rows.csv --plot rows.png
    """
    segment = options.segment_of_options(alphabet, alpha, beta, concentration)
    write_as = _format(form, out)
    symbols = read_symbols(file, alphabet, column, row)
    law = options.prior_of_options(
        prior,
        len(symbols),
        pmf,
        depth=depth,
        split=split,
        period=period,
        longest=longest,
        hazard=hazard,
    )
    check_work(law, len(symbols))
    check_output(out, "out", ())
    check_output(plot, "plot", PICTURE_SUFFIXES)
    analysis = analyse(Source(law, segment), symbols)
    if out is not None:
        with replacing(out) as target:
            target.writelines(line.encode() for line in FORMATS[write_as](analysis))
    if plot is not None:
        _draw(plot, analysis)
    if out is None:
        sys.stdout.writelines(FORMATS[write_as](analysis))
        sys.stdout.flush()
    stream = sys.stderr if out is None else sys.stdout
    print_summary(Console(file=stream, highlight=False), analysis)


def _format(form: str | None, out: Path | None) -> str:
    if form is None:
        return "json" if out is not None and out.suffix.lower() == ".json" else "csv"
    if form not in FORMATS:
        raise ValueError(f"format must be {' or '.join(FORMATS)}, got {form!r}")
    return form


def _draw(path: Path, analysis: Analysis) -> None:
    from switchpoint.figures import prediction_figure  # only pictures pay for Matplotlib

    write_picture(
        path,
        prediction_figure(
            symbols=analysis.symbols,
            probs=analysis.probs,
            probs_smoothed=analysis.probs_smoothed,
            switch_smoothed=analysis.switch_smoothed,
            map_switches=analysis.map_switches,
            title=shortened(repr(analysis.source.prior)),
        ),
    )
