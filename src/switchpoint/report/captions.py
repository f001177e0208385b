"""The captions of every study's figures, built from its saved results."""

from collections.abc import Callable, Mapping

import xarray as xr

from switchpoint.report.caption import Caption
from switchpoint.report.said_of_networks import (
    ablation_captions,
    longer_lengths_captions,
    memory_captions,
    off_distribution_captions,
    on_distribution_captions,
    other_lengths_captions,
)
from switchpoint.report.said_of_priors import prior_captions
from switchpoint.report.said_of_sequences import (
    by_index_captions,
    longer_sequence_captions,
    mean_regret_captions,
    trajectory_captions,
)

_CAPTIONS: Mapping[str, Callable[[xr.Dataset], dict[str, Caption]]] = {
    "trajectory": trajectory_captions,
    "mean-regret": mean_regret_captions,
    "on-distribution": on_distribution_captions,
    "off-distribution": off_distribution_captions,
    "longer-lengths": longer_lengths_captions,
    "other-lengths": other_lengths_captions,
    "ablations": ablation_captions,
    "priors": prior_captions,
    "regret-by-index": by_index_captions,
    "length-512": longer_sequence_captions,
    "memory": memory_captions,
}


def study_captions(name: str, dataset: xr.Dataset) -> dict[str, Caption]:
    """The captions of a study by the names of its figures, in the order to show them."""
    return _CAPTIONS[name](dataset)
