"""The interface of the engines of streams, and how they check observations."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from switchpoint import _checks
from switchpoint._tensors import DamagedError
from switchpoint.segments import Segment
from switchpoint.segments.distributions import Support
from switchpoint.segments.values import LARGEST as LARGEST_BY_BYTES
from switchpoint.segments.values import checked_value, checked_values, families_by_column

LARGEST = LARGEST_BY_BYTES[8]  # in double precision

Floats: TypeAlias = Float[np.ndarray, " starts"]

_NUMBERS: set[Any] = {float, int}
_NUMPY_NUMBERS: set[Any] = {
    *(np.float64, np.float32, np.float16),
    *(np.int64, np.int32, np.int16, np.uint8),
}
_FEW = 8  # numbers whose logarithms are faster one by one
FEW = 2048  # numbers that are summed on one core
_log = math.log


class Runs(NamedTuple):
    """A distribution of run lengths."""

    lengths: Floats
    probabilities: Floats
    spreads: Floats | None = None
    """By how much each length may be shorter or longer, with equal probability; None if not."""

    def at_most(self, last: int) -> float:
        """P(the length is at most `last`)."""
        if self.spreads is None:
            shares = (self.lengths <= float(last)).astype(np.float64)  # faster than an integer
        else:
            shares = (last + 1 - (self.lengths - self.spreads)) / (2 * self.spreads + 1)
            shares = np.clip(shares, 0.0, 1.0)
        return float(sum_of_products(self.probabilities, shares))

    def mean(self) -> float:
        """E[the length]."""
        return float(sum_of_products(self.lengths, self.probabilities))

    def mode(self) -> int:
        """The most probable length."""
        each = self.probabilities
        if self.spreads is not None:
            each = each / (2 * self.spreads + 1)
        return int(self.lengths.item(each.argmax()))


class Slots(NamedTuple):
    """Hypotheses about the start of the current segment, by slot."""

    starts: Floats
    spreads: Floats
    """How far the starts that share a slot reach to either side of the one in `starts`."""
    joint: Floats
    """P(the segment of the last observation started there | all so far), but for a factor."""
    log_weights: Floats
    """ln P(the segment of the next observation starts there | all so far)."""
    last_starts: Floats
    """The starts to which `joint` belongs: a new hypothesis may have replaced another."""
    last_spreads: Floats
    statistics: list[np.ndarray]
    """The leaves of the statistics since the start, with the slots along their first axis."""


class Engine(ABC):
    """The state of one stream, changed in place.

    What `predict` returns, and the log densities, are a function of the observations alone: it
    makes no difference whether they come one at a time or in chunks.
    """

    name: ClassVar[str]
    """What a saved stream calls it."""
    position: int = 0
    """The number of observations so far, missing ones included."""
    log_evidence: float = 0.0
    """The sum of the log densities of all observations so far."""
    outlier_evidence: float = 0.0
    """ln f_0(x) / f(x) of the last observation under the most probable segment, if it is above 0
    and a rule for outliers leaves such observations out of the statistics."""

    @abstractmethod
    def predict(self) -> Any:
        """ln P(x = k) of the next observation, or its distribution."""

    @abstractmethod
    def update(self, x: Any) -> float:
        """Check one observation, and absorb it: its log density."""

    @abstractmethod
    def extend(self, xs: Any) -> Float[np.ndarray, " time"]:
        """Check observations, and absorb them: their log densities."""

    def check_length(self, length: int) -> None:  # noqa: B027
        """Raise a `ValueError` where a stream cannot be so long."""

    _known: tuple[int, Runs] | None = None
    """The position and the result of the last call of `runs`."""

    def runs(self) -> Runs:
        """The possible lengths of the current segment given all observations so far.

        Before the first observation, the length 0.
        """
        if self._known is None or self._known[0] != self.position:
            self._known = self.position, self._runs()
        return self._known[1]

    @abstractmethod
    def _runs(self) -> Runs:
        """The same, computed."""

    def probability_since(self, since: int) -> float:
        """P(the current segment started at `since`, which is at least 1, or later | all so far)."""
        return self.runs().at_most(self.position - since)

    @abstractmethod
    def levels(self, since: int) -> tuple[Any, Any]:
        """The mean of the next observation in a segment that started before a time, and since."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The state as arrays, to be saved."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a saved state; a `DamagedError` says why it does not fit."""

    def adopt(self, slots: Slots, gap: Floats) -> None:
        """Take over hypotheses, and the last run of missing observations; `position` is set."""
        raise NotImplementedError


class HostEngine(Engine):
    """An engine for the observations of a segment model, of which any may be missing."""

    def __init__(self, segment: Segment, columns: tuple[str, ...] | None = None) -> None:
        self.segment = segment
        self.columns = columns
        self.scalar = not segment.event_shape
        supports = [family.support for family in families_by_column(segment)]
        self._supports = [
            Support(max(each.least, -LARGEST), min(each.most, LARGEST), each.whole)
            for each in supports
        ]
        # An attribute of a segment model takes as long as a formula.
        self._columns = range(0 if self.scalar or segment.complete_rows else len(supports))
        """The columns, if rows of numbers need no conversion."""

    @abstractmethod
    def step(self, x: Any) -> float:
        """Absorb a float, NaN if it is missing, or an array of them: its log density."""

    def update(self, x: Any) -> float:
        if x.__class__ in _NUMPY_NUMBERS:
            x = x.item()
        if x.__class__ in _NUMBERS and self.scalar and self._is_possible(x):
            x = float(x)
        else:
            x = self._checked(x)
        log_density = self.step(x)
        self.log_evidence += log_density
        return log_density

    def extend(self, xs: Any) -> Float[np.ndarray, " time"]:
        rows, logs = self._checked_all(xs), []
        if len(rows):
            self.check_length(self.position + len(rows))
        step, total = self.step, self.log_evidence
        try:
            for x in rows:
                log_density = step(x)
                total += log_density
                logs.append(log_density)
        finally:
            self.log_evidence = total
        return np.array(logs, np.float64)

    def _is_plain(self, x: Any, column: int) -> bool:
        """Whether an entry of a row needs no conversion: NaN, or a number that the family has."""
        return x.__class__ in _NUMBERS and (x != x or self._is_possible(x, column))

    def _is_possible(self, x: float, column: int = 0) -> bool:
        """Whether the family has this number, which is not missing."""
        least, most, whole = self._supports[column]
        return least <= x <= most and not (whole and x % 1)

    def _checked(self, x: Any) -> Any:
        if not self.scalar:
            if x.__class__ is not tuple:
                x = self._row(x)
            known = isinstance(x, list | tuple) and 0 < len(x) == len(self._columns)
            if known and all(map(self._is_plain, x, self._columns)):
                return np.array(x, np.float64)
        elif _checks.is_missing(x):
            return math.nan
        with jax.enable_x64(True):  # larger values are fine in double precision
            value = np.asarray(checked_value(self.segment, x), np.float64)
        return float(value) if self.scalar else value

    def _checked_all(self, xs: Any) -> Any:
        """Observations as a list of floats, or as an array of rows."""
        if isinstance(xs, Iterable) and not hasattr(xs, "__len__"):
            xs = list(xs)
        columns, name = len(self.segment.event_shape), "symbols" if self.segment.finite else "xs"
        array = _checks.numbers(xs if self.scalar else self._rows(xs), name, columns)
        if array.ndim == 0:
            raise ValueError(f"xs must be a list of observations, got {_checks.shown(xs)}")
        if len(array) == 0:
            return []
        if array.ndim > 1 + columns:
            raise ValueError(f"xs must be observations of one stream, got shape {array.shape}")
        with jax.enable_x64(True):
            values = np.asarray(checked_values(self.segment, array, name))
        return values.tolist() if self.scalar else values

    def _rows(self, xs: Any) -> Any:
        """Observations of several columns; those of a DataFrame in the order of their names."""
        if not hasattr(xs, "to_numpy"):
            return [self._row(x) for x in xs] if isinstance(xs, Iterable) else xs
        if self.columns is None or not hasattr(xs, "columns"):
            return xs
        given = {name: xs[name].to_numpy() for name in xs.columns}
        self._row(dict.fromkeys(given))  # refuses other names
        missing = np.full(len(xs), math.nan)
        return np.column_stack([given.get(name, missing) for name in self.columns])

    def _row(self, x: Any) -> Any:
        """An observation of several columns, which may be a mapping from names or numbers."""
        count = self.segment.event_shape[0]
        if _checks.is_missing(x):
            return [math.nan] * count
        if self.columns is not None and hasattr(x, "to_dict"):  # a row of a DataFrame
            named = x.to_dict()
            x = named if set(named) <= set(self.columns) else x
        if not isinstance(x, Mapping):
            return x.tolist() if isinstance(x, np.ndarray) else x
        names: Iterable[Any] = range(count) if self.columns is None else self.columns
        row: dict[Any, Any] = dict.fromkeys(names, math.nan)
        for name, value in x.items():
            if name not in row:
                known = ", ".join(map(repr, row))
                remedy = "" if self.columns else "; name the columns: Stream(predictor, columns=)"
                raise ValueError(f"column must be one of {known}, got {name!r}{remedy}")
            row[name] = math.nan if _checks.is_missing(value) else value
        return list(row.values())


class SymbolEngine(HostEngine):
    """An engine for symbols of a finite alphabet."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        self._symbols = {symbol: symbol for symbol in range(segment.alphabet)}

    @abstractmethod
    def step(self, x: int) -> float:
        """Absorb a symbol, or a missing one if it is negative: its log probability."""

    def update(self, x: Any) -> float:
        try:
            symbol = self._symbols[x]  # numbers of all types that are equal have one hash
        except (KeyError, TypeError):
            (symbol,) = _with_gaps([self._checked(x)])
        log_prob = self.step(symbol)
        self.log_evidence += log_prob
        return log_prob

    def _checked_all(self, xs: Any) -> list[int]:
        return _with_gaps(super()._checked_all(xs))


def _with_gaps(symbols: Sequence[float]) -> list[int]:
    """Symbols as integers, and -1 where one is missing."""
    array = np.array(symbols, np.float64)
    return np.where(np.isnan(array), -1, array).astype(np.int64).tolist()


def split_levels(
    starts: Floats, weights: Floats, probs: Float[np.ndarray, "starts alphabet"], since: int
) -> tuple[Float[np.ndarray, " alphabet"], Float[np.ndarray, " alphabet"]]:
    """The probabilities of symbols by hypotheses that started before a time, and since."""
    sides = starts < since, starts >= since
    with np.errstate(invalid="ignore"):
        before, after = (weights[side] @ probs[side] / weights[side].sum() for side in sides)
    return before, after


def sum_of_products(left: np.ndarray, right: Floats) -> Any:
    """The product of an array with a vector.

    A large one would be divided among cores, and rounded differently on another number of them.
    """
    return left.dot(right) if left.size <= FEW else np.add.reduce(left * right, -1)


def log_ratios(parts: Sequence[float], total: float) -> Float[np.ndarray, " parts"]:
    """ln (part / total) of each part."""
    if len(parts) == 2:  # faster than an array from a list
        logs = np.empty(2)
        logs[0], logs[1] = _log(parts[0] / total), _log(parts[1] / total)
        return logs
    if len(parts) > _FEW:
        return np.log(np.array(parts) / total)
    return np.array([_log(part / total) for part in parts])


def check_arrays(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int | None, ...]]
) -> None:
    """Raise a `DamagedError` unless these are float64 arrays of these shapes; None is any size."""
    if set(arrays) != set(expected):
        odd = ", ".join(sorted(set(arrays) ^ set(expected))[:3])
        raise DamagedError(f"its arrays are not those of its predictor: {odd}")
    for name, shape in expected.items():
        array = arrays[name]
        fits = len(array.shape) == len(shape) and all(
            size in (None, actual) for size, actual in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype != np.float64:
            raise DamagedError(f"its array {name} is {array.dtype} of shape {array.shape}")
