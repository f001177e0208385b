"""`switchpoint evaluate`: exact predictors and trained networks on a source, in a table."""

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import typer
import xarray as xr
from rich.table import Table

from switchpoint import _checks, evaluation
from switchpoint._display import show_progress
from switchpoint._text import printable
from switchpoint.cli import check_cost, output
from switchpoint.cli import config_options as options
from switchpoint.cli.networks import Ensemble, load_ensembles
from switchpoint.evaluation.evaluate import Entry
from switchpoint.exact.named import EXACT_NAMES, exact_predictor
from switchpoint.priors import PARAMETER_OWNERS, PRIOR_NAMES, Prior
from switchpoint.sources import Source

_OPTIMUM = "optimum"
_NAMES = ", ".join(EXACT_NAMES)


@options.with_options(*options.PRIOR, *options.SEGMENT)
def evaluate(
    names: list[str] | None = typer.Argument(
        None,
        metavar="PREDICTOR",
        help=f"Any of {_NAMES}, or trained networks: a name from `switchpoint zoo`, the "
        "directory of a run or a .safetensors file, as PATH or NAME=PATH.",
    ),
    on: str = typer.Option("ptw", help=f"The prior of the source: {', '.join(PRIOR_NAMES)}."),
    length: int = options.LENGTH,
    sequences: int = typer.Option(1000, help="The number of sequences."),
    seed: int = options.SEED,
    reference: str = typer.Option(
        _OPTIMUM, help="The predictor whose regret is subtracted to give the excess."
    ),
    out: Path | None = typer.Option(
        None, metavar="FILE", help="Write the regret of every sequence to this file (.nc)."
    ),
    **given: Any,
) -> None:
    """Measure the regret of predictors on a source, in bits.

    The regret of a sequence is its expected code length beyond that of a predictor that knows the
    true distributions. All predictors see the same sequences. `optimum` is the Bayes optimum of the
    source, and always included; `oracle` knows the switching points. Errors are standard errors;
    that of the excess is computed from paired differences. The last column is the code length.
    The options of a prior apply wherever that prior occurs, as the source or as a predictor.

    The networks of a run form one predictor, NAME[prior], for each prior they were trained on.
    Its figures are means over its members; lowest and median refer to the members' excess.
    The exit status is 1 if the regret of a network is not finite.

    For example:

        switchpoint evaluate ptw lin kt runs/lstm --on ptw --sequences 10000
    """
    _checks.one_of("on", on, PRIOR_NAMES)
    output.check_output(out, "out", (".nc",))
    order, ensembles = _load(names or [])
    _checks.one_of("reference", reference, dict.fromkeys([*EXACT_NAMES, *order]))
    order = list(dict.fromkeys([*order, reference, _OPTIMUM]))
    segment = options.segment_model(given)
    most_members = max([1, *(len(each.networks) for each in ensembles.values())])
    check_cost.check_evaluation(len(order) * most_members, length, segment.alphabet, sequences)
    priors = _make_priors({on, *order} & set(PRIOR_NAMES), length, given)
    for each in priors.values():
        check_cost.check_exact(each, length, segment.alphabet)
    source = Source(priors[on], segment)
    wanted: dict[str, Entry] = {
        name: ensembles[name].networks
        if name in ensembles
        else exact_predictor(name, segment, source.prior if name == _OPTIMUM else priors.get(name))
        for name in order
    }
    with show_progress(sys.stderr, lines=False) as progress:
        dataset = evaluation.evaluate(wanted, source, length, sequences, seed, progress=progress)
    dataset.attrs["networks"] = {label: each.about for label, each in ensembles.items()}
    if out is not None:
        evaluation.save(dataset, out)
    screen = output.console()
    screen.print(output.shortened(dataset.attrs["prior"]), style="bold")
    screen.print(_regret_table(dataset, reference), "")
    if ensembles:
        lines = ((label, _describe(each.about)) for label, each in ensembles.items())
        screen.print(output.labelled(lines))
    if out is not None:
        screen.print(f"{printable(str(out))}: the regret of every sequence", soft_wrap=True)
    problems = list(_not_finite(dataset, ensembles))
    for problem in problems:
        print(f"switchpoint: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)


def _load(names: Iterable[str]) -> tuple[list[str], dict[str, Ensemble]]:
    """The names of all predictors in the results, and the trained ones among them."""
    order: list[str] = []
    ensembles: dict[str, Ensemble] = {}
    for name in dict.fromkeys(names):
        loaded = {} if name in EXACT_NAMES else load_ensembles(name)
        for label, ensemble in loaded.items():
            if label in ensembles or label in EXACT_NAMES:
                path = printable(ensemble.about["path"])
                raise ValueError(
                    f"there is more than one predictor {label}, give {path} another name: "
                    f"NAME={path}"
                )
        order += loaded or [name]
        ensembles |= loaded
    return order, ensembles


def _make_priors(names: set[str], length: int, given: Mapping[str, Any]) -> dict[str, Prior]:
    """The priors that the options describe, by name; an option of any other prior is an error."""
    for parameter in options.PRIOR:
        owner, value = PARAMETER_OWNERS[parameter], given[parameter]
        if value is not None and owner not in names:
            raise ValueError(
                f"{parameter} is a parameter of {owner}, which is neither the source nor a "
                f"predictor here, got {value}"
            )
    owned = {
        name: {key: given[key] for key in options.PRIOR if PARAMETER_OWNERS[key] == name}
        for name in sorted(names)
    }
    return {name: options.make_prior(name, length, each) for name, each in owned.items()}


def _regret_table(dataset: xr.Dataset, reference: str) -> Table:
    """Regret, excess over the reference and code length of each predictor.

    The numbers of an ensemble are means over its members on each sequence; if there is an
    ensemble, further columns show how its members differ.
    """
    length, sequences = dataset.sizes["time"], dataset.sizes["sequence"]
    ensembles = dataset.sizes["member"] > 1
    headings = ["regret, bits", "error", f"excess over {reference}", "error", "bits per symbol"]
    if ensembles:
        headings = ["members", *headings[:-1], "lowest", "median", headings[-1]]
    table = output.table(
        f"{sequences:,} sequences of {length:,} symbols, seed {dataset.attrs['seed']}",
        "predictor",
        *headings,
        show_edge=False,
        collapse_padding=True,
    )
    present = dataset["member"] < dataset["members"]
    totals = dataset[["regret", "code_length"]].where(present, 0).sum("member", skipna=False)
    means = (totals / dataset["members"]).expand_dims("member")
    summary = evaluation.summarise(means, reference).isel(member=0)
    each = evaluation.summarise(dataset, reference)["excess"]
    for name in dataset["predictor"].values:
        count = int(dataset["members"].sel(predictor=name))
        excess = each.sel(predictor=name).values[:count]
        row = summary.sel(predictor=name)
        numbers = [row[key] for key in ("regret", "regret_error", "excess", "excess_error")]
        cells = [_number(number) for number in numbers]
        if ensembles:
            spread = [_number(excess.min()), _number(np.median(excess))]
            cells = [str(count), *cells, *(spread if count > 1 else ["", ""])]
        table.add_row(str(name), *cells, f"{float(row['code_length']) / length:.4f}")
    return table


def _number(value: Any) -> str:
    return "-" if math.isnan(value) else f"{float(value):.3f}"


def _describe(about: Mapping[str, Any]) -> str:
    trained = f"trained on {about['trained_on']}, length {about['trained_length']}"
    diverged = f"; diverged in training, left out: {about['diverged']}" if about["diverged"] else ""
    return f"{about['network']}; {trained}{diverged}"


def _not_finite(dataset: xr.Dataset, ensembles: Mapping[str, Ensemble]) -> Iterable[str]:
    """A sentence for each ensemble with members whose regret is NaN or infinite."""
    for label, ensemble in ensembles.items():
        members = ensemble.about["members"]
        regret = dataset["regret"].sel(predictor=label).values[: len(members)]
        finite = np.isfinite(regret).all(-1)
        bad = [str(member) for member, fine in zip(members, finite, strict=True) if not fine]
        if bad:
            yield (
                f"{label}: the regret of {'member' if len(bad) == 1 else 'members'} "
                f"{', '.join(bad)} of {printable(ensemble.about['path'])} is not a finite number"
            )
