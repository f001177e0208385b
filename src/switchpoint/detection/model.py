"""The model of `detect`: a source, and the units of its values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float
from scipy.special import expit

from switchpoint import _checks
from switchpoint._progress import Progress
from switchpoint.detection.changes import change_points
from switchpoint.detection.choice import (
    Candidate,
    Choice,
    Readings,
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
from switchpoint.detection.fits import fit_segment, is_real
from switchpoint.detection.outliers import (
    blocks,
    hidden_outliers,
    inlier_log_odds,
    log_density_of_outliers,
    log_evidence,
    robust,
)
from switchpoint.detection.posterior import SwitchPosterior
from switchpoint.detection.segmentation import Segmentation
from switchpoint.detection.series import Series
from switchpoint.detection.tails import explained_by_tails
from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.exact.posterior import switch_intervals
from switchpoint.priors import Geometric
from switchpoint.segments import Independent, NormalGamma, Poisson, Segment
from switchpoint.segments.values import centred, families_by_column
from switchpoint.sources import Source

_LONGEST_FIT = 20_000  # observations of a column
_MOST_CORRELATED = 12  # columns, whose work grows with the square
_HYPOTHESES = 100  # for the choice of the kind of segments
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
    ) -> Float[np.ndarray, "time *columns"]:
        """Values in the units of the source, without an axis of columns if it has none."""
        standard = self._by_column(values)
        return standard if self.source.segment.event_shape else standard[:, 0]

    def _by_column(
        self, values: Float[np.ndarray, "time columns"]
    ) -> Float[np.ndarray, "time modelled"]:
        standard = (values - self.centres) / self.scales
        standard = standard if self.modelled is None else standard[:, list(self.modelled)]
        return standard if self.axes is None else standard @ self.axes

    @property
    def _log_volume(self) -> float:
        """ln of the volume of a unit of each axis."""
        return 0.0 if self.axes is None else float(np.linalg.slogdet(self.axes)[1])

    def posterior(self, values: Float[np.ndarray, "time columns"]) -> SwitchPosterior:
        """The posterior over switching points."""
        return SwitchPosterior(self._law, self.standardised(values))

    @property
    def _law(self) -> Source:
        """The source with outliers, in elapsed time, if the model has them."""
        source = robust(self.source) if self.outliers else self.source
        return source if self.steps is None else in_elapsed_time(source, self.steps)

    def padded(
        self, values: Float[np.ndarray, "time columns"]
    ) -> Float[np.ndarray, "more *columns"]:
        """Standardised values, padded with missing ones to a round length.

        Programs are compiled for a length. Missing observations have no influence on the inference
        about those before them. The most probable partition includes the times of the missing
        ones; where the hazard is constant, it is the same before them.
        """
        standard, length = self.standardised(values), len(values)
        if type(self.source.prior) is not Geometric or self.source.segment.finite:
            return standard
        # The time grows with the square: beyond that it would be more than one more compilation.
        step = 1024 if length <= 8192 else 2048
        bucket = 256 if length <= 256 else -(-length // step) * step
        more = [(0, bucket - length), *[(0, 0)] * (standard.ndim - 1)]
        return np.pad(standard, more, constant_values=np.nan)

    def forecasts(self, values: Float[np.ndarray, "time columns"]) -> Forecasts:
        """The prediction of each observation from those before it, in the units of the data."""
        data, length = self.padded(values), len(values)
        if self.source.segment.finite:
            predictor = bayes_optimal(self.source)
            return Forecasts(
                np.exp(np.asarray(predictor.log_probs(data), float)),
                np.asarray(predictor.log_density(data), float),
            )
        self.source.prior.check_length(len(data))
        segment, near, origin = centred(self.source.segment, data)
        source = eqx.tree_at(lambda each: each.segment, self.source, segment)
        forecasts = _forecasts(bayes_optimal(source), jnp.asarray(near, float))
        means, logs = (np.asarray(each, float) for each in forecasts)
        units = (~np.isnan(values) * np.log(self.scales)).sum(1)
        return Forecasts(
            self.centres + self.scales * (origin + means).reshape(len(data), -1)[:length],
            logs[:length] - units,
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
        standard = self._by_column(values)
        columns = list(self.modelled or range(values.shape[1]))
        if self.axes is not None:
            observed &= observed.all(1, keepdims=True)
        hidden, last = np.zeros(standard.shape, bool), not self.outliers
        for number in range(_ROUNDS):
            rest = values.copy()
            rest[:, columns] = np.where(hidden, np.nan, rest[:, columns])
            posterior = SwitchPosterior(self._law, self.standardised(rest), progress)
            positions = change_points(
                posterior.switch_probability, observed.any(1), min_length, max_changes
            )
            if last or number == _ROUNDS - 1:
                break
            more = hidden_outliers(
                self.source, np.where(hidden, np.nan, standard), positions, self.steps
            )
            if not more.any():
                break
            hidden |= more
        probability, explained = posterior.switch_probability.copy(), {}
        if self.outliers:
            rest = np.where(hidden, np.nan, standard)
            explained = explained_by_tails(self.source, rest, positions, probability, self.steps)
            positions = [each for each in positions if each not in explained]
        changes, no_switch = switch_intervals(
            posterior.switch_probability, positions, coverage, posterior.no_switch_within
        )
        for window, chance in explained.values():
            expected_switches = probability[window].sum()
            no_switch *= (1 - chance) / max(1 - expected_switches, 1e-4)
            probability[window] *= chance / expected_switches
        units = np.log(self.scales[columns]) @ observed[:, columns].sum(0)
        log_evidence = posterior.log_evidence - float(units)
        log_evidence += self._log_volume * observed[:, columns[0]].sum()
        if hidden.any():
            log_evidence += log_density_of_outliers(self.source, standard, hidden)
        expected, odd = np.full(values.shape, np.nan), np.zeros(values.shape)
        expected[:, columns], odd[:, columns] = self._expected(standard, hidden, positions)
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

    def _expected(
        self,
        standard: Float[np.ndarray, "time columns"],
        hidden: Bool[np.ndarray, "time columns"],
        positions: Sequence[int],
    ) -> tuple[Float[np.ndarray, "time columns"], Float[np.ndarray, "time columns"]]:
        """The fit of each segment, and P(an outlier | the other values of its segment)."""
        expected, odd = np.full(standard.shape, np.nan), np.zeros(standard.shape)
        clock = make_clock(len(standard), self.steps)
        for columns, family in blocks(self.source.segment):
            if not is_real(family):
                continue
            for bounds in pairwise([0, *positions, len(standard)]):
                part = slice(*bounds), columns
                values, times = standard[part], clock[slice(*bounds)]
                seen = ~np.isnan(values).any(1)
                inside = seen & ~hidden[part].any(1)
                if not self.outliers:
                    expected[part] = fit_segment(family, values, times, inside).expected
                    continue
                fit, log_odds = inlier_log_odds(family, values, times, inside)
                expected[part] = fit.expected
                odd[part] = np.where(seen, expit(-log_odds), 0.0)[:, None]
        if self.axes is not None:
            expected = expected @ np.linalg.inv(self.axes)
        # Taken out by their own evidence, whatever the final segments say.
        return expected, np.where(hidden, np.maximum(odd, 0.5), odd)

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
        return replace(self, source=fit(self.source, self.padded(values), parameters).source)


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
    part = middle_part(*series.values.shape)
    within = None if steps is None else steps[part][: part.stop - part.start - 1]
    seconds = None if series.times is None else series.times.seconds
    for values in series.values.T:
        some = values[part] if not np.isnan(values[part]).all() else values
        readings = _Readings(some[:, None], sensitivity, within)
        choices.append(choose(readings, seconds))
        segment, season, _ = choices[-1].chosen
        columns.append(default_column(segment, values, season))
    model = _default_model(columns, _checked_sensitivity(sensitivity), steps, tuple(choices))
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
            candidates = []
            kinds = {"Poisson counts": family, "overdispersed counts": overdispersed_counts(counts)}
            for name, each in kinds.items():
                source = replace(model.source, segment=each)
                logs = log_evidence(source, counts[:, None], None, _HYPOTHESES)
                candidates.append(Candidate(name, (), logs))
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
    choices: list[Choice | None] = [None] * len(series.names)
    for column, choice in zip(modelled, model.choices, strict=False):
        choices[column] = choice
    return replace(
        model,
        centres=centres,
        scales=scales,
        choices=tuple(choices) if model.choices else (),
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
        evidence = log_evidence(each.source, each.standardised(values), steps, _HYPOTHESES)
        logs.append(evidence + each._log_volume * int((~gaps[part]).all(1).sum()))
    gap = logs[1] - logs[0]
    if gap <= 0:
        sentence = f"independent, by evidence: correlated columns {evidence_gap(gap)}"
        return replace(model, joint=sentence)
    sentence = f"correlated, by evidence: independent columns {evidence_gap(-gap)}"
    return replace(together, joint=sentence)


@dataclass(frozen=True)
class _Readings(Readings):
    """The answers of models with different kinds of segments for one column."""

    values: Float[np.ndarray, "time 1"]
    sensitivity: float | None
    steps: Float[np.ndarray, " steps"] | None

    def model(self, segment: str, season: tuple[float, ...]) -> SeriesModel:
        column = default_column(segment, self.values[:, 0], season)
        return _default_model([column], _checked_sensitivity(self.sensitivity), self.steps)

    def log_evidence(self, segment: str, season: tuple[float, ...]) -> float:
        model = self.model(segment, season)
        standard = (self.values - model.centres) / model.scales
        return log_evidence(model.source, standard, self.steps, _HYPOTHESES)

    def changes(self, segment: str, season: tuple[float, ...]) -> list[int]:
        probability = self.model(segment, season).posterior(self.values).switch_probability
        return change_points(probability, ~np.isnan(self.values[:, 0]))

    def autocorrelation(self, season: tuple[float, ...], changes: Sequence[int]) -> float:
        """The correlation of neighbouring residuals of lines, with a season but without a lag."""
        model, products, squares = self.model("trend", season), 0.0, 0.0
        standard = (self.values - model.centres) / model.scales
        clock = make_clock(len(standard), self.steps)
        for start, end in pairwise([0, *changes, len(standard)]):
            part = standard[start:end]
            inside = ~np.isnan(part[:, 0])
            fit, log_odds = inlier_log_odds(model.source.segment, part, clock[start:end], inside)
            rest = np.where(inside & (log_odds >= 0), fit.residuals[:, 0], np.nan)
            products += float(np.nansum(rest[1:] * rest[:-1]))
            squares += float(np.nansum(rest**2))
        return products / squares if squares > 0 else 0.0


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


@eqx.filter_jit
def _forecasts(
    predictor: ExactPredictor[Any], values: Float[Array, "time *columns"]
) -> tuple[Float[Array, "time *columns"], Float[Array, " time"]]:
    def step(state: Any, x: Float[Array, "*columns"]) -> tuple[Any, Any]:
        expected: Any = predictor.predict(state)
        observed = ~jnp.isnan(x).all()
        return predictor.update(state, x), (
            expected.mean,
            jnp.where(observed, expected.log_density(x), 0.0),
        )

    return lax.scan(step, predictor.init(length=len(values)), values)[1]


def segment_kinds(segment: str | Sequence[str] | None, count: int) -> list[str]:
    """The kind of segments of each column."""
    kinds = [segment or SEGMENTS[0]] if segment is None or isinstance(segment, str) else segment
    if not isinstance(kinds, Sequence):
        raise ValueError(f"segment must be one of {', '.join(SEGMENTS)}, got {segment!r}")
    if len(kinds) not in (1, count):
        raise ValueError(f"segment must be one, or one for each of {count} columns, got {segment}")
    return list(kinds) * (count if len(kinds) == 1 else 1)
