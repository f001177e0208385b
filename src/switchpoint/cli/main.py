"""The entry point: runs a command, and reports what went wrong in one line."""

# Everything else is imported once signals are handled, and JAX only by commands that need it.
import os
import sys

from switchpoint.cli.signals import SIGNALS

_BROKEN_PIPE = 1
_BAD_INPUT = 2
_TERMINATED = 143
_BUG = 70
_MAX_MESSAGE = 400
_TRACEBACK = "SWITCHPOINT_TRACEBACK"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Bad input is status 2 and one line on standard error, an interrupt is status 130, and an
    unexpected error is status 70. Without `arguments` those of the process are used; its signals
    and streams are then handled too, and a command that is interrupted ends the process.
    """
    own_process = arguments is None
    try:
        try:
            if own_process:
                SIGNALS.listen()
                from switchpoint.cli import process

                process.open_streams()
            from switchpoint.cli.app import command_group

            # Not Typer's own `main`, which handles interrupts and broken pipes differently.
            group = command_group()
            words = sys.argv[1:] if arguments is None else arguments
            with group.make_context("switchpoint", words or ["--help"]) as context:
                group.invoke(context)
            sys.stdout.flush()
            status = 0
        except BaseException as error:
            status = _report(error)
        SIGNALS.ignore()
    except KeyboardInterrupt:  # during the handling of another error
        status = _stopped()
    if SIGNALS.received is not None and status != SIGNALS.status:
        status = _stopped()  # a library caught the interrupt, and the command carried on
    if own_process:
        process.finish(status)
    return status


def _report(error: BaseException) -> int:
    """The exit status for an error, described on standard error; a plain `SystemExit` passes."""
    from typing import Any

    import typer

    if isinstance(error, typer.Exit):
        try:
            sys.stdout.flush()
        except OSError as problem:
            return _report(problem)
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader has gone (`| head`)
        return _BROKEN_PIPE
    if isinstance(error, SystemExit):
        if not hasattr(error, "__notes__"):
            raise error
        return _stopped(error, _TERMINATED)
    if isinstance(error, KeyboardInterrupt):
        return _stopped(error)
    if SIGNALS.received is not None:  # a library turned the interrupt into this error
        return _stopped()
    if os.environ.get(_TRACEBACK):
        import traceback

        traceback.print_exc()
    # The base class of command-line errors, click's or Typer's own, depending on the version of
    # Typer. It has no public name, but is always two steps up from this one.
    command_error: Any = typer.BadParameter.__mro__[2]
    jax_error: Any = getattr(sys.modules.get("jax.errors"), "JaxRuntimeError", MemoryError)
    if isinstance(error, command_error):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "switchpoint"
        message = f"{error.format_message()} (see {command} --help)"
    elif isinstance(error, MemoryError | jax_error):
        message = f"the computation failed, most likely for lack of memory ({error})"
    elif isinstance(error, RecursionError):
        message = "a file is nested too deeply to be read"
    elif isinstance(error, OSError) and error.filename is None and error.strerror:
        message = f"standard output cannot be written ({error.strerror})"
    elif isinstance(error, ValueError | OSError | OverflowError):
        message = str(error)
    else:
        _print(
            f"unexpected {type(error).__name__}: {str(error)[: _MAX_MESSAGE // 2]}; this is a bug "
            "in switchpoint: please report it, with the command and the traceback that "
            f"{_TRACEBACK}=1 shows"
        )
        return _BUG
    _print(message)
    return _BAD_INPUT


def _stopped(stop: BaseException | None = None, status: int | None = None) -> int:
    _print(" ".join(getattr(stop, "__notes__", [SIGNALS.description])))
    return SIGNALS.status if status is None else status


def _print(message: str) -> None:
    from switchpoint._text import printable

    line = printable(" ".join(message.split()))
    line = line if len(line) <= _MAX_MESSAGE else f"{line[: _MAX_MESSAGE - 3]}..."
    print(f"switchpoint: {line}", file=sys.stderr, flush=True)
