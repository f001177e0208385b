"""The figures of each study, from its saved results."""

from collections.abc import Callable, Mapping
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from switchpoint.figures.ablations import draw_ablations
from switchpoint.figures.by_index import draw_regret_by_index
from switchpoint.figures.distribution import draw_off_distribution, draw_on_distribution
from switchpoint.figures.files import write_figure
from switchpoint.figures.lengths import draw_longer_lengths, draw_other_lengths
from switchpoint.figures.longer_sequences import draw_longer_sequences
from switchpoint.figures.matrix import draw_transfer_matrix
from switchpoint.figures.mean_regret import draw_mean_regret
from switchpoint.figures.memory import draw_memory
from switchpoint.figures.switches import draw_priors
from switchpoint.figures.trajectory import draw_trajectories

Drawer = Callable[[xr.Dataset], dict[str, Figure]]

_DRAWERS: Mapping[str, tuple[Drawer, ...]] = {
    "trajectory": (draw_trajectories,),
    "mean-regret": (draw_mean_regret,),
    "on-distribution": (draw_on_distribution,),
    "off-distribution": (draw_off_distribution, draw_transfer_matrix),
    "longer-lengths": (draw_longer_lengths,),
    "other-lengths": (draw_other_lengths,),
    "ablations": (draw_ablations,),
    "priors": (draw_priors,),
    "regret-by-index": (draw_regret_by_index,),
    "length-512": (draw_longer_sequences,),
    "memory": (draw_memory,),
}

STUDIES = tuple(_DRAWERS)
"""The studies that have figures, in the order of the report."""


def study_figures(name: str, dataset: xr.Dataset) -> dict[str, Figure]:
    """The figures of the study called `name` by their file names, without suffix."""
    if name not in _DRAWERS:
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {name!r}")
    figures: dict[str, Figure] = {}
    for draw in _DRAWERS[name]:
        figures.update(draw(dataset))
    return figures


def draw_study(name: str, dataset: xr.Dataset, directory: Path) -> list[Path]:
    """Write every figure of a study to `directory`, as PDF and PNG; returns their paths."""
    return [
        path
        for figure_name, figure in study_figures(name, dataset).items()
        for path in write_figure(figure, directory, figure_name)
    ]
