"""The model of `detect`: a source, and the units of its values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint._progress import Progress
from switchpoint.detection.changes import change_points
from switchpoint.detection.choice import (
    HYPOTHESES,
    Candidate,
    Choice,
    choose,
    evidence_gap,
    middle_part,
)
from switchpoint.detection.columns import independent_columns, noise_axes, noise_correlation
from switchpoint.detection.defaults import (
    SEGMENTS,
    SENSITIVITY,
    Column,
    correlated_segment,
    default_column,
    default_source,
    fitted_parameters,
    overdispersed_counts,
)
from switchpoint.detection.elapsed import in_elapsed_time, make_clock
from switchpoint.detection.outliers import (
    as_observations,
    hidden_outliers,
    log_density_of_outliers,
    log_evidence,
    segment_fits,
    with_outliers,
)
from switchpoint.detection.posterior import SwitchPosterior
from switchpoint.detection.segmentation import Segmentation
from switchpoint.detection.series import Series
from switchpoint.detection.tails import explained_by_tails
from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.exact.posterior import switch_intervals
from switchpoint.priors import Geometric
from switchpoint.segments import Independent, NormalGamma, Poisson, Segment
from switchpoint.segments.values import checked_values, families_by_column
from switchpoint.sources import Source
from switchpoint.streams import Stream

_LONGEST_FIT = 20_000  # observations of a column
_MOST_CORRELATED = 12  # columns, whose work grows with the square
_FOLLOWING = NormalGamma()  # describes columns that follow from others
_ROUNDS = 3  # of detecting changes between outliers


class Forecasts(NamedTuple):
    """Predictions of each observation given those before it."""

    expected: Float[np.ndarray, "time outputs"]
    """E[x_t | x_<t] of each column; for symbols, P(x_t = k | x_<t) of each symbol."""
    log_density: Float[np.ndarray, " time"]
    """ln p(x_t | x_<t); 0 where x_t is missing."""


@dataclass(frozen=True)
class SeriesModel:
    """A source of (values - centres) / scales, column by column."""

    source: Source
    centres: Float[np.ndarray, " columns"]
    scales: Float[np.ndarray, " columns"]
    steps: Float[np.ndarray, " steps"] | None = None
    """The times from each observation to the next, if the model counts time."""
    outliers: bool = False
    """Whether values may be outliers (`switchpoint.detection.outliers`)."""
    choices: tuple[Choice | None, ...] = ()
    """How the kind of segments of each column was chosen, if it was."""
    joint: str = ""
    """How it was chosen whether columns are correlated, in a sentence."""
    modelled: tuple[int, ...] | None = None
    """The columns that the source models, where the others follow from them; None for all."""
    axes: Float[np.ndarray, "modelled axes"] | None = None
    """The coordinates of correlated columns, in which their noise is uncorrelated."""

    def standardised(
        self, values: Float[np.ndarray, "time columns"]
    ) -> Float[np.ndarray, "time modelled"]:
        """Values in the units of the source."""
        standard = (values - self.centres) / self.scales
        standard = standard if self.modelled is None else standard[:, list(self.modelled)]
        return standard if self.axes is None else standard @ self.axes

    @property
    def _log_volume(self) -> float:
        """ln of the volume of a unit of each axis."""
        return 0.0 if self.axes is None else float(np.linalg.slogdet(self.axes)[1])

    @property
    def _law(self) -> Source:
        """The source with outliers, in elapsed time, if the model has them."""
        if self.outliers:
            return with_outliers(self.source, self.steps)
        return self.source if self.steps is None else in_elapsed_time(self.source, self.steps)

    def posterior(self, values: Float[np.ndarray, "time columns"]) -> SwitchPosterior:
        """The posterior over switching points."""
        return SwitchPosterior(self._law, as_observations(self.source, self.standardised(values)))

    def forecasts(self, values: Float[np.ndarray, "time columns"]) -> Forecasts:
        """The prediction of each observation from those before it, in the units of the data."""
        stream, finite = Stream(bayes_optimal(self.source)), self.source.segment.finite
        expected, log_density = [], []
        each = as_observations(self.source, self.standardised(values))
        for x in checked_values(self.source.segment, each):
            ahead = stream.predict()
            expected.append(np.exp(ahead) if finite else np.ravel(ahead.mean))
            log_density.append(stream.update(x))
        if finite:
            return Forecasts(np.array(expected), np.array(log_density))
        units = (~np.isnan(values) * np.log(self.scales)).sum(1)
        return Forecasts(
            self.centres + self.scales * np.array(expected), np.array(log_density) - units
        )

    def segmentation(
        self,
        series: Series,
        coverage: float,
        min_length: int = 1,
        max_changes: int | None = None,
        progress: Progress | None = None,
    ) -> Segmentation:
        """The change points of a series, and their uncertainty."""
        values, observed = series.values, ~np.isnan(series.values)
        standard = self.standardised(values)
        columns = list(self.modelled or range(values.shape[1]))
        if self.axes is not None:
            observed &= observed.all(1, keepdims=True)
        hidden, last = np.zeros(standard.shape, bool), not self.outliers
        for number in range(_ROUNDS):
            rest = np.where(hidden, np.nan, standard)
            posterior = SwitchPosterior(self._law, as_observations(self.source, rest), progress)
            positions = change_points(
                posterior.switch_probability, observed.any(1), min_length, max_changes
            )
            if last or number == _ROUNDS - 1:
                break
            more = hidden_outliers(self.source, rest, positions, self.steps)
            if not more.any():
                break
            hidden |= more
        probability, explained = posterior.switch_probability.copy(), {}
        if self.outliers:
            explained = explained_by_tails(self.source, rest, positions, probability, self.steps)
            positions = [each for each in positions if each not in explained]
        changes, no_switch = switch_intervals(
            posterior.switch_probability, positions, coverage, posterior.no_switch_within
        )
        windows = np.array([(each.start, each.stop - 1) for each, _ in explained.values()], int)
        none = posterior.no_switch_within(windows.reshape(-1, 2))
        for (window, chance), before in zip(explained.values(), none.tolist(), strict=True):
            no_switch *= (1 - chance) / max(before, 1e-300)  # Jeffrey's rule
            probability[window] *= chance / probability[window].sum()
        units = np.log(self.scales[columns]) @ observed[:, columns].sum(0)
        log_evidence = posterior.log_evidence - float(units)
        log_evidence += self._log_volume * observed[:, columns[0]].sum()
        if hidden.any():
            log_evidence += log_density_of_outliers(self.source, standard, hidden)
        expected, odd = np.full(values.shape, np.nan), np.zeros(values.shape)
        clock, edges = make_clock(len(values), self.steps), [0, *positions, len(values)]
        fits = segment_fits(self.source.segment, standard, clock, edges, self.outliers, hidden)
        back = fits[0] if self.axes is None else fits[0] @ np.linalg.inv(self.axes)
        expected[:, columns] = back
        # Taken out by their own evidence, whatever the final segments say.
        odd[:, columns] = np.where(hidden, np.maximum(fits[1], 0.5), fits[1])
        families: list[Segment] = [_FOLLOWING] * values.shape[1]
        for column, family in zip(columns, families_by_column(self.source.segment), strict=True):
            families[column] = family
        return Segmentation(
            changepoints=np.array(positions, int),
            probability=np.array([each.probability for each in changes], float),
            intervals=np.array([(each.begin, each.end) for each in changes], int).reshape(-1, 2),
            interval_probability=np.array([each.interval_probability for each in changes], float),
            switch_probability=probability,
            no_switch_probability=min(no_switch, 1.0),
            log_evidence=log_evidence,
            coverage=coverage,
            source=self.source,
            series=series,
            expected=self.centres + self.scales * expected,
            outlier_probability=odd,
            steps=self.steps,
            choices=self.choices,
            joint=self.joint,
            families=tuple(families),
            centres=self.centres,
            scales=self.scales,
        )

    def fitted(
        self, values: Float[np.ndarray, "time columns"], parameters: Sequence[str] | None
    ) -> "SeriesModel":
        """The model with those hyperparameters of the source, or all, of highest evidence."""
        from switchpoint.exact.fitting import fit

        count = values.shape[1]
        most = int(_LONGEST_FIT / math.sqrt(count))
        if len(values) > most:
            raise ValueError(
                f"fit takes at most {most} observations of {count} column{'s' * (count > 1)}, as "
                f"the work grows with the square, got {len(values)}; fit a part of them, and "
                "detect with its source"
            )
        standard = as_observations(self.source, self.standardised(values))
        if type(self.source.prior) is Geometric and not self.source.segment.finite:
            # Programs are compiled for a length. Missing values at the end have no influence.
            more = -len(values) % (256 if len(values) <= 256 else 1024)
            padding = [(0, more), *[(0, 0)] * (standard.ndim - 1)]
            standard = np.pad(standard, padding, constant_values=np.nan)
        return replace(self, source=fit(self.source, standard, parameters).source)


def series_model(
    values: Float[np.ndarray, "time columns"],
    segment: str | Sequence[str] | None = None,
    sensitivity: float | None = None,
    source: Source | None = None,
    fit: bool = False,
    names: Sequence[str] | None = None,
    season: float | None = None,
) -> SeriesModel:
    """The model of `detect` for these values; its arguments are explained there.

    `names` are those of the columns, for messages.
    """
    count = values.shape[1]
    if source is None:
        sensitivity = _checked_sensitivity(sensitivity)
        titles = [f"values of column {name}" for name in names or range(count)]
        titles = titles if count > 1 else ["values"]
        parts = zip(segment_kinds(segment, count), values.T, titles, strict=True)
        seasons = () if season is None else (season,)
        columns = [default_column(kind, each, seasons, title) for kind, each, title in parts]
        model = _default_model(columns, sensitivity)
        return model.fitted(values, fitted_parameters(model.source)) if fit else model
    for name, value in (("segment", segment), ("sensitivity", sensitivity), ("season", season)):
        if value is not None:
            raise ValueError(f"{name} cannot be given with a source, got {value!r}")
    optimum: Any = bayes_optimal(source)  # raises a `ValueError` if there is none
    if not isinstance(optimum, ExactPredictor):
        raise ValueError(
            "source must be a prior with a segment, switchpoint.Source(prior, segment), got a "
            f"{type(source).__name__}"
        )
    if source.segment.event_shape not in ((), (count,)) or (
        not source.segment.event_shape and count > 1
    ):
        raise ValueError(
            f"source must be for {count} columns, such as with a switchpoint.Independent "
            f"segment, got {source.segment!r}"
        )
    model = SeriesModel(source, np.zeros(count), np.ones(count))
    return model.fitted(values, None) if fit else model


def chosen_model(
    series: Series,
    sensitivity: float | None,
    steps: Float[np.ndarray, " steps"] | None = None,
    fit: bool = False,
) -> SeriesModel:
    """The model of `detect` with the kind of segments of highest evidence for each column."""
    modelled = independent_columns(series.values)
    if len(modelled) < series.values.shape[1]:
        rest = chosen_model(series.of_columns(modelled), sensitivity, steps, fit)
        return _with_following(rest, series, modelled)
    columns, choices = [], []
    part, sensitivity = middle_part(*series.values.shape), _checked_sensitivity(sensitivity)
    within = None if steps is None else steps[part][: part.stop - part.start - 1]
    seconds = None if series.times is None else series.times.seconds
    for values in series.values.T:
        some = values[part] if not np.isnan(values[part]).all() else values
        choices.append(choose(some, sensitivity, within, seconds))
        segment, season, _ = choices[-1].chosen
        columns.append(default_column(segment, values, season))
    model = _default_model(columns, sensitivity, steps, tuple(choices))
    model = _correlated(model, series.values, part, within)
    return model.fitted(series.values, fitted_parameters(model.source)) if fit else model


def with_dispersion(model: SeriesModel, values: Float[np.ndarray, "time columns"]) -> SeriesModel:
    """The model with negative binomial counts where their evidence is higher than Poisson's."""
    families = list(families_by_column(model.source.segment))
    choices: list[Choice | None] = [None] * len(families)
    part = middle_part(*values.shape)
    for number, family in enumerate(families):
        if isinstance(family, Poisson) and not np.isnan(values[part, number]).all():
            counts = values[part, number]
            kinds = {"Poisson counts": family, "overdispersed counts": overdispersed_counts(counts)}
            sources = {name: replace(model.source, segment=each) for name, each in kinds.items()}
            candidates = [
                Candidate(name, (), log_evidence(source, counts[:, None], None, HYPOTHESES))
                for name, source in sources.items()
            ]
            candidates.sort(key=lambda each: -each.log_evidence)
            choices[number] = Choice(tuple(candidates), len(counts), None, "")
            families[number] = kinds[candidates[0].segment]
    if not any(choices):
        return model
    segment = Independent(*families) if len(families) > 1 else families[0]
    return replace(model, source=replace(model.source, segment=segment), choices=tuple(choices))


def _with_following(model: SeriesModel, series: Series, modelled: list[int]) -> SeriesModel:
    """The model of some columns, for all of them: the others follow from these."""
    centres, scales = np.zeros(len(series.names)), np.ones(len(series.names))
    centres[modelled], scales[modelled] = model.centres, model.scales
    others = [name for i, name in enumerate(series.names) if i not in modelled]
    are = "columns follow" if len(others) > 1 else "column follows"
    sentence = f"the {are} from the others and say nothing more: {', '.join(others)}"
    joint = f"{model.joint}; {sentence}" if model.joint else sentence
    chosen = dict(zip(modelled, model.choices, strict=False))
    choices = tuple(map(chosen.get, range(len(series.names)))) if chosen else ()
    return replace(
        model,
        centres=centres,
        scales=scales,
        choices=choices,
        joint=joint,
        modelled=tuple(modelled),
    )


def _correlated(
    model: SeriesModel,
    values: Float[np.ndarray, "time columns"],
    part: slice,
    steps: Float[np.ndarray, " steps"] | None,
) -> SeriesModel:
    """The model with correlated columns instead, if that has a higher evidence in this part."""
    gaps, values = np.isnan(values), values[part]
    correlation = noise_correlation(values)
    if correlation is None:
        return model
    many, partly = values.shape[1] > _MOST_CORRELATED, (gaps.any(1) & ~gaps.all(1)).any()
    if many or partly:
        why = f"they are more than {_MOST_CORRELATED}" if many else "some rows are incomplete"
        sentence = (
            f"columns are correlated (up to {correlation:.1f}), which the model leaves out, since "
            f"{why}: changes may be those of the noise that they share"
        )
        return replace(model, joint=sentence)
    axes = noise_axes((values - model.centres) / model.scales)
    if axes is None:
        return model
    segment = correlated_segment(values.shape[1])
    noise = math.sqrt(float(segment.rate) / float(segment.shape))  # usual, in a default source
    together = replace(
        model, source=replace(model.source, segment=segment), axes=noise * axes, choices=()
    )
    logs = []
    for each in (model, together):
        evidence = log_evidence(each.source, each.standardised(values), steps, HYPOTHESES)
        logs.append(evidence + each._log_volume * int((~gaps[part]).all(1).sum()))
    gap = logs[1] - logs[0]
    if gap <= 0:
        sentence = f"independent, by evidence: correlated columns {evidence_gap(gap)}"
        return replace(model, joint=sentence)
    sentence = f"correlated, by evidence: independent columns {evidence_gap(-gap)}"
    return replace(together, joint=sentence)


def _checked_sensitivity(sensitivity: float | None) -> float:
    sensitivity = SENSITIVITY if sensitivity is None else sensitivity
    if _checks.positive_float("sensitivity", sensitivity) >= 1000:
        raise ValueError(
            "sensitivity must be below 1000, the number of switches per 1,000 observations, "
            f"got {sensitivity:g}"
        )
    return float(sensitivity)


def _default_model(
    columns: Sequence[Column],
    sensitivity: float,
    steps: Float[np.ndarray, " steps"] | None = None,
    choices: tuple[Choice, ...] = (),
) -> SeriesModel:
    """Common switches in these columns, whose values may be outliers."""
    centres = np.array([column.centre for column in columns])
    scales = np.array([column.scale for column in columns])
    source = default_source(columns, float(sensitivity))
    return SeriesModel(source, centres, scales, steps, outliers=True, choices=choices)


def segment_kinds(segment: str | Sequence[str] | None, count: int) -> list[str]:
    """The kind of segments of each column."""
    kinds = [segment or SEGMENTS[0]] if segment is None or isinstance(segment, str) else segment
    if not isinstance(kinds, Sequence):
        raise ValueError(f"segment must be one of {', '.join(SEGMENTS)}, got {segment!r}")
    if len(kinds) not in (1, count):
        raise ValueError(f"segment must be one, or one for each of {count} columns, got {segment}")
    return list(kinds) * (count if len(kinds) == 1 else 1)
