"""The entry point: runs a command, and says in one line what went wrong."""

# All else is imported when signals are taken; JAX when it is known that a command needs it.
import os
import signal
import sys

from switchpoint.cli.signals import SIGNALS

_BROKEN_PIPE = 1
_BAD_INPUT = 2
_UNFORESEEN = 70
_LONGEST_MESSAGE = 400
_TRACEBACK = "SWITCHPOINT_TRACEBACK"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Bad input is status 2 and one line on standard error, an interrupt is status 130, and an
    error that nobody foresaw is status 70. Without `arguments` those of the process are taken,
    and with them its signals and streams: a command that is stopped then ends the process.
    """
    if arguments is not None:
        return _run(arguments)
    SIGNALS.listen()
    from switchpoint.cli import process

    try:
        process.open_streams()
        status = _run(sys.argv[1:])
        SIGNALS.ignore()
    except KeyboardInterrupt:  # it came between two lines of the above
        status = _stopped()
    if SIGNALS.received is not None and status != SIGNALS.status:
        status = _stopped()  # a library had caught the interrupt, and the command went on
    if status > 128:
        process.leave(status)
    process.drop_output(sys.stdout)
    return status


def _run(arguments: list[str]) -> int:
    try:
        if arguments == ["--version"]:
            from switchpoint import __version__

            print(f"switchpoint {__version__}", flush=True)
            return 0
        from switchpoint.cli.app import run

        status = run(arguments or ["--help"])
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has gone (`| head`)
        return _BROKEN_PIPE
    except KeyboardInterrupt as stop:
        return _stopped(stop)
    except SystemExit as stop:
        if not hasattr(stop, "__notes__"):
            raise
        return _stopped(stop, 128 + signal.SIGTERM)
    except Exception as error:
        if SIGNALS.received is not None:  # and a library made this of the interrupt
            return _stopped()
        if os.environ.get(_TRACEBACK):
            import traceback

            traceback.print_exc()
        message = _refusal(error)
        if message is not None:
            _print(message)
            return _BAD_INPUT
        _print(
            f"unexpected {type(error).__name__}: {_shortened(str(error), _LONGEST_MESSAGE // 2)}; "
            f"this is a bug in switchpoint: please report it, with the command and the traceback "
            f"that {_TRACEBACK}=1 shows"
        )
        return _UNFORESEEN


def _stopped(stop: BaseException | None = None, status: int | None = None) -> int:
    _print(" ".join(getattr(stop, "__notes__", [SIGNALS.description])))
    return SIGNALS.status if status is None else status


def _refusal(error: Exception) -> str | None:
    """What is wrong with the input or too much for the machine; None for an error of ours."""
    from typing import Any

    import typer

    # The base of all errors of the command line. It is click's or Typer's own, by Typer's version,
    # and has no name common to all of them, but this error always descends from it in two steps.
    command_error: Any = typer.BadParameter.__mro__[2]
    errors: Any = sys.modules.get("jax.errors")
    if isinstance(error, command_error):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "switchpoint"
        return f"{error.format_message()} (see {command} --help)"
    if isinstance(error, MemoryError) or (errors and isinstance(error, errors.JaxRuntimeError)):
        return f"the computation failed, most likely for want of memory ({error})"
    if isinstance(error, RecursionError):
        return "a file is nested too deeply to be read"
    if isinstance(error, ValueError | OSError | OverflowError):
        return str(error)
    return None


def _print(message: str) -> None:
    from switchpoint._text import printable

    line = _shortened(printable(" ".join(message.split())), _LONGEST_MESSAGE)
    print(f"switchpoint: {line}", file=sys.stderr, flush=True)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
