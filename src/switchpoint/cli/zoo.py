"""`switchpoint zoo` and `switchpoint verify`: the networks of the zoo, and whether they hold."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from switchpoint import _checks
from switchpoint._text import printable
from switchpoint.priors import LIN, PTW, Prior, RandomUniform, RegularPeriodic
from switchpoint.zoo import NAMES, Check, Zoo
from switchpoint.zoo import verify as check
from switchpoint.zoo.scoring import source_of, whole_blocks

Directory = Annotated[
    Path | None,
    typer.Option(
        "--zoo",
        metavar="DIR",
        file_okay=False,
        help="The directory of another zoo than the one that comes with the package.",
    ),
]


def zoo(directory: Directory = None) -> None:
    """Show the trained networks that come with the package.

    Each can be used by its name wherever a trained network can: `sp.load("lstm-ptw")`,
    `switchpoint predict FILE --model lstm-ptw`, `switchpoint evaluate lstm-ptw`. Excess is the
    regret of a whole sequence in bits beyond that of the exact optimum, with its standard error,
    on test sequences of the source that the network was trained on.
    """
    found = _opened(directory)
    console = Console(file=sys.stdout, highlight=False)
    names = found.names()
    table = _table("Networks of the zoo")
    table.add_column("name", no_wrap=True)
    table.add_column("source", overflow="fold")
    for heading in ("parameters", "excess, bits", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in names:
        card = found.card(name)
        test, size = card["test"], found.entries[name].size
        table.add_row(
            Text(name),
            Text(_source(source_of(card).prior)),
            f"{found.parameters(name):,}",
            _with_error(test["excess"], test["excess_error"]),
            f"{size / 2**20:.2f}",
        )
    console.print(table)
    total = sum(found.entries[name].size for name in names)
    console.print(f"{len(names)} of {len(NAMES)} networks, {total / 2**20:.1f} MiB in all")


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Networks of the zoo; all of them if not given."),
    ] = None,
    sequences: Annotated[
        int,
        typer.Option(
            help="How many of the test sequences on its card each network is measured on, a "
            "multiple of 50."
        ),
    ] = 500,
    directory: Directory = None,
) -> None:
    """Measure networks of the zoo on this machine, and compare with the numbers on their cards.

    A network passes if its excess regret differs from the number on its card, for the same
    sequences, by no more than the tolerance there. The exit status is 1 if any fails. With 500
    sequences all twenty take a few minutes on two cores.

    For example:

        switchpoint verify lstm-ptw transformer-lin --sequences 2000
    """
    found = _opened(directory)
    whole_blocks(_checks.positive_int("sequences", sequences))
    wanted = list(dict.fromkeys(names or found.names()))
    for name in wanted:
        if name not in found.entries:
            found.path(name)  # says why not
        _check_sequences(found, name, sequences)
    results = _checked(found, wanted, sequences)
    table = _table(f"Excess regret in bits, on {sequences:,} sequences")
    table.add_column("name", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in ("on its card", "measured here", "difference", "allowed"):
        table.add_column(heading, justify="right", overflow="fold")
    for name, result in results.items():
        table.add_row(Text(name), *_cells(result))
    console = Console(file=sys.stdout, highlight=False)
    console.print(table)
    for each in results.values():
        if isinstance(each, str):
            console.print(printable(each), markup=False, soft_wrap=True)
    failed = [n for n, each in results.items() if _verdict(each) == "fail"]
    if failed:
        console.print(f"{len(failed)} of {len(results)} failed: {', '.join(failed)}", markup=False)
        raise typer.Exit(1)
    console.print(f"all {len(results)} passed" if len(results) > 1 else "passed")


def _opened(directory: Path | None) -> Zoo:
    """The zoo in a directory, which must hold one."""
    found = Zoo(directory)
    if not found.names():
        shown = printable(str(found.directory))
        if not found.directory.is_dir():
            raise ValueError(f"{shown} is not a directory: no zoo can be there")
        raise ValueError(f"{shown} holds no zoo: it has no manifest.json that lists networks")
    return found


def _check_sequences(found: Zoo, name: str, sequences: int) -> None:
    """Raise a `ValueError` where a network was tested on fewer sequences than are asked for."""
    try:
        tested = found.card(name)["test"]["sequences"]
    except ValueError:
        return  # a damaged file is a network that fails, beside others that may pass
    if sequences > tested:
        raise ValueError(
            f"sequences must be at most {tested}, which is how many {name} was tested on, "
            f"got {sequences}"
        )


def _source(prior: Prior) -> str:
    """A prior as the paper writes it."""
    match prior:
        case PTW():
            return f"PTW_{prior.depth}"
        case RegularPeriodic():
            return f"Regular({prior.period})"
        case RandomUniform():
            return f"Random Uniform({prior.max_length})"
    return "LIN" if isinstance(prior, LIN) else repr(prior)


def _checked(found: Zoo, names: list[str], sequences: int) -> dict[str, Check | str]:
    """The check of each network, or why it could not be measured; with progress."""
    console = Console(file=sys.stderr)
    results: dict[str, Check | str] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        every = bars.add_task("networks", total=len(names))
        one = bars.add_task("", total=sequences)
        for name in names:
            bars.reset(one, description=name)
            try:
                results[name] = check(found, name, sequences, _teller(bars, one))
            except ValueError as error:
                results[name] = str(error)
            bars.advance(every)
            if not console.is_terminal:
                print(f"{name}: {_verdict(results[name])}", file=sys.stderr, flush=True)
    return results


def _teller(bars: Progress, task: TaskID) -> Any:
    return lambda done, _: bars.update(task, completed=done)


def _cells(result: Check | str) -> tuple[Any, ...]:
    if isinstance(result, str):
        return Text("fail", "red"), "-", "-", "-", "-"
    return (
        Text(_verdict(result), "green" if result.passed else "red"),
        f"{result.claimed:.4f}",
        f"{result.measured:.4f}",
        f"{result.measured - result.claimed:+.4f}",
        f"{result.allowed:.4f}",
    )


def _verdict(result: Check | str) -> str:
    return "pass" if isinstance(result, Check) and result.passed else "fail"


def _with_error(value: float, error: float) -> str:
    return f"{value:.4f} ± {error:.4f}"


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="cyan", box=box.SIMPLE_HEAD, pad_edge=False
    )
