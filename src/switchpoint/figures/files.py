"""Writing figures to files: the same results make the same bytes."""

from pathlib import Path

from matplotlib.figure import Figure

from switchpoint._files import atomic_write
from switchpoint.figures.style import styled


def write_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write a figure as PDF and PNG, each whole or not at all; returns the two paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, metadata in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
        path = directory / f"{name}.{kind}"
        with styled(), atomic_write(path, "figure") as file:
            figure.savefig(file, format=kind, metadata=metadata)
        figure.set_layout_engine("none")  # laid out once: the costly half of drawing
        paths.append(path)
    return paths
