"""The entry point: runs a command, and says in one line what went wrong."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import jax
import typer

from switchpoint.cli.app import app

# The base of all errors of the command line. It is click's or Typer's own, by Typer's version,
# and has no name common to all of them, but this error always descends from it in two steps.
_COMMAND_ERROR: Any = typer.BadParameter.__mro__[2]
_BAD_INPUT = 2
_BROKEN_PIPE = 1
_INTERRUPTED = 130
_LONGEST_MESSAGE = 400


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Bad input is status 2 and one line on stderr; an interrupt is status 130.
    """
    try:
        status = app(
            args=list(sys.argv[1:] if arguments is None else arguments) or ["--help"],
            prog_name="switchpoint",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`| head`). The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except _COMMAND_ERROR as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "switchpoint"
        return _refuse(f"{error.format_message()} (see {command} --help)")
    except (ValueError, OSError, OverflowError) as error:
        return _refuse(str(error))
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        return _refuse(f"the computation failed, most likely for want of memory ({error})")
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return status if isinstance(status, int) else 0


def _refuse(message: str) -> int:
    line = " ".join(message.split())
    if len(line) > _LONGEST_MESSAGE:
        line = line[: _LONGEST_MESSAGE - 3] + "..."
    print(f"switchpoint: {line}", file=sys.stderr)
    return _BAD_INPUT
