"""The output of commands: tables, progress on a terminal, pictures."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from switchpoint import _checks
from switchpoint._files import atomic_write, check_writable
from switchpoint._text import printable

FORMATS = ("csv", "json")
"""The formats that the rows of a result can be written in."""

PICTURE_SUFFIXES = (".png", ".pdf", ".svg")
"""The formats that a picture can be written in."""


def console(stream: Any = None, **options: Any) -> Console:
    """A console on `stream`, or standard output, that prints texts as they are."""
    return Console(file=stream or sys.stdout, highlight=False, markup=False, **options)


def table(title: str, *headings: str, texts: int = 1, **options: Any) -> Table:
    """A table with these headings: the first `texts` columns hold text, the others numbers."""
    style: Any = {"title_justify": "left", "title_style": "cyan", "box": box.SIMPLE_HEAD}
    result = Table(title=Text(title), pad_edge=False, **style, **options)
    for index, heading in enumerate(headings):
        justify: Any = "left" if index < texts else "right"
        # Folded rather than cropped: nothing is lost on a narrow terminal.
        result.add_column(Text(heading, overflow="fold"), justify=justify, overflow="fold")
    return result


def keep_words(table: Table, width: int) -> bool:
    """Let cells break only between words, if the table then fits into `width` characters."""
    texts = [list(map(str, (column.header, *column.cells))) for column in table.columns]
    least = [max(cell_len(word) for text in each for word in text.split()) for each in texts]
    whole = [max(map(cell_len, each)) for each in texts]
    rest = width - sum(least) - 3 * len(least) + 1
    for index in sorted(range(len(least)), key=lambda index: whole[index] - least[index]):
        wider = whole[index] - least[index]
        least[index] += wider if wider <= rest else 0
        rest -= wider if wider <= rest else 0
        table.columns[index].width = least[index] if rest >= 0 else None
    return rest >= 0


def labelled(lines: Iterable[tuple[str, str | Text]]) -> Table:
    """Lines of text, each with a label."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column()
    for label, text in lines:
        grid.add_row(Text(label), Text(text) if isinstance(text, str) else text)
    return grid


def panel(title: str, lines: Iterable[tuple[str, str | Text]]) -> Panel:
    """Labelled lines in a frame."""
    return Panel(labelled(lines), title=title, expand=False, border_style="dim")


def shortened(text: str, width: int = 60) -> str:
    """`text`, cut where it is too long for a line."""
    return text if len(text) <= width else text[: width - 3] + "..."


def check_output(path: Path | None, name: str, suffixes: tuple[str, ...]) -> None:
    """Raise a `ValueError` unless a file with one of these suffixes can be written to `path`."""
    if path is not None:
        if suffixes and path.suffix.lower() not in suffixes:
            allowed = " or ".join(suffixes)
            raise ValueError(f"{name} must end in {allowed}, got {printable(str(path))}")
        check_writable(path, name)


def check_result(form: str | None, out: Path | None, plot: Path | None) -> str:
    """The format of a result, by --format or else the suffix of --out; empty if neither is given.

    Raises a `ValueError` if one of the files cannot be written.
    """
    if form is not None:
        _checks.one_of("format", form, FORMATS)
    check_output(out, "out", () if form is not None else tuple(f".{each}" for each in FORMATS))
    check_output(plot, "plot", PICTURE_SUFFIXES)
    return form or ("" if out is None else out.suffix.lower()[1:])


def write_picture(path: Path, figure: Any) -> None:
    """Write a figure of Matplotlib in the format of the path's suffix."""
    with atomic_write(path, "plot") as file:
        figure.savefig(file, format=path.suffix.lower().removeprefix("."))
