"""The commands, put together."""

from typing import Annotated

import typer

from switchpoint import __version__
from switchpoint.cli.evaluate import evaluate
from switchpoint.cli.predict import predict
from switchpoint.cli.prior import prior
from switchpoint.cli.reproduce import figure, reproduce
from switchpoint.cli.sample import sample
from switchpoint.cli.train import train
from switchpoint.cli.zoo import verify, zoo

app = typer.Typer(
    name="switchpoint",
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"switchpoint {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def switchpoint(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Sequences whose statistics jump, their exact Bayes optimum, and networks that learn it.

    For example:

        switchpoint sample --length 256 | switchpoint predict - --plot x.png
    """
    del version  # its callback has done the work


app.command()(sample)
app.command()(predict)
app.command()(train)
app.command()(evaluate)
app.command()(prior)
app.command()(reproduce)
app.command()(figure)
app.command()(zoo)
app.command()(verify)
