"""The options that commands share, and the prior they describe."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from switchpoint import _checks
from switchpoint._text import name_of, read_text
from switchpoint.cli.check_cost import check_depth
from switchpoint.cli.sequence_io import parse_number
from switchpoint.priors import Prior, prior_from_name

_PRIOR = "Prior options"
_SEGMENT = "Segment options"

_PRIOR_HELP = "The law of segment lengths: ptw, lin, regular, uniform, geometric or renewal"
_ALPHABET_HELP = "How many symbols there are"

PriorName = Annotated[str, typer.Option("--prior", help=f"{_PRIOR_HELP}.", rich_help_panel=_PRIOR)]
PriorNameIfGiven = Annotated[
    str | None,
    typer.Option(
        "--prior",
        help=f"{_PRIOR_HELP}; if not given, the geometric that the data prefer.",
        rich_help_panel=_PRIOR,
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        help="ptw: the depth of its tree; sequences are at most 2^depth long. "
        "Without it, the smallest that fits.",
        rich_help_panel=_PRIOR,
    ),
]
Split = Annotated[
    float | None,
    typer.Option(
        help="ptw: the probability that a node splits; 0.5 if not given.", rich_help_panel=_PRIOR
    ),
]
Period = Annotated[
    int | None,
    typer.Option(help="regular: the length of every segment.", rich_help_panel=_PRIOR),
]
Longest = Annotated[
    int | None,
    typer.Option(
        help="uniform: the longest segment; the length of the sequence if not given.",
        rich_help_panel=_PRIOR,
    ),
]
Hazard = Annotated[
    float | None,
    typer.Option(
        help="geometric: the probability that a segment ends after a symbol.",
        rich_help_panel=_PRIOR,
    ),
]
Pmf = Annotated[
    Path | None,
    typer.Option(
        help="renewal: a text file of numbers, P(L=1), P(L=2), and so on.",
        metavar="FILE",
        rich_help_panel=_PRIOR,
    ),
]
Alphabet = Annotated[int, typer.Option(help=f"{_ALPHABET_HELP}.", rich_help_panel=_SEGMENT)]
AlphabetIfGiven = Annotated[
    int | None,
    typer.Option(
        help=f"{_ALPHABET_HELP}; if not given, 2, or as many as there are labels.",
        rich_help_panel=_SEGMENT,
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="Alphabet of 2: P(1) of a segment is drawn from Beta(alpha, beta); 0.5 if not given.",
        rich_help_panel=_SEGMENT,
    ),
]
Beta = Annotated[
    float | None,
    typer.Option(help="Alphabet of 2: see --alpha; 0.5 if not given.", rich_help_panel=_SEGMENT),
]
Concentration = Annotated[
    float | None,
    typer.Option(
        help="Larger alphabets: the parameter of the symmetric Dirichlet law that a segment's "
        "distribution is drawn from; 0.5 if not given.",
        rich_help_panel=_SEGMENT,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a picture there (.png, .pdf or .svg)."),
]


def prior_of_options(name: str, length: int, pmf: Path | None, **parameters: Any) -> Prior:
    """The prior that the options describe, for sequences of `length`."""
    check_depth(parameters.get("depth"))
    # Where the prior takes no pmf, the refusal names the file rather than what it holds.
    law = pmf_numbers(pmf) if pmf is not None and name == "renewal" else pmf
    return prior_from_name(name, length, pmf=law, **parameters)


def pmf_numbers(path: Path) -> tuple[float, ...]:
    """The probabilities P(L=1), P(L=2), ... in a text file, exactly as written there."""
    numbers = []
    for token in filter(None, re.split(r"[\s,;]+", read_text(path))):
        number = parse_number(token)
        if number is None:
            raise ValueError(f"{name_of(path)}: pmf must be numbers, got {token!r}")
        numbers.append(number)
    try:
        _checks.distribution("pmf", numbers)
    except ValueError as error:
        raise ValueError(f"{name_of(path)}: {error}") from error
    return tuple(numbers)
