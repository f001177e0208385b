"""Writing a figure to a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from switchpoint._files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any  # the annotation must not import Matplotlib where nothing is drawn

PICTURE_SUFFIXES = (".png", ".pdf", ".svg")
"""The kinds of picture that can be written."""


def write_picture(path: Path, figure: Figure) -> None:
    """Write a figure in the format of the path's suffix."""
    with atomic_write(path, "plot") as file:
        figure.savefig(file, format=path.suffix.lower().removeprefix("."))
