"""The paper's studies, one short description each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from switchpoint.experiments import plans
from switchpoint.experiments.ablating import ablations
from switchpoint.experiments.by_time import mean_regret, regret_by_index
from switchpoint.experiments.distribution import off_distribution, on_distribution
from switchpoint.experiments.lengths import longer_lengths, other_lengths
from switchpoint.experiments.prior_statistics import prior_statistics
from switchpoint.experiments.remembering import memory
from switchpoint.experiments.runs import TrainingRun
from switchpoint.experiments.scales import Scale
from switchpoint.experiments.single_sequences import trajectories, twice_the_length
from switchpoint.experiments.work import Work

_ALWAYS = ("name", "length", "period", "seed")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study of the paper: what it asks, and what it needs for the answer."""

    name: str
    title: str
    paper: str
    """Which figures of the paper it realises."""
    question: str
    compute: Callable[[Work], xr.Dataset]
    """The kind of result."""
    sizes: tuple[str, ...]
    """The fields of a scale that its result depends on."""
    runs: Callable[[Scale], list[TrainingRun]]
    """The training runs whose networks it looks at."""
    some_runs_suffice: bool = False
    """Whether it goes without networks that were not trained, and names them."""

    def description(self, scale: Scale) -> dict[str, Any]:
        """Everything that decides the numbers, in the types that JSON has."""
        sizes: dict[str, Any] = {
            "study": self.name,
            "scale": scale.described((*_ALWAYS, *self.sizes)),
        }
        if scale.shipped is not None:
            return {**sizes, "shipped": scale.shipped.description()}
        runs = {run.name: run.config.to_dict() for run in self.runs(scale)}
        if "ablations" in self.sizes and all(run["seeds"] == scale.seeds for run in runs.values()):
            sizes["scale"]["ablation_seeds"] = scale.ablation_seeds  # which no run tells
        return {**sizes, "runs": runs}


def tested_sequences(study: Study, sizes: Mapping[str, Any]) -> int | None:
    """On how many sequences a study tests, by its description; none where it shows single ones."""
    numbers = [sizes[name] for name in study.sizes if name.endswith("sequences") and name in sizes]
    return int(numbers[-1]) if numbers else None  # the last named is the most particular


def _lstm_run(scale: Scale) -> list[TrainingRun]:
    return [plans.main_run(scale, "lstm")]


_ALL = (
    Study(
        name="trajectory",
        title="One sequence of each source",
        paper="Figure 1, and single trajectories of appendix B",
        question="What do exact predictors and a network say of one sequence, symbol by symbol?",
        compute=trajectories,
        sizes=(),
        runs=_lstm_run,
    ),
    Study(
        name="mean-regret",
        title="Mean cumulative regret",
        paper="Figure 2",
        question="How does an LSTM's regret grow over a PTW sequence, beside exact predictors?",
        compute=mean_regret,
        sizes=("sequences",),
        runs=_lstm_run,
    ),
    Study(
        name="on-distribution",
        title="Tested on the source of training",
        paper="Figure 3, and Random Uniform in appendix C",
        question="Do networks reach the exact optimum of the source that they were trained on?",
        compute=on_distribution,
        sizes=("sequences",),
        runs=plans.main_runs,
    ),
    Study(
        name="off-distribution",
        title="Tested on other sources",
        paper="Figure 4 and appendix C",
        question="What do networks lose on sources that they were not trained on?",
        compute=off_distribution,
        sizes=("sequences", "off_sequences"),
        runs=plans.main_runs,
    ),
    Study(
        name="longer-lengths",
        title="Longer sequences than in training",
        paper="Figure 5",
        question="How far do networks carry beyond the length that they were trained on?",
        compute=longer_lengths,
        sizes=("longer_lengths", "longer_sequences"),
        runs=plans.main_runs,
    ),
    Study(
        name="other-lengths",
        title="Trained on each length, or on one",
        paper="Figure 6",
        question="Is the loss on other lengths due to the length, or to training on another one?",
        compute=other_lengths,
        sizes=("other_lengths", "base_length", "other_sequences"),
        runs=plans.length_runs,
        some_runs_suffice=True,
    ),
    Study(
        name="ablations",
        title="Sizes and kinds of networks",
        paper="appendix A",
        question="Which size, stack, position code and context does a network need on PTW?",
        compute=ablations,
        sizes=("sequences", "ablations"),
        runs=plans.ablation_runs,
        some_runs_suffice=True,
    ),
    Study(
        name="priors",
        title="Switching points of the sources",
        paper="switching-point statistics of appendix B",
        question="How many switching points are there, and where, by the exact law and in samples?",
        compute=prior_statistics,
        sizes=("prior_sequences", "deepest", "most_switches"),
        runs=plans.no_runs,
    ),
    Study(
        name="regret-by-index",
        title="Regret by position",
        paper="regret along the sequences of appendix B",
        question="At which positions of a PTW sequence do networks lose to the optimum?",
        compute=regret_by_index,
        sizes=("sequences",),
        runs=plans.main_runs,
    ),
    Study(
        name="length-512",
        title="Sequences of twice the length",
        paper="sequences of length 512 in appendix C",
        question="What do networks expect where the sequences of their training would have ended?",
        compute=twice_the_length,
        sizes=("heat_sequences",),
        runs=plans.main_runs,
    ),
    Study(
        name="memory",
        title="Too little memory",
        paper="Theorem 4.2",
        question="What does it cost to remember nothing, or the last few symbols alone?",
        compute=memory,
        sizes=("sequences", "orders", "bound_order"),
        runs=plans.memory_runs,
    ),
)

STUDIES: Mapping[str, Study] = {study.name: study for study in _ALL}
"""All studies by name, in the order they run in."""
