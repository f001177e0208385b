"""The options that commands share beyond those of a configuration."""

from pathlib import Path
from typing import Annotated

import typer

_PRIOR_HELP = "The law of segment lengths: ptw, lin, regular, uniform, geometric or renewal"

PriorName = Annotated[str, typer.Option("--prior", help=f"{_PRIOR_HELP}.")]
PriorNameIfGiven = Annotated[
    str | None,
    typer.Option(
        "--prior",
        help=f"{_PRIOR_HELP}; if not given, geometric with the hazard that the data prefer.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a picture there (.png, .pdf or .svg)."),
]
