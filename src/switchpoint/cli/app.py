"""The commands as one Typer application; the module of a command is imported when it is called."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from switchpoint.cli.process import SIGNALS, use_compilation_cache

PANELS = {
    "Your data": {
        "detect": "Find the change points of a series of numbers.",
        "watch": "Monitor a stream, and report its changes at once.",
        "predict": "Predict a sequence with the exact Bayes optimum, or with a trained network.",
        "compress": "Compress a file losslessly with the predictions of the Bayes optimum or a "
        "network.",
        "decompress": "Restore a file compressed by `switchpoint compress`, byte for byte.",
    },
    "Priors and sources": {
        "prior": "Show a prior's distributions of the segment length and the number of switches.",
        "sample": "Draw sequences from a source, with their true probabilities and switching "
        "points.",
        "evaluate": "Measure the regret of predictors on a source, in bits.",
        "playground": "Write a page on which to edit a sequence and watch every predictor, and "
        "open it.",
    },
    "Networks": {
        "zoo": "List the trained networks that come with the package.",
        "verify": "Measure networks of the zoo on this machine, and compare with the figures on "
        "their cards.",
        "train": "Train networks to predict a source, and measure their excess regret over its "
        "optimum.",
        "sweep": "Train every combination of some settings, and sort the results by excess regret.",
    },
    "The paper's studies": {
        "reproduce": "Run the paper's studies, and write a report with every figure.",
    },
}
"""The commands of each panel of the help, with the first sentence of their docstrings.

They are repeated here because importing the commands, and JAX with them, takes seconds.
"""

_MODULES = {  # of commands that are not in a module of their name
    "decompress": "cli.compress",
    "verify": "cli.zoo",
    "reproduce": "paper.commands",
}


_NUMBERS = "printf '%s\\n' 9 10 9 11 10 9 10 3 4 3 2 3 4 3"
START = f"""switchpoint finds where sequences change, and predicts them.

Where did a series change? Put a file in place of the dash for your own:

    {_NUMBERS} | switchpoint detect -

Monitor a stream, which prints a line of JSON as soon as a change is probable:

    {_NUMBERS} | switchpoint watch --one-in 1000

Measure networks against the exact optimum, and write a report with figures, in two minutes:

    switchpoint reproduce

switchpoint --help lists all commands, and switchpoint COMMAND --help explains one."""
"""The output of `switchpoint` without arguments: three commands that run as printed."""


class Group(TyperGroup):
    """A group of commands that keeps the notes of an interrupt."""

    context_class = typer.Context

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and keep the notes of an interrupt, which Typer would discard."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            stop = SystemExit(SIGNALS.status)
            stop.__notes__ = getattr(interrupt, "__notes__", [SIGNALS.description])
            raise stop from interrupt


class _LazyCommand(TyperCommand):
    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Import the command, and let it parse its options."""
        command = load_command(str(self.name))
        SIGNALS.unwinds = True
        return command.make_context(*arguments, **options)


def load_command(name: str) -> Any:
    """Import the command called `name`."""
    module = import_module(f"switchpoint.{_MODULES.get(name, f'cli.{name}')}")
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name)(getattr(module, name.replace("-", "_")))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="switchpoint",
    cls=Group,
    invoke_without_command=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _panel, _commands in PANELS.items():
    for _name, _help in _commands.items():
        app.command(_name, help=_help, rich_help_panel=_panel, cls=_LazyCommand)(lambda: None)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from switchpoint import __version__

        typer.echo(f"switchpoint {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def switchpoint(
    context: typer.Context,
    version: bool = typer.Option(  # noqa: ARG001
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
    cache: bool = typer.Option(
        True,
        envvar="SWITCHPOINT_CACHE",
        help="Cache compiled programs in the user's cache directory; later commands start faster.",
    ),
) -> None:
    """Find where sequences change, and predict them: exact Bayesian inference, and networks.

    For example:

        switchpoint detect flow.csv --plot flow.png

        switchpoint sample --length 256 | switchpoint predict - --plot x.png
    """
    if context.invoked_subcommand is None:
        typer.echo(START)
    elif cache:
        use_compilation_cache()
