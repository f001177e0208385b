"""`switchpoint evaluate`: exact predictors on a source, in a table."""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import xarray as xr
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from switchpoint import evaluation
from switchpoint.cli import options
from switchpoint.cli.files import check_output
from switchpoint.cli.summary import shortened
from switchpoint.evaluation.members import Entry
from switchpoint.exact import KT, KTOracle, bayes_optimal
from switchpoint.priors import PARAMETER_OWNERS, PRIOR_NAMES, Prior
from switchpoint.sources import Source

_OPTIMUM = "optimum"
_NAMES = (*PRIOR_NAMES, "kt", "oracle", _OPTIMUM)


def evaluate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PREDICTOR", help=f"Any of {', '.join(_NAMES)}."),
    ] = None,
    on: Annotated[
        str, typer.Option(help=f"The source's law of segment lengths: {', '.join(PRIOR_NAMES)}.")
    ] = "ptw",
    length: Annotated[int, typer.Option(help="How many symbols each sequence has.")] = 256,
    sequences: Annotated[int, typer.Option(help="How many sequences.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sequences.")] = 0,
    reference: Annotated[
        str, typer.Option(help="The predictor that the excess is measured from.")
    ] = _OPTIMUM,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the regret of every sequence there (.nc)."),
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
    """Measure how many bits exact predictors lose on a source, and which of them lose more.

    The regret of a sequence is what it costs beyond knowing the true distributions. All
    predictors see the same sequences; `optimum` is the Bayes optimum of the source and always
    among them, `oracle` is told the switching points. Errors are standard errors, that of the
    excess from the differences on each sequence; bits/symbol is the code length. Prior
    options hold wherever that prior occurs, as the source or as a predictor's.

    For example:

        switchpoint evaluate ptw lin kt oracle --on ptw --sequences 10000
    """
    wanted = list(dict.fromkeys([*(names or []), reference, _OPTIMUM]))
    for name in wanted:
        if name not in _NAMES:
            raise ValueError(f"predictor must be one of {', '.join(_NAMES)}, got {name!r}")
    if on not in PRIOR_NAMES:
        raise ValueError(f"on must be one of {', '.join(PRIOR_NAMES)}, got {on!r}")
    given = {
        "depth": depth,
        "split": split,
        "period": period,
        "longest": longest,
        "hazard": hazard,
        "pmf": pmf,
    }
    priors = _priors({on, *wanted} - {"kt", "oracle", _OPTIMUM}, length, given)
    source = Source(priors[on], options.segment_of_options(alphabet, alpha, beta, concentration))
    check_output(out, "out", (".nc",))
    dataset = _evaluated(
        {name: _predictor(name, source, priors) for name in wanted}, source, length, sequences, seed
    )
    if out is not None:
        evaluation.save(dataset, out)
    console = Console(file=sys.stdout, highlight=False)
    _print_table(console, dataset, reference)
    if out is not None:
        console.print(f"{out}: the regret of every sequence", markup=False, soft_wrap=True)


def _priors(names: set[str], length: int, given: dict[str, Any]) -> dict[str, Prior]:
    """The priors that the options describe, by name; no option may be left over."""
    for parameter, value in given.items():
        if value is not None and PARAMETER_OWNERS[parameter] not in names:
            raise ValueError(
                f"{parameter} is a parameter of {PARAMETER_OWNERS[parameter]}, which is neither "
                f"the source nor a predictor here, got {value}"
            )
    priors = {}
    for name in sorted(names):
        own = {key: value for key, value in given.items() if PARAMETER_OWNERS[key] == name}
        pmf = own.pop("pmf", None)
        priors[name] = options.prior_of_options(name, length, pmf, **own)
    return priors


def _predictor(name: str, source: Source, priors: dict[str, Prior]) -> Entry:
    if name == "oracle":
        return KTOracle
    if name == "kt":
        return KT(source.segment)
    if name == _OPTIMUM:
        return bayes_optimal(source)
    return bayes_optimal(Source(priors[name], source.segment))


def _evaluated(
    predictors: dict[str, Entry], source: Source, length: int, sequences: int, seed: int
) -> xr.Dataset:
    """The evaluation, with its progress on a terminal."""
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("sequences", total=sequences)
        return evaluation.evaluate(
            predictors,
            source,
            length,
            sequences,
            seed,
            progress=lambda done, _: bar.update(task, completed=done),
        )


def _print_table(console: Console, dataset: xr.Dataset, reference: str) -> None:
    length, sequences = dataset.sizes["time"], dataset.sizes["sequence"]
    console.print(shortened(dataset.attrs["prior"]), style="bold", markup=False)
    table = Table(
        title=f"{sequences:,} sequences of {length:,} symbols, seed {dataset.attrs['seed']}",
        title_justify="left",
        title_style="cyan",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("predictor")
    headings = ("regret, bits", "error", f"excess over {reference}", "error", "bits/symbol")
    for heading in headings:
        table.add_column(heading, justify="right")
    summary = evaluation.summarise(dataset, reference).isel(member=0)
    for name in summary["predictor"].values:
        row = summary.sel(predictor=name)
        table.add_row(
            Text(str(name)),
            _number(row["regret"]),
            _number(row["regret_error"]),
            _number(row["excess"]),
            _number(row["excess_error"]),
            f"{float(row['code_length']) / length:.4f}",
        )
    console.print(table)


def _number(value: xr.DataArray) -> str:
    number = float(value)
    return "-" if math.isnan(number) else f"{number:.3f}"
