"""The entry point: runs a command, and reports an error in one line."""

# Everything else is imported once signals are handled, and JAX only by commands that need it.
import os
import sys
from importlib import import_module

from switchpoint.cli import process
from switchpoint.cli.process import SIGNALS

_BROKEN_PIPE, _BAD_INPUT, _BUG = 1, 2, 70
_MAX_MESSAGE = 400
_TRACEBACK = "SWITCHPOINT_TRACEBACK"


def main(
    arguments: list[str] | None = None,
    application: str = "switchpoint.cli.app",
    name: str = "switchpoint",
) -> int:
    """Run the command line and return its exit status.

    `application` is the module with the Typer application, and `name` what its help calls it.

    Bad input is status 2 and one line on standard error, an interrupt is status 130, and an
    unexpected error is status 70. Without `arguments` those of the process are used; its signals
    and streams are then handled too, and a command that is interrupted ends the process.
    """
    in_process = arguments is None
    try:
        try:
            if in_process:
                SIGNALS.listen()
                process.open_streams()
            app = import_module(application).app
            words = sys.argv[1:] if arguments is None else arguments
            status = app(words, prog_name=name, standalone_mode=False) or 0
            sys.stdout.flush()
        except BaseException as error:
            status = _report(error)
        SIGNALS.ignore()
    except KeyboardInterrupt:  # during the handling of another error
        status = _stopped()
    if SIGNALS.received is not None and status != SIGNALS.status:
        status = _stopped()  # a library caught the interrupt, and the command continued
    if in_process:
        process.finish(status)
    return status


def _report(error: BaseException) -> int:
    """Describe an error on standard error, and return the exit status for it."""
    if isinstance(error, BrokenPipeError):  # the reader has gone (`| head`)
        return _BROKEN_PIPE
    if isinstance(error, SystemExit) and not hasattr(error, "__notes__"):
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return _stopped(error)
    if SIGNALS.received is not None:  # a library turned the interrupt into this error
        return _stopped()
    if os.environ.get(_TRACEBACK):
        import traceback

        traceback.print_exc()
    jax_error = getattr(sys.modules.get("jax.errors"), "JaxRuntimeError", MemoryError)
    if hasattr(error, "format_message"):  # of click or Typer, depending on Typer's version
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "switchpoint"
        message = str(error.format_message())
        option = getattr(error, "option_name", None)
        if hasattr(error, "possibilities"):  # an unknown option
            from switchpoint._text import did_you_mean

            near = did_you_mean(str(option), error.possibilities or ())
            message = f"No such option {option}{near}"
        message += f" (see {command} --help)"
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


def _stopped(stop: BaseException | None = None) -> int:
    """Report that the command was stopped; by a signal, unless the exception has a status."""
    _print(" ".join(getattr(stop, "__notes__", [SIGNALS.description])))
    status = getattr(stop, "code", None)
    return status if isinstance(status, int) else SIGNALS.status


def _print(message: str) -> None:
    from switchpoint._text import printable

    line = printable(" ".join(message.split()))
    line = line if len(line) <= _MAX_MESSAGE else f"{line[: _MAX_MESSAGE - 3]}..."
    print(f"switchpoint: {line}", file=sys.stderr, flush=True)
