"""`switchpoint predict`: the Bayes optimum or a trained network on a file of symbols."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Int
from rich.console import Console

from switchpoint._files import atomic_write
from switchpoint._text import printable
from switchpoint.cli import options
from switchpoint.cli.analysis import Analysis, analyse
from switchpoint.cli.check_cost import check_exact, check_network, max_quadratic
from switchpoint.cli.config_options import PRIOR, SEGMENT, prior_of, segment_model, with_options
from switchpoint.cli.files import check_output
from switchpoint.cli.pictures import PICTURE_SUFFIXES, write_picture
from switchpoint.cli.preferred_prior import preferred_prior
from switchpoint.cli.sequence_io import FORMATS, SymbolSequence, read_symbols
from switchpoint.cli.subjects import Subject, optimum_of, trained_network
from switchpoint.cli.summary import print_summary, shortened
from switchpoint.priors import PARAMETER_OWNERS, Geometric
from switchpoint.segments import Segment
from switchpoint.sources import Source

_LONGEST_TITLE = 115
_LONGEST_LABEL = 20


@with_options(*PRIOR, *SEGMENT)
def predict(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Whole numbers from 0, or labels such as up and down: as text, in a column of a "
            ".csv or .tsv table, in an .npy or an .npz file; - is standard input.",
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
        typer.Option("--format", help="csv or json; by the ending of --out if not given, or csv."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the rows there (.csv or .json) instead of printing them."
        ),
    ] = None,
    plot: options.Plot = None,
    column: Annotated[
        str | None, typer.Option(help="The table's column, by its name or number from 0.")
    ] = None,
    row: Annotated[
        int | None, typer.Option(help="Which sequence, from 0, where the file holds several.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,LABEL,...",
            help="The labels that stand for the symbols 0, 1 and so on. Without it, labels are "
            "numbered in the order of their appearance, but False is 0 and True is 1.",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Predict a sequence with the exact Bayes optimum, or with a trained network.

    There is a row for each position t: the symbol, or its label, and the probability of each
    symbol before it was seen. The optimum adds the probability of a switch at t given the
    symbols up to t (switch_filtered) and given all of them (switch_smoothed); a network, chosen
    with --model, says nothing about switches. Without --prior, segment lengths are geometric with
    the hazard that the data prefer. A summary tells how many switches there were, and for each
    of them an interval that has one with probability 90%.

    For example:

        switchpoint predict bits.txt --prior lin --out rows.csv --plot rows.png
        switchpoint predict bits.txt --model lstm-ptw
        switchpoint predict moves.csv --column move --labels down,up
    """
    write_as = _format(form, out)
    check_output(out, "out", () if form is not None else tuple(f".{each}" for each in FORMATS))
    check_output(plot, "plot", PICTURE_SUFFIXES)
    if model is not None:
        _refuse_options({"prior": prior, **given})
        subject = trained_network(model, member)
        read = read_symbols(file, subject.predictor.alphabet, labels, column, row)
        check_network(subject.predictor, len(read.symbols))
    elif member is not None:
        raise ValueError(f"--member is for the networks of --model, got {member} without it")
    else:
        read = read_symbols(file, given["alphabet"], labels, column, row)
        subject = _optimum(prior, given, segment_model(given, read.alphabet), read.symbols)
    analysis = analyse(_with_labels(subject, read), read.symbols)
    lines = FORMATS[write_as](analysis, read.labels)
    if out is not None:
        with atomic_write(out) as target:
            target.writelines(line.encode() for line in lines)
    if plot is not None:
        _draw(plot, analysis, read.labels)
    stream = sys.stderr if out is None else sys.stdout
    console = Console(file=stream, highlight=False)
    if out is None:
        try:
            _print_lines(lines)
        except BrokenPipeError:  # the reader of the rows has gone, that of the summary has not
            print_summary(console, analysis)
            raise
    print_summary(console, analysis)


def _optimum(
    prior: str | None, given: Mapping[str, Any], segment: Segment, symbols: Int[np.ndarray, " time"]
) -> Subject:
    """The optimum of the prior that was named, or that has an option, or that the data prefer."""
    owners = [PARAMETER_OWNERS[name] for name in PRIOR if given[name] is not None]
    name = next(iter(owners), None) if prior is None else prior
    if name is not None or len(symbols) > max_quadratic(segment.alphabet):
        believed = prior_of(name or "ptw", len(symbols), given)
        check_exact(believed, len(symbols), segment.alphabet)
        return optimum_of(Source(believed, segment))
    check_exact(Geometric(0.5), len(symbols), segment.alphabet)
    found = preferred_prior(segment, symbols)
    compared = ", ".join(f"{name} {bits:.1f}" for name, bits in found.bits.items())
    subject = optimum_of(Source(found.prior, segment))
    return replace(
        subject,
        lines={
            "prior": f"{found.prior!r}, the hazard that the data prefer",
            "bits": f"{compared}; {next(iter(found.bits))} is best",
        },
        fields={**subject.fields, "bits_by_prior": dict(found.bits)},
    )


def _with_labels(subject: Subject, read: SymbolSequence) -> Subject:
    """The subject with what a reader is told of the labels, if there are any."""
    if not read.labels:
        return subject
    shown = ", ".join(f"{label} = {symbol}" for symbol, label in enumerate(read.labels))
    return replace(
        subject,
        lines={"labels": shown, **subject.lines},
        fields={"labels": read.labels, **subject.fields},
    )


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


def _print_lines(lines: Iterable[str]) -> None:
    try:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"standard output cannot be written ({reason})") from error


def _draw(path: Path, analysis: Analysis, labels: Sequence[str]) -> None:
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
            labels=[shortened(printable(label), _LONGEST_LABEL) for label in labels],
        ),
    )
