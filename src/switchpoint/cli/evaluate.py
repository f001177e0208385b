"""`switchpoint evaluate`: exact predictors and trained networks on a source, in a table."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import xarray as xr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from switchpoint import evaluation
from switchpoint._text import printable
from switchpoint.cli.check_cost import check_evaluation, check_exact
from switchpoint.cli.config_options import PRIOR, SEGMENT, prior_of, segment_model, with_options
from switchpoint.cli.ensembles import Ensemble, ensembles_of, split_label
from switchpoint.cli.files import check_output
from switchpoint.cli.regret_table import print_regrets
from switchpoint.evaluation.evaluate import Entry
from switchpoint.exact import KT, KTOracle, bayes_optimal
from switchpoint.priors import PARAMETER_OWNERS, PRIOR_NAMES, Prior
from switchpoint.sources import Source
from switchpoint.zoo import near_names

_OPTIMUM = "optimum"
_NAMES = (*PRIOR_NAMES, "kt", "oracle", _OPTIMUM)


@with_options(*PRIOR, *SEGMENT)
def evaluate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PREDICTOR",
            help=f"Any of {', '.join(_NAMES)}, or trained networks: a name that `switchpoint zoo` "
            "lists, the directory of a run or a .safetensors file, as PATH or NAME=PATH.",
        ),
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
    **given: Any,
) -> None:
    """Measure how many bits predictors lose on a source, and which of them lose more.

    The regret of a sequence is what it costs beyond knowing the true distributions. All
    predictors see the same sequences; `optimum` is the Bayes optimum of the source and always
    among them, `oracle` is told the switching points. Errors are standard errors, that of the
    excess from the differences on each sequence; bits per symbol are the code length. Prior
    options hold wherever that prior occurs, as the source or as a predictor's.

    Networks of a run are one predictor for each prior that they were trained on, `NAME[prior]`.
    Its numbers are the means of its members; lowest and median are of the members' excess. The
    exit status is 1 where the regret of a network is not a finite number.

    For example:

        switchpoint evaluate ptw lin kt runs/lstm --on ptw --sequences 10000
    """
    if on not in PRIOR_NAMES:
        raise ValueError(f"on must be one of {', '.join(PRIOR_NAMES)}, got {on!r}")
    check_output(out, "out", (".nc",))
    rows = _rows(names or [])
    if reference not in rows and reference not in _NAMES:
        raise ValueError(f"predictor must be one of {_listed(rows)}, got {reference!r}")
    for name in (reference, _OPTIMUM):
        rows.setdefault(name, None)
    segment = segment_model(given)
    exact = [name for name, ensemble in rows.items() if ensemble is None]
    check_evaluation(_count(rows), length, segment.alphabet, sequences)
    priors = _priors({on, *exact} - {"kt", "oracle", _OPTIMUM}, length, given)
    for each in priors.values():
        check_exact(each, length, segment.alphabet)
    source = Source(priors[on], segment)
    predictors = {
        name: _exact(name, source, priors) if ensemble is None else ensemble.networks
        for name, ensemble in rows.items()
    }
    dataset = _evaluated(predictors, source, length, sequences, seed)
    ensembles = [ensemble for ensemble in rows.values() if ensemble is not None]
    dataset.attrs["networks"] = {each.label: each.fields() for each in ensembles}
    if out is not None:
        evaluation.save(dataset, out)
    console = Console(file=sys.stdout, highlight=False)
    print_regrets(console, dataset, reference)
    _print_networks(console, ensembles)
    if out is not None:
        shown = printable(str(out))
        console.print(f"{shown}: the regret of every sequence", markup=False, soft_wrap=True)
    problems = _not_finite(dataset, ensembles)
    for problem in problems:
        print(f"switchpoint: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)


def _rows(names: Iterable[str]) -> dict[str, Ensemble | None]:
    """The predictors by the names they have in the results; exact ones are None here."""
    rows: dict[str, Ensemble | None] = {}
    for name in dict.fromkeys(names):
        if name in _NAMES:
            rows[name] = None
            continue
        label, path = split_label(name)
        if not Path(path).exists():
            meant = near_names(path)
            raise ValueError(
                f"predictor must be one of {_listed()}, a name of the zoo or the path of trained "
                f"networks, got {name!r}{f'; {meant}' if meant else ''}"
            )
        for ensemble in ensembles_of(label, path):
            if ensemble.label in rows or ensemble.label in _NAMES:
                raise ValueError(
                    f"there is more than one predictor {ensemble.label}, give {printable(path)} "
                    f"another name: NAME={printable(path)}"
                )
            rows[ensemble.label] = ensemble
    return rows


def _count(rows: dict[str, Ensemble | None]) -> int:
    """How many predictors there are, each with a place for as many members as any has."""
    return len(rows) * max(1 if each is None else len(each.networks) for each in rows.values())


def _listed(more: Iterable[str] = ()) -> str:
    return ", ".join(dict.fromkeys([*_NAMES, *more]))


def _print_networks(console: Console, ensembles: list[Ensemble]) -> None:
    """Print what each ensemble is made of."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    for each in ensembles:
        table.add_row(Text(each.label), Text(each.describe()))
    if ensembles:
        console.print(table)


def _not_finite(dataset: xr.Dataset, ensembles: Iterable[Ensemble]) -> list[str]:
    """A sentence for each ensemble with members whose regret is NaN or infinite."""
    problems = []
    for each in ensembles:
        regret = dataset["regret"].sel(predictor=each.label).values
        bad = [
            m for m, row in zip(each.members, regret, strict=False) if not np.isfinite(row).all()
        ]
        if bad:
            problems.append(
                f"{each.label}: the regret of {'member' if len(bad) == 1 else 'members'} "
                f"{', '.join(map(str, bad))} of {printable(each.path)} is not a finite number"
            )
    return problems


def _priors(names: set[str], length: int, given: dict[str, Any]) -> dict[str, Prior]:
    """The priors that the options describe, by name; no option may be left over."""
    for parameter in PRIOR:
        owner, value = PARAMETER_OWNERS[parameter], given[parameter]
        if value is not None and owner not in names:
            raise ValueError(
                f"{parameter} is a parameter of {owner}, which is neither the source nor a "
                f"predictor here, got {value}"
            )
    return {
        name: prior_of(
            name,
            length,
            {key: given[key] if PARAMETER_OWNERS[key] == name else None for key in PRIOR},
        )
        for name in sorted(names)
    }


def _exact(name: str, source: Source, priors: dict[str, Prior]) -> Entry:
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
