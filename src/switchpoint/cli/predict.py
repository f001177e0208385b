"""`switchpoint predict`: the Bayes optimum or a trained network on a file of symbols."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from switchpoint._files import atomic_write
from switchpoint.cli import check_cost, output
from switchpoint.cli import config_options as options
from switchpoint.cli.networks import check_model_options, trained_network
from switchpoint.cli.reader import Layout, SymbolSequence, read_symbols
from switchpoint.cli.sequence_report import analyse
from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.exact.named import fit_geometric
from switchpoint.priors import Geometric, Prior
from switchpoint.sources import Source

_ALPHABET_HELP = "The number of symbols; by default, the number of labels, or 2 for numbers."


@options.with_options(*options.PRIOR, *options.SEGMENT, alphabet=_ALPHABET_HELP)
def predict(
    file: Path = typer.Argument(
        metavar="FILE",
        help="Whole numbers from 0, or labels such as up and down: in a text, a column of a table "
        "(such as .csv, .json, .xlsx or .parquet), or an .npy or .npz file, also compressed; - is "
        "standard input.",
    ),
    prior: str | None = typer.Option(
        None,
        help=f"{options.PRIOR_HELP}; by default, geometric with the hazard of highest evidence.",
    ),
    model: str | None = options.MODEL,
    member: int | None = options.MEMBER,
    form: str | None = typer.Option(
        None,
        "--format",
        metavar="csv|json",
        help="The format of the rows; by default, that of the suffix of --out, or csv.",
    ),
    out: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Write the rows to this file (.csv or .json) instead of printing them.",
    ),
    plot: Path | None = options.PLOT,
    column: str | None = typer.Option(
        None, metavar="COLUMN", help="The column of a table, by name or number from 0."
    ),
    row: int | None = typer.Option(
        None, metavar="NUMBER", help="The sequence, from 0, if the file holds several."
    ),
    labels: str | None = options.LABELS,
    separator: str | None = options.SEPARATOR,
    header: bool | None = options.HEADER,
    sheet: str | None = options.SHEET,
    where: list[str] = options.WHERE,
    **given: Any,
) -> None:
    """Predict a sequence with the exact Bayes optimum, or with a trained network.

    The output has a row for each position t: the symbol or its label, and the probability of each
    symbol before it was seen. The exact optimum adds the probability of a switch at t given the
    symbols up to t (switch_filtered) and given all of them (switch_smoothed); a network, chosen
    with --model, gives no switch probabilities. Without --prior, segment lengths are geometric
    with the hazard of highest evidence. The summary gives the probable numbers of switches, and
    for each switch an interval that contains one with probability 90%.

    For example:

        switchpoint predict bits.txt --prior lin --out rows.csv --plot rows.png
        switchpoint predict bits.txt --model lstm-ptw
        switchpoint predict moves.csv --column move --labels down,up
    """
    form = output.check_result(form, out, plot) or "csv"
    layout = Layout(separator, None, header, sheet, tuple(where))
    check_model_options(model, member, {"prior": prior, **given})
    predictor: Any
    if model is not None:
        predictor, about = trained_network(model, member)
        sequence = read_symbols(file, predictor.alphabet, labels, column, row, layout)
        check_cost.check_network(predictor, len(sequence.symbols))
    else:
        sequence = read_symbols(file, given["alphabet"], labels, column, row, layout)
        predictor, about = _optimum(prior, given, sequence)
    report = analyse(predictor, about, sequence)
    text = report.text(form)
    if out is not None:
        with atomic_write(out) as target:
            target.write(text.encode())
    if plot is not None:
        output.write_picture(plot, report.figure())
    screen = output.console(sys.stderr if out is None else sys.stdout)
    if out is None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the rows has gone, that of the summary has not
            screen.print(report.panel())
            raise
    screen.print(report.panel())


def _optimum(
    name: str | None, given: Mapping[str, Any], sequence: SymbolSequence
) -> tuple[ExactPredictor, dict[str, Any]]:
    """The optimum of the prior that was named, that has an option, or that fits the data best."""
    segment, length = options.segment_model(given, sequence.alphabet), len(sequence.symbols)
    name, fitted = options.prior_name(name, given, None), {}
    if name is None and length <= check_cost.max_quadratic(segment.alphabet):
        check_cost.check_exact(Geometric(0.5), length, segment.alphabet)
        prior: Prior
        prior, bits_by_prior = fit_geometric(segment, sequence.symbols)
        fitted = {
            "hazard": "fitted: the geometric prior of highest evidence",
            "bits_by_prior": bits_by_prior,
            "shortest_code": next(iter(bits_by_prior)),
        }
    else:
        prior = options.make_prior(name or "ptw", length, given)
        check_cost.check_exact(prior, length, segment.alphabet)
    about = {"prior": repr(prior), "segment": repr(segment), **fitted}
    return bayes_optimal(Source(prior, segment)), about
