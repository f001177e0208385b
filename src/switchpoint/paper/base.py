"""The definition of a study: its measurements, and functions from those to all that is shown."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from switchpoint.evaluation.metrics import standard_error
from switchpoint.figures.style import styled
from switchpoint.paper.scale import Scale, TestSet
from switchpoint.priors import PARAMETER_OWNERS
from switchpoint.training import TrainConfig
from switchpoint.zoo import Zoo
from switchpoint.zoo.manifest import SOURCES

if TYPE_CHECKING:  # it imports this module
    from switchpoint.paper.context import StudyContext

EXACT = "exact"
"""The run of exact predictors in the measurement store; they are named as training sources are."""

ERRORS = 3.0
"""The number of standard errors that a difference must exceed to count."""

NON_IDENTITY_FIELDS = {"validation", "report_every"}
"""Settings of a training run that do not affect the weights."""


@dataclass(frozen=True)
class Run:
    """A training run; its name is that of its directory."""

    name: str
    config: TrainConfig

    @property
    def seeds(self) -> range:
        """The seeds of each training source."""
        return range(self.config.first_seed, self.config.first_seed + self.config.seeds)

    @property
    def symbols(self) -> float:
        """The symbols that its networks are trained on, which its duration is in proportion to."""
        config = self.config
        return float(len(config.members()) * config.steps * config.batch * config.length)

    def plan(self, trained_on: str) -> dict[str, Any]:
        """Every setting that decides the weights of a network with a given seed."""
        return network_plan(self.config.to_dict(), trained_on)


def network_plan(config: Mapping[str, Any], trained_on: str) -> dict[str, Any]:
    """The plan of one network of a configuration, which may have been written long ago.

    Settings that the configuration does not have, since they came later, take their defaults;
    those of other training sources, and those that only decide how a run is watched, are dropped.
    """
    others = {name for name, owner in PARAMETER_OWNERS.items() if owner != trained_on}
    own = {
        name: value for name, value in config.items() if name not in others | NON_IDENTITY_FIELDS
    }
    whole = TrainConfig.from_dict({**own, "prior": [trained_on], "seeds": 1, "first_seed": 0})
    return {n: value for n, value in whole.to_dict().items() if n not in NON_IDENTITY_FIELDS}


@dataclass(frozen=True)
class Measurement:
    """A key of the measurement store: the regret of networks, or of one exact predictor."""

    run: Run | None
    """None for an exact predictor."""
    trained_on: str
    """The training source, or the name of the exact predictor."""
    test: TestSet
    seeds: int | None = None
    """Only the first seeds of the run."""

    @property
    def run_name(self) -> str:
        """The name of the run in the store."""
        return EXACT if self.run is None else self.run.name

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds that should be there."""
        return (0,) if self.run is None else tuple(self.run.seeds[: self.seeds])


@dataclass(frozen=True)
class Grid:
    """Measurements with labels along named dimensions, for every combination of the labels."""

    labels: Mapping[str, Sequence[Any]]
    cells: Sequence[Measurement]


def grid(cell: Callable[..., Measurement], **labels: Iterable[Any]) -> Grid:
    """The measurement `cell(**labels)` for every combination of the labels."""
    axes = {name: list(values) for name, values in labels.items()}
    keys = itertools.product(*axes.values())
    return Grid(axes, [cell(**dict(zip(axes, key, strict=True))) for key in keys])


def exact_grid(dimension: str, tests: Mapping[Any, TestSet], exact: Sequence[str] = ()) -> Grid:
    """The optimum, or several exact predictors, on test sets labelled along a dimension."""
    several = {"exact": exact} if exact else {}
    return grid(
        lambda exact="optimum", **label: Measurement(None, exact, tests[label[dimension]]),
        **{dimension: tests, **several},
    )


@dataclass(frozen=True)
class Caption:
    """The text beside a figure."""

    alt: str
    """A description of the picture for those who cannot see it."""
    observed: str
    """The observation, in numbers of this result."""
    paper: str = "Not in the paper."
    """The observation of the paper."""
    size: str = ""
    """The seeds and sequences that it shows, where they are not those of the whole study."""


@dataclass(frozen=True)
class Table:
    """A table of text; the first column labels the rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, judged on a result."""

    claim: str
    holds: bool | None
    """None where the result cannot tell, or there is none."""
    evidence: str


Verdict = tuple[bool | None, str]
"""Whether a claim holds, and the evidence in numbers; None where a result cannot tell."""


def _nothing(_: Any) -> Any:
    return {}


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, and everything that answers it; one file each, one line in the registry."""

    name: str
    title: str
    paper: str
    """The figures of the paper that it reproduces."""
    question: str
    scale_fields: tuple[str, ...] = ()
    """The fields of the scale that its result depends on, beyond length, period and seed."""
    grids: Callable[[Scale], Mapping[str, Grid]] = _nothing
    """The measurements it needs."""
    networks: Callable[[Scale], Iterable[Run]] = _nothing
    """Further runs, whose networks `analyse` uses directly."""
    analyse: Callable[["StudyContext"], xr.Dataset]
    plot: Callable[[xr.Dataset], Mapping[str, Figure]]
    """Figures by name."""
    captions: Callable[[xr.Dataset], Mapping[str, Caption]]
    """By the names of the figures, in the order to show them."""
    tables: Callable[[Mapping[str, xr.Dataset]], Iterable[Table]] = _nothing
    """Tables for the report and the documents; they may draw on the results of other studies."""
    claims: Mapping[str, Callable[[xr.Dataset], Verdict]] = field(default_factory=dict)
    """Claims of the paper, each with what judges it and gives the evidence."""
    needs_logs: bool = False
    """Whether it reads the training logs, which pretrained networks do not have."""
    on_request: bool = False
    """Whether scale zoo shows the record alone, unless the study is named."""
    recorded: bool = True
    """Whether its result is small enough to be shipped with the package."""
    seconds: Mapping[str, float]
    """The expected time by scale, including the training it is the first to need."""

    def measurements(self, scale: Scale) -> list[Measurement]:
        """The measurements of all its grids."""
        return [each for grid in self.grids(scale).values() for each in grid.cells]

    def runs(self, scale: Scale) -> dict[str, Run]:
        """The training runs whose networks it uses, by name."""
        every = (*self.networks(scale), *(each.run for each in self.measurements(scale)))
        return {run.name: run for run in every if run is not None}

    def plan(self, scale: Scale) -> dict[str, Any]:
        """Everything that decides the numbers, in the types of JSON; it identifies a result."""
        fields = scale.to_dict("name", "length", "period", "seed", *self.scale_fields)
        runs = {name: run.config.to_dict() for name, run in self.runs(scale).items()}
        plan = {"study": self.name, "scale": fields, "runs": runs}
        return plan if scale.zoo is None else {**plan, "pretrained": Zoo(scale.zoo).digests()}

    def tested_sequences(self, scale: Mapping[str, Any]) -> int | None:
        """The number of test sequences, by the fields of a scale; None for single sequences."""
        names = [name for name in self.scale_fields if name.endswith("sequences") and name in scale]
        return int(scale[names[-1]]) if names else None  # the last is the most specific

    def figures(self, result: xr.Dataset) -> Mapping[str, Figure]:
        """The figures of a result in the shared look."""
        with styled():
            return self.plot(result)

    def judge(self, result: xr.Dataset | None) -> list[Finding]:
        """The claims, judged on a result."""
        if result is None:
            missing = f"the study {self.name} has not been run"
            return [Finding(claim, None, missing) for claim in self.claims]
        return [Finding(claim, *judge(result)) for claim, judge in self.claims.items()]


def main_run(scale: Scale, architecture: str, trained_on: str = "ptw") -> Run:
    """One architecture on a source, and on all others that take as many steps.

    Most studies share these networks. The run on PTW is called as its architecture is.
    """
    settings = {"model": architecture, **scale.architectures[architecture]}
    steps = {source: scale.steps(architecture, source) for source in SOURCES}
    alike = [source for source in SOURCES if steps[source] == steps[trained_on]]
    name = architecture if "ptw" in alike else f"{architecture}-{steps[trained_on]}-steps"
    period = {"period": scale.period} if "regular" in alike else {}
    fewer = {"steps": steps[trained_on]} if steps[trained_on] is not None else {}
    return Run(name, config(scale, {**settings, **fewer}, prior=alike, **period))


def main_runs(scale: Scale, *architectures: str) -> list[Run]:
    """These architectures, or every one, on all sources."""
    wanted = architectures or scale.architectures
    runs = [main_run(scale, each, source) for each in wanted for source in SOURCES]
    return list({run.name: run for run in runs}.values())


def config(scale: Scale, settings: Mapping[str, Any], **more: Any) -> TrainConfig:
    """A training configuration with the length and the seeds of the scale, unless others given."""
    own = {"length": scale.length, "seeds": scale.seeds, "first_seed": scale.first_seed, **more}
    return cached_config(json.dumps({**settings, **own}))


@lru_cache(maxsize=1000)
def cached_config(settings: str) -> TrainConfig:
    """A configuration by its settings in JSON: studies ask for the same ones many times."""
    return TrainConfig(**json.loads(settings))


_BITS = {"units": "bits"}


def with_error(values: xr.DataArray, name: str) -> dict[str, xr.DataArray]:
    """The mean over sequences as `name`, and its standard error as `name_error`."""
    return {
        name: values.mean("sequence", skipna=False).assign_attrs(_BITS),
        f"{name}_error": standard_error(values, "sequence").assign_attrs(_BITS),
    }


def over_seeds(values: xr.DataArray, name: str) -> dict[str, xr.DataArray]:
    """Of (..., seed, sequence): each seed with its error, and statistics over the seeds.

    `name_mean` is the mean over the seeds that have a value, `name_mean_error` its standard error
    over sequences, `name_deviation` the standard deviation between seeds.
    """
    each = with_error(values, name)
    seeds = each[name]
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = {
            **with_error(values.mean("seed"), f"{name}_mean"),
            f"{name}_deviation": seeds.std("seed", ddof=1).where(seeds.count("seed") > 1),
            f"{name}_minimum": seeds.min("seed"),
            f"{name}_median": seeds.median("seed"),
        }
    return {**each, **{key: value.assign_attrs(_BITS) for key, value in statistics.items()}}


def regret_and_excess(regret: xr.DataArray, optimum: xr.DataArray) -> dict[str, xr.DataArray]:
    """Both for (..., seed, sequence); the excess is over the optimum on the same sequences."""
    return {**over_seeds(regret, "regret"), **over_seeds(regret - optimum, "excess")}


def exact_regrets(regret: xr.DataArray, optimum: xr.DataArray) -> dict[str, xr.DataArray]:
    """Regret and excess of exact predictors (..., exact, sequence)."""
    return {**with_error(regret, "exact_regret"), **with_error(regret - optimum, "exact_excess")}


def exceeds(gap: xr.DataArray, error: xr.DataArray, other: xr.DataArray | float = 0.0) -> bool:
    """Whether every difference is above zero beyond its error, or those of both its terms."""
    return bool((gap > ERRORS * np.hypot(error, other)).all())


def means_with_errors(one: xr.Dataset, name: str, digits: int = 2) -> list[str]:
    """Cells of a table: every value of a variable of one dimension, with its standard error."""
    pairs = zip(one[name].values, one[f"{name}_error"].values, strict=True)
    return [f"{mean:.{digits}f} ± {error:.{digits}f}" for mean, error in pairs]
