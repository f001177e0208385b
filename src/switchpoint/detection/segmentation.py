"""The result of `detect`: change points with their uncertainty, and the segments between them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from switchpoint._checks import one_line
from switchpoint._labels import Labels
from switchpoint.detection.checks import ResidualChecks, check_residuals, noise_dependence
from switchpoint.detection.choice import Choice
from switchpoint.detection.description import describe, fitted
from switchpoint.detection.elapsed import make_clock
from switchpoint.detection.notebook import result_html
from switchpoint.detection.series import Series
from switchpoint.detection.tables import CHANGE_COLUMNS, make_table, plain_rows, write_text
from switchpoint.segments import (
    Mixture,
    MultivariateNormal,
    NormalGamma,
    Regression,
    Segment,
    Trend,
    forecast,
)
from switchpoint.sources import Source

TYPE_CHECKING = False

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation:
    """The change points of a series and the segments between them, with their uncertainty.

    For n observations of d columns it holds O(n d) numbers; tables, `checks` and `warnings` are
    computed on first use.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> noise = np.random.default_rng(0).normal(size=60)
    >>> found = sp.detect(noise + 5 * (np.arange(60) >= 40))
    >>> found.bounds, found.intervals.tolist(), bool(found.interval_probability[0] > 0.9)
    ([(0, 40), (40, 60)], [[40, 40]], True)
    """

    changepoints: Int[np.ndarray, " switch"]
    """The position of the first observation of each new segment, from 0."""
    probability: Float[np.ndarray, " switch"]
    """P(a switch at exactly this position | all values), for each change point."""
    intervals: Int[np.ndarray, "switch 2"]
    """The first and the last position of the interval of each change point, both included."""
    interval_probability: Float[np.ndarray, " switch"]
    """P(at least one switch in the interval | all values).

    At least `coverage`; or that share of what all positions up to the neighbours reach, if less."""
    switch_probability: Float[np.ndarray, " time"]
    """P(a switch at t | all values), for each position t."""
    no_switch_probability: float
    """P(no switch at all | all values)."""
    log_evidence: float
    """ln p(values), in the units of the data."""
    coverage: float
    source: Source
    """The source that was used; the default one sees standardised values."""
    series: Series
    expected: Float[np.ndarray, "time columns"]
    """The fit of each segment to its values, with its season and lags; NaN for other families."""
    outlier_probability: Float[np.ndarray, "time columns"]
    """P(an outlier | the other values of its segment), given the change points; 0 where the model
    has no outliers."""
    steps: Float[np.ndarray, " steps"] | None = None
    """The times from each observation to the next, in units of the median step, where they differ
    and the model counts time; None if it counts observations."""
    choices: tuple[Choice | None, ...] = ()
    """How the kind of segments of each column was chosen; empty where it was given, or columns
    are correlated. None for a column that follows from others."""
    joint: str = ""
    """How it was chosen whether columns are correlated, and which follow from others."""
    families: tuple[Segment, ...] = ()
    """The family of each column, or of all of them together."""
    centres: Float[np.ndarray, " columns"] | float = 0.0
    scales: Float[np.ndarray, " columns"] | float = 1.0
    """The source is that of (values - centres) / scales."""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The segments as slices: start, and the position after their last observation."""
        return list(pairwise([0, *self.changepoints.tolist(), len(self.series.values)]))

    @cached_property
    def clock(self) -> Float[np.ndarray, " time"]:
        """The times of the observations as the model counts them, from 0."""
        return make_clock(len(self.series.values), self.steps)

    @cached_property
    def checks(self) -> list[ResidualChecks | None]:
        """For each column, what is left beside the fits of its segments, without outliers.

        None for a column of other families than those with normal noise, or too few values.
        """
        residuals = np.where(self.is_outlier, np.nan, self.series.values - self.expected)
        for start, end in self.bounds:
            part = residuals[start:end]
            seen = ~np.isnan(part)
            largest = np.abs(np.where(seen, part, 0.0)).max(0)  # whose square might overflow
            part = part / np.where(largest > 0, largest, 1.0)
            noise = np.sqrt(np.nansum(part**2, axis=0) / np.maximum(seen.sum(0), 1))
            residuals[start:end] = part / np.where(noise > 0, noise, 1.0)
        return [check_residuals(column) for column in residuals.T]

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences on columns whose noise depends on its past where the model has none of it.

        Autocorrelated noise and seasons look like changes to a model of independent noise. They are
        looked for in the differences of neighbouring values; slow seasons may remain unnoticed.
        Where the kind of segments was chosen, a lag that was considered is in `choices` instead.
        """
        sentences = []
        families = self.families
        for number, (name, family, values) in enumerate(
            zip(self.series.names, families, self.series.values.T, strict=True)
        ):
            regression = family if isinstance(family, Regression) else None
            follows = bool(self.choices) and self.choices[number] is None
            if follows or not isinstance(family, Trend | NormalGamma | Regression):
                continue
            of_column = f" of {name}" if len(families) > 1 else ""
            correlation, season = noise_dependence(values)
            if season is not None and not (regression and regression.season):
                sentences.append(
                    f"the values{of_column} repeat every {season} observations, and the "
                    f"model has no season: changes may be its waves; compare season {season}"
                )
            choice = self.choices[number] if self.choices else None
            considered = choice is not None and bool(choice.alternative)
            if correlation is not None and not (considered or (regression and regression.lags)):
                sentences.append(
                    f"the noise{of_column} is autocorrelated (about {correlation:.1f} from one "
                    "observation to the next), and independent in the model: changes may be runs "
                    "of noise or bends of a curve; compare segment autocorrelated"
                )
        return sentences

    @cached_property
    def segments(self) -> Any:
        """A row for each segment, which is `values[start:end]`.

        `observations` are those that are not missing. `first_time` and `last_time` are the labels
        of the first and the last of `values[start:end]`, where times were given. `level`, `slope`
        (per unit of time, for trends) and `noise` describe the values of the segment by least
        squares, with the name of the column where there are several. `probability` and
        `interval_begin`, `interval_end`, `interval_probability` are those of the switch at `start`.
        A DataFrame of pandas, or of polars if the values were.
        """
        return make_table(self.segment_rows(), self.series.labels)

    @cached_property
    def outliers(self) -> Any:
        """A row for each outlier: a value that is more probably one than of its segment.

        `position`, `time` if times were given, `column` where there are several, the `value`, what
        was `expected` by the fit of the segment without it, and the `probability` of an outlier.
        A DataFrame of pandas, or of polars if the values were.
        """
        columns = ("position", "value", "expected", "probability")
        return make_table(self.outlier_rows(), self.series.labels, columns)

    def outlier_rows(self) -> list[dict[str, Any]]:
        """The rows of `outliers`."""
        rows = []
        for at, column in np.argwhere(self.is_outlier).tolist():
            row: dict[str, Any] = {"position": at}
            if self.series.times is not None:
                row["time"] = self.series.times.labels[at]
            if len(self.series.names) > 1:
                row["column"] = self.series.names[column]
            row["value"] = float(self.series.values[at, column])
            row["expected"] = float(self.expected[at, column])
            row["probability"] = float(self.outlier_probability[at, column])
            rows.append(row)
        return rows

    @property
    def is_outlier(self) -> Bool[np.ndarray, "time columns"]:
        """Whether a value is more probably an outlier than not."""
        return self.outlier_probability >= 0.5

    def to_frame(self) -> Any:
        """A row for each observation: its segment, P(a switch there) and the level of the segment.

        `segment` counts from 0. `level`, with the name of the column where there are several, is
        the line or the constant that `segments` describes. A DataFrame of pandas with the index of
        the values, or of polars if they were; with a column `time` where that is not the index.
        """
        import pandas as pd

        series = self.series
        labels = series.labels or Labels("pandas", pd.RangeIndex(len(series.values)))
        columns: dict[str, np.ndarray] = {}
        if series.times is not None and not series.times_are_index:
            columns["time"] = series.times.column
        starts = np.zeros(len(series.values), int)
        starts[self.changepoints] = 1
        columns |= {"segment": starts.cumsum(), "switch_probability": self.switch_probability}
        if "level" in self.descriptions[0][0]:
            for suffix, level in zip(self._suffixes, self._levels().T, strict=True):
                columns[f"level{suffix}"] = level
        return labels.frame(columns)

    @property
    def _suffixes(self) -> list[str]:
        """What tells columns of tables apart where there are several series."""
        names = self.series.names
        return [f"_{name}" for name in names] if len(names) > 1 else [""]

    def segment_rows(self) -> list[dict[str, Any]]:
        """The rows of `segments`."""
        rows = []
        for number, (start, end) in enumerate(self.bounds):
            values = self.series.values[start:end]
            row: dict[str, Any] = {"start": start, "end": end}
            if self.series.times is not None:
                labels = self.series.times.labels
                row |= {"first_time": labels[start], "last_time": labels[end - 1]}
            row["observations"] = int((~np.isnan(values)).any(1).sum())
            for suffix, description in zip(self._suffixes, self.descriptions[number], strict=True):
                row |= {f"{key}{suffix}": value for key, value in description.items()}
            if self.kinds:
                row["kind"], row["kind_probability"] = self.kinds[number]
            row |= self._switch(number - 1)
            rows.append(row)
        return rows

    def forecast(self, horizon: int, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """Predict the next observations, if the last segment goes on.

        A row for each step ahead, 1..horizon: `mean` and a column such as `quantile_0.95` for each
        quantile, with the name of the column where there are several. For symbols,
        `probability_0`, ... They follow from the observations of the last segment but its outliers,
        and neither its beginning nor a change after it is uncertain here.
        `switchpoint.segments.forecast` has the formulas; with lags they are sampled.
        """
        ahead = self._ahead(horizon, quantiles)
        columns: dict[str, Any] = {"step": np.arange(1, horizon + 1)}
        if self.source.segment.finite:
            columns |= {f"probability_{k}": each for k, each in enumerate(ahead.T)}
        else:
            names = ["mean", *(f"quantile_{level:g}" for level in quantiles)]
            for i, suffix in enumerate(self._suffixes):
                columns |= {f"{what}{suffix}": ahead[:, i, j] for j, what in enumerate(names)}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return make_table(
            [dict(zip(columns, row, strict=True)) for row in rows], self.series.labels
        )

    def _ahead(self, horizon: int, quantiles: Sequence[float]) -> Float[np.ndarray, "horizon ..."]:
        """The mean and the quantiles (horizon, columns, 1 + quantiles), or P(each symbol)."""
        start = self.changepoints[-1] if len(self.changepoints) else 0
        values = np.where(self.is_outlier, np.nan, self.series.values)
        standard = ((values - self.centres) / self.scales)[start:]
        segment = self.source.segment
        count = standard.shape[1]
        chosen = isinstance(segment, MultivariateNormal) and bool(self.joint)
        if chosen or segment.event_shape not in ((), (count,)):
            raise ValueError(
                "forecast is for independent columns, and detect models these together, in other "
                f"coordinates: give a source, with a switchpoint.MultivariateNormal({count})"
            )
        ahead = forecast(
            segment,
            standard if segment.event_shape else standard[:, 0],
            horizon,
            quantiles,
            None if self.steps is None else self.steps[start:],
        )
        if segment.finite:
            return ahead.mean
        both = np.concatenate([ahead.mean[:, None], ahead.quantiles], axis=1)
        units = both.reshape(horizon, -1, count) * self.scales + self.centres
        return np.moveaxis(units, 1, -1)

    @cached_property
    def kinds(self) -> list[tuple[str, float]]:
        """Of each segment, the likeliest kind of a `Mixture`, and its probability; else empty."""
        if not self._kind_probs:
            return []
        names = [type(each).__name__ for each in self.source.segment.kinds]  # type: ignore[attr-defined]
        names = [
            f"{name} {names[: i + 1].count(name)}" if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]
        return [(names[int(probs.argmax())], float(probs.max())) for probs in self._kind_probs]

    @cached_property
    def _kind_probs(self) -> list[Float[np.ndarray, " kinds"]]:
        """P(each kind | the values of a segment) under a `Mixture`."""
        family = self.source.segment
        if not isinstance(family, Mixture):
            return []
        standard = (self.series.values - self.centres) / self.scales
        standard = standard if family.event_shape else standard[:, 0]
        probs = []
        for start, end in self.bounds:  # padded: programs are compiled for a length
            padding = [(0, 2 ** (end - start).bit_length() - (end - start)), (0, 0)]
            part = np.pad(standard[start:end], padding[: standard.ndim], constant_values=np.nan)
            probs.append(family.kind_probs(part))
        return probs

    def plot(self, horizon: int = 0) -> "Figure":
        """The series, the segments with bands of two standard deviations, and P(switch at t).

        With the kind of each segment under a `Mixture`, and with the means and the 90% ranges of
        the next `horizon` observations, as `forecast` has them.
        """
        from switchpoint.figures import segmentation_figure  # imports Matplotlib

        ahead = None
        if horizon and not self.source.segment.finite:
            ahead = self._ahead(horizon, (0.05, 0.95))[..., [1, 0, 2]]
        series, families = self.series, self.families
        noise = np.full_like(series.values, np.nan)
        for (start, end), descriptions in zip(self.bounds, self.descriptions, strict=True):
            noise[start:end] = [each.get("noise", math.nan) for each in descriptions]
        return segmentation_figure(
            values=series.values,
            names=[name or "value" for name in series.names],
            levels=self._levels(),
            noise=noise,
            floors=[each.support.least for each in families],
            switch_probability=self.switch_probability,
            changepoints=self.changepoints,
            intervals=self.intervals,
            coverage=self.coverage,
            outliers=self.is_outlier,
            times=None if series.times is None else series.times.coordinates,
            kinds=[name for name, _ in self.kinds],
            ahead=ahead,
        )

    def to_csv(self, path: Path | str | None = None) -> str:
        """The table of segments as CSV; also written to `path`, if there is one."""
        table = make_table(self.segment_rows())
        return write_text(table.to_csv(index=False, lineterminator="\n"), path)

    def to_json(
        self, path: Path | str | None = None, *, about: Mapping[str, Any] | None = None
    ) -> str:
        """Everything as JSON: summary, change points, segments and the probability of a switch.

        Entries of `about` are added to the summary.
        """
        content = self.content()
        content["summary"] |= dict(about or {})
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
            for key, value in content.items()
        )
        return write_text(f"{{{lines}}}\n", path)

    def content(self) -> dict[str, Any]:
        """Everything that `to_json` writes."""
        return {
            "summary": self.summary,
            "changepoints": self.changepoint_rows(),
            "segments": plain_rows(self.segment_rows()),
            "outliers": self.outlier_rows(),
            "switch_probability": self.switch_probability.tolist(),
        }

    @property
    def summary(self) -> dict[str, Any]:
        """The description of the whole series, ready for JSON."""
        return {
            "observations": len(self.series.values),
            "missing": int(np.isnan(self.series.values).sum()),
            "columns": list(self.series.names),
            "spacing": "regular" if self.steps is None else "irregular",
            "source": one_line(self.source),
            "log_evidence": self.log_evidence,
            "expected_switches": float(self.switch_probability.sum()),
            "no_switch_probability": self.no_switch_probability,
            "coverage": self.coverage,
            "choices": [None if each is None else each.summary for each in self.choices],
            "joint": self.joint,
            "checks": [None if each is None else each._asdict() for each in self.checks],
            "warnings": self.warnings,
        }

    def __repr__(self) -> str:
        positions = self.changepoints.tolist()
        count = len(positions)
        several = f"{count} change points" if count != 1 else "1 change point"
        at = f" at {', '.join(map(str, positions[:10]))}{', ...' if count > 10 else ''}"
        length = len(self.series.values)
        return f"Segmentation({length} observations, {several}{at if positions else ''})"

    def _repr_html_(self) -> str:
        """The segments and the picture, for notebooks."""
        return result_html(repr(self), self.warnings, self.segment_rows(), self.plot())

    def _levels(self) -> Float[np.ndarray, "time columns"]:
        """The level at each position."""
        return np.concatenate(
            [
                np.stack([fitted(each, self.clock[start:end]) for each in descriptions], axis=1)
                for (start, end), descriptions in zip(self.bounds, self.descriptions, strict=True)
            ]
        )

    def changepoint_rows(self) -> list[dict[str, Any]]:
        """A row for each change point: its position, its time and its uncertainty."""
        rows = []
        for number, position in enumerate(self.changepoints.tolist()):
            row = {"position": position, **self._switch(number)}
            if self.series.times is not None:
                labels = self.series.times.labels
                row |= {
                    "time": labels[position],
                    "interval_begin_time": labels[row["interval_begin"]],
                    "interval_end_time": labels[row["interval_end"]],
                }
            rows.append(row)
        return rows

    def _switch(self, number: int) -> dict[str, Any]:
        """The uncertainty of a change point; empty for the start of the series, -1."""
        if number < 0:
            return dict.fromkeys(CHANGE_COLUMNS[1:])
        chance, reached = self.probability[number], self.interval_probability[number]
        cells = float(chance), *self.intervals[number].tolist(), float(reached)
        return dict(zip(CHANGE_COLUMNS[1:], cells, strict=True))

    @cached_property
    def descriptions(self) -> list[list[dict[str, float]]]:
        """Of each segment, the description of each column: level, slope and noise by name."""
        values = np.where(self.is_outlier, np.nan, self.series.values)
        rows = []
        for number, (start, end) in enumerate(self.bounds):
            families = self.families
            if self._kind_probs:
                best = int(self._kind_probs[number].argmax())
                kind: Segment = self.source.segment.kinds[best]  # type: ignore[attr-defined]
                families = (kind,) * len(families)
            rows.append(
                [
                    describe(family, values[start:end, column], self.clock[start:end])
                    for column, family in enumerate(families)
                ]
            )
        if any("slope" in each for row in rows for each in row) and self._kind_probs:
            rows = [[{"level": each["level"], "slope": 0.0} | each for each in row] for row in rows]
        return rows
