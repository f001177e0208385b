"""The commands as one Typer group; the module of a command is imported when it is called."""

import ast
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand

from switchpoint.cli.process import use_compilation_cache
from switchpoint.cli.signals import SIGNALS

_PANELS = {
    "Your data": ("detect", "watch", "predict", "compress", "decompress"),
    "Priors and sources": ("prior", "sample", "evaluate"),
    "Networks": ("zoo", "verify", "train", "sweep"),
    "The paper's studies": ("reproduce", "figure", "report"),
    "Studies on several machines": ("shard", "merge", "build-zoo"),
}

COMMANDS = {name: panel for panel, names in _PANELS.items() for name in names}
"""The panel of each command, in the order of the help."""

_OWNERS = {  # the module of a command that is not called as it is
    "decompress": "compress",
    "figure": "reproduce",
    "report": "reproduce",
    "verify": "zoo",
    "shard": "shards",
    "merge": "shards",
    "build-zoo": "shards",
}

_app = typer.Typer(
    name="switchpoint",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command_group() -> Any:
    """The group of all commands; answers a shell that asks for completions, and exits."""
    group: Any = typer.main.get_command(_app)
    for name, panel in COMMANDS.items():
        about: Any = {"help": _docstring(name), "rich_help_panel": panel}
        group.add_command(_Delayed(name=name, rich_markup_mode="markdown", **about))
    if "_SWITCHPOINT_COMPLETE" in os.environ:
        group(args=[], prog_name="switchpoint")
    return group


class _Delayed(TyperCommand):
    """A command whose module, and JAX with it, is imported when it is called."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        command = load_command(str(self.name))
        SIGNALS.unwinds = True
        return command.make_context(*arguments, **options)


def load_command(name: str) -> Any:
    """The command called `name`, as Typer makes it from a function."""
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name)(getattr(import_module(_module(name)), name.replace("-", "_")))
    return typer.main.get_command(alone)


def _module(command: str) -> str:
    return f"switchpoint.cli.{_OWNERS.get(command, command)}"


def _docstring(command: str) -> str | None:
    """The help of a command, parsed from its source: importing it would take seconds."""
    module: Any = find_spec(_module(command))
    body = ast.parse(module.loader.get_source(module.name)).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    return ast.get_docstring(functions[command.replace("-", "_")])


def _print_version(wanted: bool) -> bool:
    if wanted:
        from switchpoint import __version__

        typer.echo(f"switchpoint {__version__}")
        raise typer.Exit
    return wanted


@_app.callback()
def switchpoint(
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
    if cache:
        use_compilation_cache()
