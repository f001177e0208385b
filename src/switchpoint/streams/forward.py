"""The forward recursion on the host: hypotheses about the start of the current segment.

Arrays have a slot for every hypothesis, and are changed in place. For symbols, weights are
probabilities, which take neither logarithms nor exponentials: products, quotients and sums alone.
Sums are products of matrices and vectors, the fastest of all, whose order depends on the machine's
BLAS; they decide only the prediction and the weights of new hypotheses, so that rounding does not
accumulate.
For values, weights are logarithms, since a single value can rule a hypothesis out by any factor.
"""

import math
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from switchpoint._tensors import DamagedError
from switchpoint.exact import ForwardPredictor, PTWPredictor
from switchpoint.streams.engine import Engine, SymbolEngine, ValueEngine, check_arrays, log_ratios
from switchpoint.streams.families import (
    DirichletFamily,
    Family,
    Joint,
    SymbolFamily,
    Table,
    allocate,
)
from switchpoint.streams.laws import Memoryless, make_law
from switchpoint.streams.predictive import Predictive

Exact: TypeAlias = ForwardPredictor | PTWPredictor
Slots: TypeAlias = Float[np.ndarray, " slots"]

_FIRST_CAPACITY = 16
_NONE = (2**62, 0.0, 0.0)  # no slot
_SMALL = 1e-60  # a sum of weights below which they are rescaled
_LEAST = 1e-200  # a sum of exponentials that has lost digits
_FEW = 2048  # numbers that are summed on one core
_LARGE = 100.0  # the logarithm of a sum of weights beyond which they are rescaled
_ONE = np.array(1.0)  # an array, which NumPy adds faster than a number
_add, _subtract, _multiply, _divide = np.add, np.subtract, np.multiply, np.divide
_exp = np.exp  # found faster than in a module


class Hypotheses(Engine):
    """Slots for hypotheses: their starts, their weights, and the statistics since the start."""

    nothing: float
    """The weight of a slot that is not used."""

    def __init__(self, predictor: Exact, family: Family) -> None:
        self.prior = predictor.prior
        law = make_law(predictor.prior)
        self.memoryless = law if isinstance(law, Memoryless) else None
        self.law = None if isinstance(law, Memoryless) else law
        self.family = family
        self.first = family.initial()
        most = getattr(predictor, "max_hypotheses", None)
        bounds = [bound for bound in (most, predictor.prior.max_length) if bound is not None]
        self.most = min(bounds, default=math.inf)
        self.limit = predictor.prior.max_sequence or math.inf
        self.starts = np.zeros(0)
        self.weights = np.zeros(0)
        self.table = allocate(family, 0)
        self._grow()
        self.used = 1
        self.replaced = _NONE
        """The slot that the last new segment took, and the start and weight that it had before."""

    def _grow(self) -> None:
        capacity = len(self.weights)
        more = int(min(max(capacity, _FIRST_CAPACITY), self.most - capacity))
        self.starts = np.append(self.starts, np.zeros(more))
        self.weights = np.append(self.weights, np.full(more, self.nothing))
        self._ones = np.ones(len(self.weights))
        self._room = np.empty(len(self.weights))  # for the joint probabilities
        fresh = allocate(self.family, more)
        self._hold([np.append(a, b, axis=-1) for a, b in zip(self.table, fresh, strict=True)])

    def _hold(self, table: Table) -> None:
        """Take over the statistics of as many hypotheses as there are slots."""
        self.table = table
        by_slot = [np.moveaxis(array, -1, 0) for array in table]
        # Numbers are stored faster than arrays without axes.
        first: list[Any] = [each if each.ndim else each.item() for each in self.first]
        self.cells = list(zip(by_slot, first, strict=True))

    def _enter(self, weight: float) -> float:
        """Find a slot for a segment that starts now: the weight that is dropped for want of one.

        That of the lightest hypothesis, or its own; none if a slot is free, or can be added.
        """
        self.replaced = _NONE
        if weight <= self.nothing:
            return self.nothing
        weights = self.weights
        slot, dropped = self.used, self.nothing
        if slot < len(weights):
            self.used += 1
        else:
            slot = int(weights.argmin())
            dropped = weights.item(slot)
            if dropped > self.nothing and len(weights) < self.most:
                slot, dropped = len(weights), self.nothing
                self._grow()
                self.used += 1
                weights = self.weights
        if weight <= dropped:
            return weight
        self.replaced = (slot, self.starts.item(slot), dropped)
        weights[slot] = weight
        self.starts[slot] = self.position
        for array, first in self.cells:
            array[slot] = first
        return dropped

    def check_length(self, length: int) -> None:
        self.prior.check_length(length)

    def runs(self) -> tuple[Slots, Slots]:
        starts, joint = self._given_all()
        return self.position - starts, joint / math.fsum(joint)

    def _given_all(self) -> tuple[Slots, Slots]:
        """The starts before the last one was entered, and their weights given all observations."""
        joint = self.joint.copy()
        starts = self.starts[: len(joint)].copy()
        slot, start, weight = self.replaced
        if slot < len(joint):
            starts[slot] = start
            if self.joint is self.weights:
                joint[slot] = weight
        return starts, joint

    def arrays(self) -> dict[str, np.ndarray]:
        last_starts, joint = self._given_all()
        return {
            "starts": self.starts[: self.used],
            "weights": self.weights[: self.used],
            "last_starts": last_starts[: self.used],
            "joint": joint[: self.used],
            **{
                f"statistics_{i}": array[..., : self.used].astype(np.float64)
                for i, array in enumerate(self.table)
            },
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        shapes: dict[str, tuple[int | None, ...]] = {
            f"statistics_{i}": (*first.shape, None) for i, first in enumerate(self.first)
        }
        own = dict.fromkeys(("starts", "weights", "last_starts", "joint"), (None,))
        check_arrays(arrays, {**own, **shapes})
        count = len(arrays["weights"])
        sizes = {array.shape[-1] for name, array in arrays.items() if name in shapes}
        if sizes != {count} or len(arrays["starts"]) != count or not 0 < count <= self.most:
            raise DamagedError(f"its arrays are of {sizes} hypotheses, not of {count}")
        while len(self.weights) < count:
            self._grow()
        self.used = count
        self.starts[:count], self.weights[:count] = arrays["starts"], arrays["weights"]
        for i, array in enumerate(self.table):
            array[..., :count] = arrays[f"statistics_{i}"]
        # At most one slot was taken since: the one whose start differs.
        self.joint, last = arrays["joint"].copy(), arrays["last_starts"]
        changed = np.flatnonzero(last != self.starts[: len(last)])
        self.replaced = _NONE
        if len(changed):
            self.replaced = (int(changed[0]), float(last[changed[0]]), 0.0)


class SymbolHypotheses(Hypotheses, SymbolEngine):
    """The recursion over symbols, whose weights are proportional to probabilities."""

    name = "symbols"
    nothing = 0.0

    def __init__(self, predictor: Exact, family: Family) -> None:
        SymbolEngine.__init__(self, predictor.alphabet)
        Hypotheses.__init__(self, predictor, family)
        self.weights[0] = 1.0
        self.joint = self.weights.copy()
        self.odds = self.memoryless.ends / self.memoryless.stays if self.memoryless else 0.0
        self._sums: list[float] = []  # of the joint probabilities, once computed
        self._total = 0.0

    @abstractmethod
    def _joint_sums(self) -> list[float]:
        """P(the next symbol is k) for each k, but for a common factor."""

    @abstractmethod
    def _absorb(self, symbol: int) -> Slots:
        """The joint probabilities of a symbol and each hypothesis, whose statistics have it then.

        The array is changed by the next call, not before.
        """

    def _skip(self) -> None:
        """Absorb a missing symbol."""
        self.family.skip(self.table)

    def _runs(self) -> Slots:
        """The lengths of the current segment up to now."""
        return self.position - self.starts

    def _mix(self) -> list[float]:
        self._sums = sums = self._joint_sums()
        self._total = sums[0] + sums[1] if len(sums) == 2 else math.fsum(sums)
        return sums

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        sums = self._sums or self._mix()
        return log_ratios(sums, self._total)

    def step(self, symbol: int) -> float:
        if self.position >= self.limit:
            self.check_length(self.position + 1)
        if symbol < 0:
            log_prob, joint, norm = 0.0, self.weights.copy(), float(np.add.reduce(self.weights))
            self._skip()
        else:
            sums = self._sums or self._mix()
            norm = sums[symbol]
            log_prob = math.log(norm / self._total)
            joint = self._absorb(symbol)
            if norm < _SMALL:
                scale = 2.0 ** -math.frexp(norm)[1]  # exact, on every machine
                _multiply(joint, np.array(scale), joint)
                norm *= scale
        self._sums = []
        self.joint = joint
        self.position += 1
        if self.law is None:
            self.weights = joint
            self._enter(norm * self.odds)  # instead of all others times `stays`
            return log_prob
        ends, stays = self.law(self.starts, self._runs())
        entering = float(_sum_of_products(joint, ends))
        if stays is None:
            _multiply(joint, ends, ends)
            self.weights = _subtract(joint, ends, ends)
        else:
            self.weights = joint * stays
        self._enter(entering)
        return log_prob

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(arrays)
        self._sums = []


class FamilyHypotheses(SymbolHypotheses):
    """The recursion over symbols of any family."""

    family: SymbolFamily

    def _hold(self, table: Table) -> None:
        super()._hold(table)
        # Two, since `joint` is a row of the one that was used last.
        self._next, self._last = (Joint(self.alphabet, len(self.weights)) for _ in range(2))

    def _joint_sums(self) -> list[float]:
        self._next, self._last = self._last, self._next
        self.family.joint(self.table, self.weights, self._next)
        sums: list[float] = _sum_of_products(self._next.array, self._ones).tolist()
        return sums

    def _absorb(self, symbol: int) -> Slots:
        self.family.count(self.table, symbol)
        return self._next.rows[symbol]


class CountHypotheses(SymbolHypotheses):
    """The recursion over independent symbols: P(k) = count of k / total.

    Counts, totals and run lengths are the rows of one array: a symbol adds to all in one sum.
    """

    family: DirichletFamily

    def _hold(self, table: Table) -> None:
        rows = np.array([*self.family.counts(table), table[-1], self.position - self.starts])
        counts, totals, self._run_lengths = rows[:-2], rows[-2], rows[-1]
        separate, shares, sums = self.family.separate, np.empty_like(totals), np.empty(len(counts))
        super()._hold([*(counts if separate else [counts]), totals])
        self.cells.append((self._run_lengths, 0.0))
        # What the methods below need, in one attribute: they are called for every symbol.
        add_up = counts.dot if counts.size <= _FEW else partial(_add_up, counts)
        self._to_mix = totals, shares, sums, add_up
        by_symbol = np.append(np.eye(len(counts)), np.ones((len(counts), 2)), axis=1)
        increments = [np.repeat(each, len(totals)) for each in by_symbol] if separate else None
        self._to_absorb = list(counts), shares, self._room, rows.ravel(), increments

    def _joint_sums(self) -> list[float]:
        totals, shares, sums, add_up = self._to_mix
        _divide(self.weights, totals, shares)
        add_up(shares, sums)
        return sums.tolist()

    def _absorb(self, symbol: int) -> Slots:
        rows, shares, room, everything, increments = self._to_absorb
        row = rows[symbol]
        joint = _multiply(shares, row, room)
        if increments is not None:
            _add(everything, increments[symbol], everything)
        else:
            _add(row, _ONE, row)
            always = everything[-2 * len(row) :]
            _add(always, _ONE, always)
        return joint

    def _skip(self) -> None:
        _add(self._run_lengths, _ONE, self._run_lengths)

    def _runs(self) -> Slots:
        return self._run_lengths

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(arrays)
        self._run_lengths[:] = self.position - self.starts


class ValueHypotheses(Hypotheses, ValueEngine):
    """The recursion over values, whose weights are logarithms."""

    name = "values"
    nothing = -math.inf

    def __init__(self, predictor: Exact, family: Family, columns: tuple[str, ...] | None) -> None:
        ValueEngine.__init__(self, predictor.segment, columns)
        Hypotheses.__init__(self, predictor, family)
        self.weights[0] = 0.0
        self.joint = np.exp(self.weights)
        self.norm = 0.0
        """The logarithm of the sum of the weights."""
        if self.memoryless:
            ends, stays = self.memoryless
            self.log_odds, self.log_stays = math.log(ends / stays), math.log(stays)
        self._predicted: weakref.ref[Predictive] | None = None

    def predict(self) -> Predictive:
        predictive = None if self._predicted is None else self._predicted()
        if predictive is None:
            predictive = Predictive(self.family, self.weights, self.table)
            self._predicted = weakref.ref(predictive)
        return predictive

    def step(self, x: Any) -> float:
        if self.position >= self.limit:
            self.check_length(self.position + 1)
        if self._predicted is not None:
            predictive = self._predicted()
            if predictive is not None:
                predictive.detach()  # it is still in use, and the arrays are about to change
            self._predicted = None
        weights, top = self.weights, 0.0
        missing = x != x if self.scalar else np.isnan(x).all()
        if missing:
            self.family.skip(self.table)
        else:
            _add(weights, self.family.absorb(self.table, x), weights)
        joint = _exp(weights, self._room)
        total = float(_sum_of_products(joint, self._ones))
        if not _LEAST < total < 1 / _LEAST:  # an improbable value, or weights far apart
            top = weights.item(weights.argmax())
            joint = np.exp(weights - top)
            total = float(_sum_of_products(joint, self._ones))
        evidence = top + math.log(total)
        log_density = 0.0 if missing else evidence - self.norm
        self.joint = joint
        self.position += 1
        if self.law is None:
            # All hypotheses survive with one probability, which the new one is divided by.
            dropped = self._enter(evidence + self.log_odds)
            norm = evidence - self.log_stays
        else:
            ends, stays = self.law(self.starts, self.position - self.starts)
            with np.errstate(divide="ignore"):
                weights += np.log1p(-ends) if stays is None else np.log(stays)
            dropped = self._enter(_log(float(_sum_of_products(joint, ends))) + top)
            norm = evidence
        if dropped > self.nothing:
            norm += math.log1p(-math.exp(dropped - norm))
        if abs(norm) > _LARGE:
            self.weights -= norm
            norm = 0.0
        self.norm = norm
        return log_density

    def arrays(self) -> dict[str, np.ndarray]:
        return {**super().arrays(), "norm": np.array(self.norm)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        rest = dict(arrays)
        check_arrays({"norm": rest.pop("norm", np.zeros(1))}, {"norm": ()})
        super().restore(rest)
        self.norm = float(arrays["norm"])


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def _add_up(left: np.ndarray, right: Slots, out: np.ndarray) -> None:
    """The product of a large matrix with a vector, on one core."""
    np.add.reduce(left * right, -1, out=out)


def _sum_of_products(left: np.ndarray, right: Slots) -> Any:
    """The product of an array with a vector.

    A large one would be divided among cores, and rounded differently on another number of them.
    """
    return left.dot(right) if left.size <= _FEW else np.add.reduce(left * right, -1)
