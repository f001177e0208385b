"""What runs a stream: one engine per kind of predictor, chosen once."""

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
from switchpoint.segments.values import checked_value, checked_values

LARGEST = LARGEST_BY_BYTES[8]  # in double precision

Floats: TypeAlias = Float[np.ndarray, " starts"]


class Runs(NamedTuple):
    """A distribution of run lengths."""

    lengths: Floats
    probabilities: Floats
    spreads: Floats | float = 0.0
    """By how much each length may be shorter or longer: all of these are equally probable."""

    def at_most(self, last: int) -> Floats:
        """P(the length is at most `last`), of the part of each of the `lengths`."""
        shares = (last + 1 - (self.lengths - self.spreads)) / (2 * self.spreads + 1)
        return self.probabilities * np.clip(shares, 0.0, 1.0)


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

    @abstractmethod
    def runs(self) -> Runs:
        """The possible lengths of the current segment given all observations so far.

        Before the first observation, the length 0.
        """

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The state as arrays, to be saved."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a saved state; a `DamagedError` says why it does not fit."""


class SymbolEngine(Engine):
    """An engine for symbols of a finite alphabet, of which any may be missing."""

    def __init__(self, alphabet: int) -> None:
        self.alphabet = alphabet
        self._symbols = {symbol: symbol for symbol in range(alphabet)}

    @abstractmethod
    def step(self, symbol: int) -> float:
        """Absorb a symbol, or a missing one if it is negative: its log probability."""

    def update(self, x: Any) -> float:
        try:
            symbol = self._symbols[x]  # numbers of all types that are equal have one hash
        except (KeyError, TypeError):
            symbol = self._checked(x)
        log_prob = self.step(symbol)
        self.log_evidence += log_prob
        return log_prob

    def extend(self, xs: Any) -> Float[np.ndarray, " time"]:
        symbols, logs = self._checked_all(xs), []
        if symbols:
            self.check_length(self.position + len(symbols))
        step, total = self.step, self.log_evidence
        try:
            for symbol in symbols:
                log_prob = step(symbol)
                total += log_prob
                logs.append(log_prob)
        finally:
            self.log_evidence = total
        return np.array(logs, np.float64)

    def _checked(self, x: Any) -> int:
        if _checks.is_missing(x):
            return -1
        symbol: Any = _checks.symbol(x, self.alphabet)
        return int(symbol)

    def _checked_all(self, xs: Any) -> list[int]:
        array = _as_values(xs)
        if array.size == 0:
            return []
        if array.ndim != 1:
            raise ValueError(f"xs must be a list of symbols, got shape {array.shape}")
        gaps = None
        if _checks.has_missing(array):
            gaps = np.array([_checks.is_missing(x) for x in array.tolist()])
            array = np.array([0 if gap else x for gap, x in zip(gaps, array.tolist(), strict=True)])
        symbols = _checks.known_symbols(array, self.alphabet, "symbols").astype(np.int64)
        if gaps is not None:
            symbols[gaps] = -1
        return symbols.tolist()


class ValueEngine(Engine):
    """An engine for numbers, or for vectors of several columns."""

    def __init__(self, segment: Segment, columns: tuple[str, ...] | None) -> None:
        self.segment = segment
        self.columns = columns
        self.scalar = not segment.event_shape
        self._every_number = segment.support == Support()

    @abstractmethod
    def step(self, x: Any) -> float:
        """Absorb a float, NaN if it is missing, or an array of them: its log density."""

    def update(self, x: Any) -> float:
        if x.__class__ in _NUMPY_NUMBERS:
            x = x.item()
        number = x.__class__ in _NUMBERS and self.scalar
        if not (number and -LARGEST <= x <= LARGEST and self._is_possible(x)):
            x = self._checked(x)
        log_density = self.step(x)
        self.log_evidence += log_density
        return log_density

    def extend(self, xs: Any) -> Float[np.ndarray, " time"]:
        several = bool(self.segment.event_shape)
        array = _as_values(self._rows(xs) if several else xs, several)
        if array.ndim == 0:
            raise ValueError(f"xs must be a list of observations, got {_checks.shown(xs)}")
        if len(array) == 0:
            return np.zeros(0)
        self.check_length(self.position + len(array))
        with jax.enable_x64(True):
            values = np.asarray(checked_values(self.segment, array))
        if values.ndim != 1 + len(self.segment.event_shape):
            raise ValueError(f"xs must be observations of one stream, got shape {values.shape}")
        rows: Any = values if self.segment.event_shape else values.tolist()
        logs = []
        for x in rows:
            log_density = self.step(x)
            self.log_evidence += log_density
            logs.append(log_density)
        return np.array(logs, np.float64)

    def _is_possible(self, x: float) -> bool:
        """Whether the family has this finite number."""
        return self._every_number or bool(self.segment.support.contains(x))

    def _checked(self, x: Any) -> Any:
        if self.segment.event_shape:
            x = self._row(x)
        elif _checks.is_missing(x):
            return math.nan
        with jax.enable_x64(True):  # larger values are fine in double precision
            value = np.asarray(checked_value(self.segment, x), np.float64)
        return value if self.segment.event_shape else float(value)

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
        if _checks.is_missing(x):
            return [math.nan] * self.segment.event_shape[0]
        if self.columns is not None and hasattr(x, "to_dict"):  # a row of a DataFrame
            named = x.to_dict()
            x = named if set(named) <= set(self.columns) else x
        if not isinstance(x, Mapping):
            return x
        count = self.segment.event_shape[0]
        names: Iterable[Any] = range(count) if self.columns is None else self.columns
        order = {name: index for index, name in enumerate(names)}
        row: list[Any] = [math.nan] * count
        for name, value in x.items():
            if name not in order:
                known = ", ".join(map(repr, order))
                remedy = "" if self.columns else "; name the columns: Stream(predictor, columns=)"
                raise ValueError(f"column must be one of {known}, got {name!r}{remedy}")
            row[order[name]] = math.nan if _checks.is_missing(value) else value
        return row


_NUMBERS = {float, int}
_NUMPY_NUMBERS: set[Any] = {
    *(np.float64, np.float32, np.float16),
    *(np.int64, np.int32, np.int16, np.uint8),
}


def _as_values(xs: Any, several: bool = False) -> np.ndarray:
    """Observations as an array; None and NA are kept as objects.

    A DataFrame must have one column, unless observations have several.
    """
    if isinstance(xs, Iterable) and not hasattr(xs, "__len__"):
        xs = list(xs)
    frame = hasattr(xs, "columns") and hasattr(xs, "to_numpy")
    if isinstance(xs, list | tuple) or (frame and not several):
        array = _checks.as_array(xs, "xs")
    else:
        array = _checks.array_of(xs.to_numpy() if hasattr(xs, "to_numpy") else xs)
    if array.dtype == object:
        flat = [math.nan if _checks.is_missing(x) else x for x in array.ravel().tolist()]
        array = _checks.array_of(flat).reshape(array.shape)
    return array


def log_ratios(parts: Sequence[float], total: float) -> Float[np.ndarray, " parts"]:
    """ln (part / total) of each part."""
    if len(parts) == 2:  # faster than an array from a list
        logs = np.empty(2)
        logs[0], logs[1] = _log(parts[0] / total), _log(parts[1] / total)
        return logs
    if len(parts) > _FEW:
        return np.log(np.array(parts) / total)
    return np.array([_log(part / total) for part in parts])


_FEW = 8
_log = math.log


def check_arrays(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int | None, ...]]
) -> None:
    """Raise a `DamagedError` unless these are float64 arrays of these shapes; None is any size."""
    if set(arrays) != set(expected):
        odd = ", ".join(sorted(set(arrays) ^ set(expected))[:3])
        raise DamagedError(f"its arrays are not those of its predictor: {odd}")
    for name, shape in expected.items():
        found = arrays[name]
        fits = len(found.shape) == len(shape) and all(
            size in (None, own) for size, own in zip(shape, found.shape, strict=True)
        )
        if not fits or found.dtype != np.float64:
            raise DamagedError(f"its array {name} is {found.dtype} of shape {found.shape}")
