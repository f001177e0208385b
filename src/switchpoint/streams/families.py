"""Families of segments on the host: statistics of all hypotheses in NumPy, in double precision.

Statistics are a list of arrays whose last axis is the hypotheses; they are changed in place. The
formulas are those of `switchpoint.segments`; here they are vectorised by hand, and kept in the
form in which one more observation costs least.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from switchpoint.segments import (
    Dirichlet,
    Exponential,
    Gaussian,
    Independent,
    MarkovChain,
    NormalGamma,
    Poisson,
    Segment,
    Trend,
)
from switchpoint.segments.gaussian import MeanRun
from switchpoint.segments.markov_chain import ChainRun
from switchpoint.segments.normal_gamma import NormalGammaRun
from switchpoint.segments.poisson import GammaRun
from switchpoint.segments.trend import TrendRun

Floats: TypeAlias = Float[np.ndarray, "..."]
Table: TypeAlias = list[np.ndarray]
"""The statistics of all hypotheses."""


class Family(ABC):
    """A family of segments."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    @abstractmethod
    def initial(self) -> Table:
        """The statistics of a segment before its first observation, without hypotheses."""

    @abstractmethod
    def absorb(self, table: Table, x: Any) -> Floats:
        """ln p(x) under each hypothesis, whose statistics then include x."""

    def skip(self, table: Table) -> None:
        """Absorb a missing observation, which by default changes nothing."""
        del table

    @abstractmethod
    def statistics(self, table: Table) -> Any:
        """The statistics as those of `segment`, with hypotheses along the first axis."""


class SymbolFamily(Family):
    """A family of symbols, whose predictions are probabilities."""

    @abstractmethod
    def joint(self, table: Table, weights: Floats, out: "Joint") -> None:
        """Write weight times P(symbol | hypothesis), for each symbol and hypothesis, to `out`."""

    @abstractmethod
    def count(self, table: Table, symbol: int) -> None:
        """Absorb a symbol."""

    def absorb(self, table: Table, x: Any) -> Floats:
        joint = Joint(self.segment.alphabet, table[0].shape[-1])
        self.joint(table, np.ones(table[0].shape[-1]), joint)
        self.count(table, int(x))
        return np.log(joint.rows[int(x)])


def _run(kind: Any, *parts: np.ndarray) -> Any:
    """Statistics of a segment, in arrays of NumPy rather than of JAX."""
    return kind(*parts)


class Joint:
    """Joint probabilities of symbols and hypotheses, and a view of each symbol's row."""

    def __init__(self, symbols: int, hypotheses: int) -> None:
        self.array = np.zeros((symbols, hypotheses))
        self.rows = list(self.array)


def allocate(family: Family, count: int) -> Table:
    """The statistics of `count` segments before their first observation."""
    return [np.repeat(each[..., None], count, axis=-1) for each in family.initial()]


class DirichletFamily(Family):
    """Independent symbols: their counts with the pseudo-counts, and the sum of these.

    The counts are one array, or one array per symbol of a small alphabet.
    """

    def __init__(self, segment: Dirichlet) -> None:
        super().__init__(segment)
        self.pseudo = np.asarray(segment.pseudo_counts, np.float64)
        self.separate = len(self.pseudo) <= _FEW_SYMBOLS

    def initial(self) -> Table:
        counts = map(np.array, self.pseudo) if self.separate else [self.pseudo]
        return [*counts, np.array(self.pseudo.sum())]

    def absorb(self, table: Table, x: Any) -> Floats:
        counts, totals = self.counts(table), table[-1]
        logs = np.log(counts[int(x)] / totals)
        counts[int(x)] += 1
        totals += 1
        return logs

    def counts(self, table: Table) -> Any:
        """The counts of each symbol."""
        return table[:-1] if self.separate else table[0]

    def statistics(self, table: Table) -> Any:
        return np.stack(self.counts(table), axis=-1) - self.pseudo


_FEW_SYMBOLS = 4
_HALF = np.array(0.5)  # an array, which NumPy multiplies by faster than by a number
_ONE_MORE = np.array(1, np.intp)
_add, _subtract, _multiply, _divide = np.add, np.subtract, np.multiply, np.divide
_log1p = np.log1p  # found faster than in a module


class ChainFamily(SymbolFamily):
    """A Markov chain: transition counts, the context, and how much of it is known."""

    def __init__(self, segment: MarkovChain) -> None:
        super().__init__(segment)
        self.size, self.order = segment.size, segment.order
        self.contexts = segment.size**segment.order
        self.concentration = float(segment.concentration)

    def initial(self) -> Table:
        counts = np.full((self.contexts, self.size), self.concentration)
        return [counts, np.array(0.0), np.array(0.0)]

    def joint(self, table: Table, weights: Floats, out: Joint) -> None:
        counts, contexts, known = table
        out.array[:] = weights / self.size
        full, row = self._full(contexts, known)
        if full is not None:
            rows = counts[row][:, full]
            out.array[:, full] = rows * (weights[full] / rows.sum(0))

    def count(self, table: Table, symbol: int) -> None:
        counts, contexts, known = table
        full, row = self._full(contexts, known)
        if full is not None:
            counts[row, symbol, full] += 1
        contexts *= self.size
        contexts += symbol
        contexts %= self.contexts
        np.minimum(known + 1, self.order, out=known)

    def skip(self, table: Table) -> None:
        table[2][:] = 0

    def _full(self, contexts: Floats, known: Floats) -> tuple[np.ndarray | None, int]:
        """The hypotheses that know the whole context, and its row, which is the same for all."""
        full = np.flatnonzero(known >= self.order)
        return (full, int(contexts[full[0]])) if len(full) else (None, 0)

    def statistics(self, table: Table) -> Any:
        counts, contexts, known = table
        last = np.full((len(known), self.order), -1, np.int32)
        for lag in range(self.order):
            symbols = contexts // self.size**lag % self.size
            last[:, -1 - lag] = np.where(known > lag, symbols, -1)
        whole = np.rint(np.moveaxis(counts, -1, 0) - self.concentration).astype(np.int32)
        return _run(ChainRun, whole, last, last, known.astype(np.int32))


class GaussianFamily(Family):
    """Known noise: weight and mean."""

    def __init__(self, segment: Gaussian) -> None:
        super().__init__(segment)
        self.variance = float(segment.scale) ** 2
        self.first = (float(segment.scale) / float(segment.mean_scale)) ** 2

    def initial(self) -> Table:
        segment: Any = self.segment
        return [np.array(self.first), np.array(float(segment.mean))]

    def absorb(self, table: Table, x: float) -> Floats:
        weight, mean = table
        gap = x - mean
        variance = self.variance * (1 + 1 / weight)
        logs = -0.5 * (gap * gap / variance + np.log((2 * math.pi) * variance))
        weight += 1
        mean += gap / weight
        return logs

    def statistics(self, table: Table) -> Any:
        return _run(MeanRun, *table)


class _CountTable:
    """What the predictive of `NormalGamma` needs of a count, by count; it grows when asked to."""

    shared: ClassVar[WeakValueDictionary[tuple[float, float], "_CountTable"]] = (
        WeakValueDictionary()
    )
    """By strength and shape: one for all streams of equal segments, as it takes up to 3 MiB."""

    def __init__(self, strength: float, shape: float) -> None:
        self.strength, self.shape = strength, shape
        self.columns = self.compute(np.arange(64.0))

    @classmethod
    def of(cls, strength: float, shape: float) -> "_CountTable":
        """The table of these parameters."""
        return cls.shared.setdefault((strength, shape), cls(strength, shape))

    def up_to(self, largest: int) -> Floats:
        """The columns of all counts up to the largest one, or to a limit."""
        columns = self.columns  # which another thread may replace
        if columns.shape[1] <= largest < _LONGEST_TABLE:
            self.columns = columns = self.compute(np.arange(2.0 * largest))
        return columns

    def compute(self, count: Floats) -> Floats:
        """Old weight / new weight, shape + 1/2 and the log of the density's factor.

        The density is factor (2 rate)^-1/2 (1 + share gap^2 / (2 rate))^-(shape + 1/2).
        """
        weight, shape = self.strength + count, self.shape + count / 2
        share = weight / (weight + 1)
        factor = log_half_step(shape) + 0.5 * np.log(share / math.pi)
        return np.stack([share, shape + 0.5, factor])


class NormalGammaFamily(Family):
    """Unknown mean and noise: the count, the mean, and twice the rate with half its logarithm.

    What depends on the count alone is looked up.
    """

    def __init__(self, segment: NormalGamma) -> None:
        super().__init__(segment)
        self.shared = _CountTable.of(float(segment.strength), float(segment.shape))
        self.x = np.array(0.0)
        self._allocate(0)

    def _allocate(self, size: int) -> None:
        """Arrays for intermediate results."""
        self.looked_up = np.empty((3, size))
        self.rows = list(self.looked_up)
        self.gap, self.logs = np.empty((2, size))

    def initial(self) -> Table:
        segment: Any = self.segment
        twice = 2 * float(segment.rate)
        numbers = (float(segment.mean), twice, 0.5 * math.log(twice))
        return [np.array(0, np.intp), *map(np.array, numbers)]

    def absorb(self, table: Table, x: float) -> Floats:
        count, mean, twice, half_log = table
        share, power, factor = self._by_count(count)
        gap, logs, self.x[()] = self.gap, self.logs, x
        _subtract(self.x, mean, gap)
        _multiply(share, gap, share)
        _subtract(self.x, share, mean)
        _multiply(share, gap, share)  # the increment of twice the rate
        _divide(share, twice, logs)
        _log1p(logs, logs)
        _multiply(power, logs, power)
        _subtract(factor, power, factor)
        _subtract(factor, half_log, factor)
        _multiply(logs, _HALF, logs)
        _add(half_log, logs, half_log)
        _add(twice, share, twice)
        _add(count, _ONE_MORE, count)
        return factor

    def _by_count(self, count: np.ndarray) -> list[Floats]:
        """The columns of these counts, looked up, or computed where the table ends."""
        if len(count) != len(self.gap):
            self._allocate(len(count))
        largest = count.item(count.argmax())
        columns = self.shared.columns
        known = columns.shape[1]
        if largest >= known:
            columns = self.shared.up_to(largest)
            known = columns.shape[1]
        columns.take(count, 1, self.looked_up, "clip")  # the fastest mode
        if largest >= known:
            beyond = np.flatnonzero(count >= known)
            self.looked_up[:, beyond] = self.shared.compute(count[beyond].astype(np.float64))
        return self.rows

    def statistics(self, table: Table) -> Any:
        count, mean, twice, _ = table
        weight, shape = self.shared.strength + count, self.shared.shape + count / 2
        return _run(NormalGammaRun, weight, mean, shape, twice / 2)


_LONGEST_TABLE = 2**16
_SERIES_FROM = 32


def log_half_step(z: Floats) -> Floats:
    """ln Gamma(z + 1/2) - ln Gamma(z), to 14 digits for every z > 0."""
    large = np.maximum(z, _SERIES_FROM)
    inverse = 1 / large
    square = inverse * inverse
    series = -1 / 8 + square * (
        1 / 192 - square * (1 / 640 - square * (17 / 14336 - square * 31 / 18432))
    )
    logs = 0.5 * np.log(large) + inverse * series
    few = z < _SERIES_FROM
    if few.any():
        small = z[few]
        logs[few] = gammaln(small + 0.5) - gammaln(small)
    return logs


class PoissonFamily(Family):
    """Counts: the shape and the rate of a Gamma distribution."""

    def initial(self) -> Table:
        segment: Any = self.segment
        return [np.array(float(segment.shape)), np.array(float(segment.rate))]

    def absorb(self, table: Table, x: float) -> Floats:
        shape, rate = table
        logs = -shape * np.log1p(1 / rate)
        if x > 0:
            logs += log_rising(shape, x) - math.lgamma(x + 1) - x * np.log1p(rate)
        shape += x
        rate += 1
        return logs

    def statistics(self, table: Table) -> Any:
        return _run(GammaRun, *table)


def log_rising(z: Floats, x: float) -> Floats:
    """ln Gamma(z + x) - ln Gamma(z): by a product for a small whole x, which keeps the digits."""
    if x > 16:
        return gammaln(z + x) - gammaln(z)
    product = np.array(z)
    for i in range(1, int(x)):
        product *= z + i
    return np.log(product)


class ExponentialFamily(Family):
    """Waiting times: the shape and the rate of a Gamma distribution."""

    initial = PoissonFamily.initial
    statistics = PoissonFamily.statistics

    def absorb(self, table: Table, x: float) -> Floats:
        shape, rate = table
        logs = np.log(shape / rate) - (shape + 1) * np.log1p(x / rate)
        shape += 1
        rate += x
        return logs


class TrendFamily(Family):
    """A line and unknown noise, as in `TrendRun`."""

    def initial(self) -> Table:
        segment: Any = self.segment
        weight, spread = float(segment.level_scale) ** -2, float(segment.slope_scale) ** -2
        shape, rate, level = (float(each) for each in (segment.shape, segment.rate, segment.level))
        return [np.array(each) for each in (weight, 0.0, level, spread, 0.0, shape, rate, 0.0)]

    def absorb(self, table: Table, x: float) -> Floats:
        weight, time, level, spread, slope, shape, rate, duration = table
        ahead = duration - time
        gap = x - level - slope * ahead
        square = ahead * ahead
        factor = 1 + 1 / weight + square / spread
        between = gap * gap / factor
        logs = (
            log_half_step(shape)
            - 0.5 * np.log((2 * math.pi) * rate * factor)
            - (shape + 0.5) * np.log1p(0.5 * between / rate)
        )
        # The line after one more point: the means move, and the slope with them.
        share = weight / (weight + 1)
        level += (x - level) / (weight + 1)
        time += ahead / (weight + 1)
        spread += share * square
        slope += share * ahead * gap / spread
        weight += 1
        shape += 0.5
        rate += 0.5 * between
        duration += 1
        return logs

    def skip(self, table: Table) -> None:
        table[-1] += 1

    def statistics(self, table: Table) -> Any:
        return _run(TrendRun, *table)


class IndependentFamily(Family):
    """Several columns: the statistics of each after the other."""

    def __init__(self, segment: Independent) -> None:
        super().__init__(segment)
        self.columns = [make_family(column) for column in segment.columns]
        self.sizes = [len(column.initial()) for column in self.columns]

    def initial(self) -> Table:
        return [each for column in self.columns for each in column.initial()]

    def absorb(self, table: Table, x: Float[np.ndarray, " columns"]) -> Floats:
        total = np.zeros(table[0].shape[-1])
        for column, part, value in zip(self.columns, self._parts(table), x.tolist(), strict=True):
            if value != value:
                column.skip(part)
            else:
                total += column.absorb(part, value)
        return total

    def skip(self, table: Table) -> None:
        for column, part in zip(self.columns, self._parts(table), strict=True):
            column.skip(part)

    def _parts(self, table: Table) -> list[Table]:
        ends = np.cumsum(self.sizes).tolist()
        return [table[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]

    def statistics(self, table: Table) -> Any:
        parts = zip(self.columns, self._parts(table), strict=True)
        return tuple(column.statistics(part) for column, part in parts)


class CompiledFamily(Family):
    """A user's own family, by compiled programs in double precision."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        with jax.enable_x64(True):
            self.structure = jax.tree.structure(segment.initial())

    def initial(self) -> Table:
        with jax.enable_x64(True):
            return [np.array(leaf) for leaf in jax.tree.leaves(self.segment.initial())]

    def absorb(self, table: Table, x: Any) -> Floats:
        with jax.enable_x64(True):
            logs, statistics = _absorb(self.segment, self.statistics(table), np.asarray(x, float))
            for array, leaf in zip(table, jax.tree.leaves(statistics), strict=True):
                array[...] = np.moveaxis(np.asarray(leaf), 0, -1)
            return np.array(logs)

    def skip(self, table: Table) -> None:
        self.absorb(table, np.full(self.segment.event, np.nan))

    def statistics(self, table: Table) -> Any:
        leaves = [np.moveaxis(array, -1, 0) for array in table]
        return jax.tree.unflatten(self.structure, leaves)


class CompiledSymbolFamily(CompiledFamily, SymbolFamily):
    """A user's own family of symbols."""

    def joint(self, table: Table, weights: Floats, out: Joint) -> None:
        with jax.enable_x64(True):
            probs = np.asarray(_probs(self.segment, self.statistics(table)), np.float64)
        np.multiply(probs.T, weights, out.array)

    def count(self, table: Table, symbol: int) -> None:
        CompiledFamily.absorb(self, table, float(symbol))


@jax.jit
def _absorb(segment: Segment, statistics: Any, x: Any) -> tuple[Any, Any]:
    return (
        jax.vmap(segment.log_density, in_axes=(0, None))(statistics, x),
        jax.vmap(segment.observe, in_axes=(0, None))(statistics, x),
    )


@jax.jit
def _probs(segment: Segment, statistics: Any) -> Any:
    def probs(statistics: Any) -> Any:
        predictive: Any = segment.predictive(statistics)
        return jnp.asarray(predictive.probs)

    return jax.vmap(probs)(statistics)


_FAMILIES: Mapping[type[Segment], Callable[[Any], Family]] = {
    MarkovChain: ChainFamily,
    Gaussian: GaussianFamily,
    NormalGamma: NormalGammaFamily,
    Poisson: PoissonFamily,
    Exponential: ExponentialFamily,
    Trend: TrendFamily,
    Independent: IndependentFamily,
}


def make_family(segment: Segment) -> Family:
    """The code of a segment model on the host; a class that is not ours is compiled."""
    if isinstance(segment, Dirichlet):  # whose subclasses only choose the pseudo-counts
        return DirichletFamily(segment)
    if type(segment) in _FAMILIES:
        return _FAMILIES[type(segment)](segment)
    return (CompiledSymbolFamily if segment.finite else CompiledFamily)(segment)
