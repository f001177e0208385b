"""The commands, put together: each is imported when it is called."""

import ast
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from switchpoint.cli.cache import use_compilation_cache
from switchpoint.cli.signals import SIGNALS

_NAME = "switchpoint"
COMMANDS = {
    "sample": "sample",
    "predict": "predict",
    "train": "train",
    "evaluate": "evaluate",
    "prior": "prior",
    "reproduce": "reproduce",
    "figure": "reproduce",
    "report": "reproduce",
    "zoo": "zoo",
    "verify": "zoo",
    "shard": "shards",
    "merge": "shards",
    "build-zoo": "shards",
}
"""The commands, in the order of the help, with the module of each."""

_app = typer.Typer(
    name=_NAME,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: list[str]) -> int:
    """Run a command and return its exit status; errors and interrupts come through."""
    group: Any = typer.main.get_command(_app)
    for name in COMMANDS:
        group.add_command(_Delayed(name=name, help=_docstring(name), rich_markup_mode="markdown"))
    if f"_{_NAME.upper()}_COMPLETE" in os.environ:  # a shell asks
        group(args=arguments, prog_name=_NAME)
    # Not through Typer's `main`, which has its own idea of interrupts and broken pipes.
    try:
        with group.make_context(_NAME, arguments) as context:
            group.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


class _Delayed(TyperCommand):
    """Stands for a command whose module, and JAX with it, is not imported yet."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        command = load_command(str(self.name))
        SIGNALS.unwind()
        return command.make_context(*arguments, **options)


def load_command(name: str) -> Any:
    """The command called `name`, as Typer makes it of a function."""
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name)(
        getattr(import_module(f"switchpoint.cli.{COMMANDS[name]}"), name.replace("-", "_"))
    )
    return typer.main.get_command(alone)


def _docstring(command: str) -> str | None:
    """What the help says of a command, read from its source: to import it would take seconds."""
    module = find_spec(f"switchpoint.cli.{COMMANDS[command]}")
    source: str = module.loader.get_source(module.name) or ""  # type: ignore[union-attr]
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == command.replace("-", "_"):
            return ast.get_docstring(node)
    return None


def _print_version(wanted: bool) -> bool:
    if wanted:
        from switchpoint import __version__

        typer.echo(f"{_NAME} {__version__}")
        raise typer.Exit
    return wanted


@_app.callback()
def switchpoint(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            envvar="SWITCHPOINT_CACHE",
            help="Keep compiled programs in the user's cache directory, so that the next command "
            "starts sooner.",
        ),
    ] = True,
) -> None:
    """Sequences whose statistics jump, their exact Bayes optimum, and networks that learn it.

    For example:

        switchpoint sample --length 256 | switchpoint predict - --plot x.png
    """
    del version  # its callback has done the work
    if cache:
        use_compilation_cache()
