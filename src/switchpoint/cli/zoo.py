"""`switchpoint zoo` and `switchpoint verify`: the networks of the zoo, and a check of each."""

import re
import sys
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from switchpoint import _checks, neural
from switchpoint._display import show_progress
from switchpoint._progress import Part
from switchpoint._text import printable
from switchpoint.cli import output
from switchpoint.training import use_all_cores
from switchpoint.zoo import NAMES, Zoo
from switchpoint.zoo import verify as check
from switchpoint.zoo.scoring import trained_source, whole_blocks

_DIRECTORY: Any = typer.Option(
    None,
    "--zoo",
    metavar="DIR",
    file_okay=False,
    help="The directory of a zoo other than the one that comes with the package.",
)


def zoo(directory: Path | None = _DIRECTORY) -> None:
    """List the trained networks that come with the package.

    Each can be used by its name wherever a trained network can: `sp.load("lstm-ptw")`,
    `switchpoint predict FILE --model lstm-ptw`, `switchpoint evaluate lstm-ptw`. The excess is
    the regret of a whole sequence above that of the exact optimum, in bits, with its standard
    error, on test sequences of the network's training source.
    """
    networks = _open(directory)
    headings = ("name", "prior", "weights", "excess, bits", "MiB")
    table = output.table("Networks of the zoo", *headings, texts=2)
    for name in networks.names():
        card = networks.card(name)
        excess = f"{card['test']['excess']:.4f} ± {card['test']['excess_error']:.4f}"
        size = f"{networks.file(name).stat().st_size / 2**20:.2f}"
        prior = re.sub(r"\w+=", "", repr(trained_source(card).prior))  # fits into 80 columns
        table.add_row(
            name, prior, f"{neural.count_parameters(networks.path(name)):,}", excess, size
        )
    output.console().print(table)
    total = f"{networks.size() / 2**20:.1f} MiB in all"
    output.console().print(f"{len(networks.names())} of {len(NAMES)} networks, {total}")


def verify(
    names: list[str] | None = typer.Argument(
        None, metavar="NAME", help="Networks of the zoo; by default, all of them."
    ),
    sequences: int = typer.Option(
        500,
        help="The number of the card's test sequences to measure a network on, a multiple of 50.",
    ),
    directory: Path | None = _DIRECTORY,
) -> None:
    """Measure networks of the zoo on this machine, and compare with the figures on their cards.

    A network passes if its excess regret differs from that on its card, for the same sequences,
    by no more than the tolerance on the card. The exit status is 1 if any network fails. With 500
    sequences all twenty take about a minute on two cores.

    For example:

        switchpoint verify lstm-ptw transformer-lin --sequences 2000
    """
    networks = _open(directory)
    whole_blocks(_checks.positive_int("sequences", sequences))
    wanted = list(dict.fromkeys(names or networks.names()))
    for name in wanted:
        _check_request(networks, name, sequences)
    use_all_cores()
    headings = ("name", "", "on its card", "measured here", "difference", "allowed")
    table = output.table(f"Excess regret in bits, on {sequences:,} sequences", *headings, texts=2)
    failed, problems = [], []
    with show_progress(sys.stderr, lines=False) as progress:
        for number, name in enumerate(wanted):
            part = Part(progress, number / len(wanted), 1 / len(wanted), f"{name}: ")
            numbers, verdict = ["-"] * 4, "fail"
            try:
                result = check(networks, name, sequences, part)
                verdict = "pass" if result.passed else "fail"
                numbers = [f"{result.claimed:.4f}", f"{result.measured:.4f}"]
                numbers += [f"{result.measured - result.claimed:+.4f}", f"{result.allowed:.4f}"]
            except ValueError as error:
                problems.append(printable(str(error)))
            failed += [name] if verdict == "fail" else []
            table.add_row(name, Text(verdict, "green" if verdict == "pass" else "red"), *numbers)
            if not sys.stderr.isatty():
                print(f"{name}: {verdict}", file=sys.stderr, flush=True)
    screen = output.console()
    screen.print(table)
    for problem in problems:
        screen.print(problem, soft_wrap=True)
    if failed:
        screen.print(f"{len(failed)} of {len(wanted)} failed: {', '.join(failed)}")
        raise typer.Exit(1)
    screen.print(f"all {len(wanted)} passed" if len(wanted) > 1 else "passed")


def _open(directory: Path | None) -> Zoo:
    """The zoo in a directory, which must hold one."""
    networks = Zoo(directory)
    if not networks.names():
        shown, exists = printable(str(networks.directory)), networks.directory.is_dir()
        problem = (
            f"holds no {NAMES[0]}.safetensors or other network" if exists else "is no directory"
        )
        raise ValueError(f"{shown} {problem}, so it is not a zoo")
    return networks


def _check_request(networks: Zoo, name: str, sequences: int) -> None:
    """Raise a `ValueError` for an unknown network, or one tested on fewer sequences."""
    networks.path(name)  # raises a `ValueError` if there is none
    try:
        tested = networks.card(name)["test"]["sequences"]
    except ValueError:
        return  # a damaged file is a network that fails, among others that may pass
    if sequences > tested:
        raise ValueError(
            f"sequences must be at most {tested}, the number that {name} was tested on, "
            f"got {sequences}"
        )
