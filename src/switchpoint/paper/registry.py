"""All studies, in the order they run and are shown in; a new one is a file and a line here."""

from collections.abc import Mapping

from switchpoint.paper.base import Run, Study
from switchpoint.paper.scale import Scale
from switchpoint.paper.studies import (
    ablations,
    amortised,
    beliefs,
    lengths,
    memory,
    off_distribution,
    on_distribution,
    passing_states,
    prior_statistics,
    regret_by_position,
    richer_sources,
    training_curves,
    trajectories,
    twice_the_length,
    worst_case,
)

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        trajectories.STUDY,
        regret_by_position.MEAN_REGRET,
        on_distribution.STUDY,
        off_distribution.STUDY,
        lengths.LONGER_LENGTHS,
        lengths.OTHER_LENGTHS,
        ablations.STUDY,
        prior_statistics.STUDY,
        regret_by_position.REGRET_BY_INDEX,
        twice_the_length.STUDY,
        memory.STUDY,
        beliefs.STUDY,
        worst_case.STUDY,
        richer_sources.STUDY,
        passing_states.STUDY,
        amortised.STUDY,
        training_curves.STUDY,
    )
}
"""The studies by name."""


def all_runs(scale: Scale) -> dict[str, Run]:
    """Every training run that a study needs, by name, in the order of the studies."""
    return {name: run for study in STUDIES.values() for name, run in study.runs(scale).items()}
