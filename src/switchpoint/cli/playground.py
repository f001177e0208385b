"""`switchpoint playground`: predictors and networks at work on a sequence, in the browser."""

import os
import sys
import webbrowser
from pathlib import Path

import typer

from switchpoint._files import atomic_write
from switchpoint._text import printable
from switchpoint.cli import output
from switchpoint.playground import build_page


def playground(
    out: Path = typer.Option(
        Path("playground.html"), metavar="FILE", help="The page to write; FILE is replaced."
    ),
    show: bool = typer.Option(
        True, "--open/--no-open", help="Open the page, unless there is no display."
    ),
) -> None:
    """Write a page on which to edit a sequence and watch every predictor, and open it.

    The page is one HTML file of 1.2 MB that needs no server and no network: the exact predictors
    of PTW, LIN, Geometric and KT, an RNN and an LSTM of the zoo, the probability of switches, and
    the code lengths, all updated with every edit.

    For example:

        switchpoint playground --out playground.html
    """
    output.check_output(out, "out", (".html", ".htm"))
    with atomic_write(out) as file:
        file.write(build_page().encode())
    address = out.resolve().as_uri()
    opened = show and _has_display() and webbrowser.open(address)
    shown = printable(address)
    last = f"opened {shown}" if opened else f"open {shown} in a browser"
    output.console().print(f"wrote {printable(str(out))}; {last}", soft_wrap=True)


def _has_display() -> bool:
    """Whether a browser would have a window; without one, Unix may start a text browser."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
