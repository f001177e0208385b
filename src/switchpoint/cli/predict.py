"""`switchpoint predict`: the Bayes optimum or a trained network on a file of symbols."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from switchpoint._files import replacing
from switchpoint.cli import options
from switchpoint.cli.analysis import Analysis, analyse
from switchpoint.cli.check_cost import check_alphabet, check_exact, check_network
from switchpoint.cli.files import check_output
from switchpoint.cli.pictures import PICTURE_SUFFIXES, write_picture
from switchpoint.cli.reading import read_symbols
from switchpoint.cli.rows import FORMATS
from switchpoint.cli.subjects import optimum_of, trained_network
from switchpoint.cli.summary import print_summary, shortened
from switchpoint.segments import segment_of
from switchpoint.sources import Source

_LONGEST_TITLE = 115


def predict(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Symbols as text, in a column of a .csv or .tsv table, in an .npy or an .npz "
            "file; - is standard input.",
        ),
    ],
    prior: options.PriorNameIfGiven = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            help="A trained network to predict with, instead of a prior's optimum: a name that "
            "`switchpoint zoo` lists, the directory of a run or a .safetensors file.",
        ),
    ] = None,
    member: Annotated[
        int | None,
        typer.Option(help="Which network of --model, from 0; the best if not given."),
    ] = None,
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
    alphabet: options.AlphabetIfGiven = None,
    alpha: options.Alpha = None,
    beta: options.Beta = None,
    concentration: options.Concentration = None,
) -> None:
    """Predict a sequence with the exact Bayes optimum, or with a trained network.

    There is a row for each position t: the symbol and the probability of each symbol before it
    was seen. The optimum adds the probability of a switch at t given the symbols up to t
    (switch_filtered) and given all of them (switch_smoothed); a network, chosen with --model,
    says nothing about switches.

    For example:

        switchpoint predict bits.txt --prior lin --out rows.csv --plot rows.png
        switchpoint predict bits.txt --model lstm-ptw
    """
    write_as = _format(form, out)
    law: dict[str, Any] = {
        "depth": depth,
        "split": split,
        "period": period,
        "longest": longest,
        "hazard": hazard,
        "pmf": pmf,
    }
    parameters = {"alpha": alpha, "beta": beta, "concentration": concentration}
    if model is not None:
        _refuse_options({"prior": prior, **law, "alphabet": alphabet, **parameters})
        subject = trained_network(model, member)
        symbols = read_symbols(file, subject.predictor.alphabet, column, row)
        check_network(subject.predictor, len(symbols))
    elif member is not None:
        raise ValueError(f"member is for the networks of --model, got {member} without it")
    else:
        check_alphabet(2 if alphabet is None else alphabet)
        segment = segment_of(2 if alphabet is None else alphabet, **parameters)
        symbols = read_symbols(file, segment.alphabet, column, row)
        name = "ptw" if prior is None else prior
        believed = options.prior_of_options(name, len(symbols), **law)
        check_exact(believed, len(symbols), segment.alphabet)
        subject = optimum_of(Source(believed, segment))
    check_output(out, "out", ())
    check_output(plot, "plot", PICTURE_SUFFIXES)
    analysis = analyse(subject, symbols)
    if out is not None:
        with replacing(out) as target:
            target.writelines(line.encode() for line in FORMATS[write_as](analysis))
    if plot is not None:
        _draw(plot, analysis)
    stream = sys.stderr if out is None else sys.stdout
    console = Console(file=stream, highlight=False)
    if out is None:
        try:
            sys.stdout.writelines(FORMATS[write_as](analysis))
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the rows has gone, that of the summary has not
            print_summary(console, analysis)
            raise
    print_summary(console, analysis)


def _refuse_options(given: Mapping[str, Any]) -> None:
    """Raise a `ValueError` where an option was given that a trained network has no use for."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} cannot be given with --model: a trained network has an alphabet of its "
                f"own and takes no prior, got {value}"
            )


def _format(form: str | None, out: Path | None) -> str:
    if form is None:
        return "json" if out is not None and out.suffix.lower() == ".json" else "csv"
    if form not in FORMATS:
        raise ValueError(f"format must be {' or '.join(FORMATS)}, got {form!r}")
    return form


def _draw(path: Path, analysis: Analysis) -> None:
    from switchpoint.figures import prediction_figure  # only pictures pay for Matplotlib

    switching = analysis.switching
    write_picture(
        path,
        prediction_figure(
            symbols=analysis.symbols,
            probs=analysis.probs,
            probs_smoothed=None if switching is None else switching.probs_smoothed,
            switch_smoothed=None if switching is None else switching.smoothed,
            map_switches=None if switching is None else switching.best,
            title=shortened(analysis.subject.title, _LONGEST_TITLE),
        ),
    )
