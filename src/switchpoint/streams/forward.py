"""The forward recursion on the host: hypotheses about the start of the current segment.

Arrays have a slot for every hypothesis, and are changed in place. For symbols, weights are
probabilities, which take neither logarithms nor exponentials: products, quotients and sums alone.
Sums are products of matrices and vectors, the fastest of all, whose order depends on the machine's
BLAS; they decide only the prediction and the weights of new hypotheses, so that rounding does not
accumulate.
For values, weights are logarithms, since a single value can rule a hypothesis out by any factor.

A full table loses its lightest hypothesis to each new one. In a run of missing observations that
would go wrong: nothing favours a start over the next, so that each new one is the lightest in its
turn, and the segment before the gap never ends. But starts with nothing observed between them have
equal statistics, and predict the same for ever. They are merged into one slot, which has the range
of these starts and the sum of their weights. With a constant hazard no prediction is changed by
that. With another one, the merged starts have the hazard of their middle, and those are merged for
which this changes least; as do the statistics of `Trend`, which count missing observations.
"""

import math
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from switchpoint._tensors import DamagedError
from switchpoint.exact import ForwardPredictor, PTWPredictor
from switchpoint.segments.dirichlet import as_dirichlet
from switchpoint.streams.engine import (
    Engine,
    Runs,
    SymbolEngine,
    ValueEngine,
    check_arrays,
    log_ratios,
)
from switchpoint.streams.host import HostFamily, Table, make_family, make_law
from switchpoint.streams.predictive import Predictive

Exact: TypeAlias = ForwardPredictor | PTWPredictor
Slots: TypeAlias = Float[np.ndarray, " slots"]

_FIRST_CAPACITY = 16
_NONE = (2**62, 0.0, 0.0)  # no slot
_SMALL = 1e-60  # a sum of weights below which they are rescaled
_LEAST = 1e-200  # a sum of exponentials that has lost digits
_FEW_SYMBOLS = 4  # of which each has an array to add
_FEW = 2048  # numbers that are summed on one core
_LARGE = 100.0  # the logarithm of a sum of weights beyond which they are rescaled
_ONE = np.array(1.0)  # an array, which NumPy adds faster than a number
_add, _multiply, _divide = np.add, np.multiply, np.divide
_exp = np.exp  # found faster than in a module


class _Filtered(NamedTuple):
    """Hypotheses given all observations up to a position, before the segment that starts there."""

    position: int
    starts: Slots
    spreads: Slots
    joint: Slots


class Hypotheses(Engine):
    """Slots for hypotheses: their starts, their weights, and the statistics since the start."""

    nothing: float
    """The weight of a slot that is not used."""
    add_weights: np.ufunc
    """The sum of two probabilities, as weights are."""

    def __init__(self, predictor: Exact, family: HostFamily) -> None:
        self.prior = predictor.prior
        self.law = make_law(predictor.prior)
        self.ends, self.stays = 0.0, 0.0
        if predictor.prior.memoryless:
            (self.ends,), (self.stays,) = (
                each.tolist() for each in self.law(np.zeros(1), np.ones(1))
            )
        self.memoryless = self.stays > 0
        """Whether all hypotheses survive an observation with one probability, `stays`."""
        self.family = family
        most = getattr(predictor, "max_hypotheses", None)
        bounds = [bound for bound in (most, predictor.prior.max_length) if bound is not None]
        self.most = min(bounds, default=math.inf)
        self.limit = predictor.prior.max_sequence or math.inf
        self.starts = np.zeros(0)
        self.weights = np.zeros(0)
        self.table = family.rows(0)
        self._grow()
        self.used = 1
        self.replaced = _NONE
        """The slot that the last new segment took, and the start and weight that it had before."""
        self.spreads: dict[int, float] = {}
        """By slot, how far the starts that share it reach to either side of the one in `starts`."""
        self.gap = (0, 0)
        """Begin and end of the last run of missing observations."""
        self._filtered: _Filtered | None = None  # where `replaced` does not tell it

    def _grow(self) -> None:
        capacity = len(self.weights)
        more = int(min(max(capacity, _FIRST_CAPACITY), self.most - capacity))
        self.starts = np.append(self.starts, np.zeros(more))
        self.weights = np.append(self.weights, np.full(more, self.nothing))
        self._ones = np.ones(len(self.weights))
        self._room = np.empty(len(self.weights))  # for the joint probabilities
        fresh = self.family.rows(more)
        self._hold([np.append(a, b, axis=0) for a, b in zip(self.table, fresh, strict=True)])

    def _hold(self, table: Table) -> None:
        """Take over the statistics of as many hypotheses as there are slots."""
        self.table = table

    def _cells(self) -> Iterable[tuple[np.ndarray, Any]]:
        """Arrays by slot, and what they hold of a segment before its first observation."""
        return zip(self.table, self.family.first, strict=True)

    def _enter(self, weight: float) -> float:
        """Find a slot for a segment that starts now: the weight evicted if no slot is free.

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
        self._put(slot, weight)
        return dropped

    def _put(self, slot: int, weight: float) -> None:
        """Store a segment that starts now."""
        self.replaced = (slot, self.starts.item(slot), self.weights.item(slot))
        if slot in self.spreads:
            self._keep_filtered()
            del self.spreads[slot]
        self.weights[slot] = weight
        self.starts[slot] = self.position
        for array, first in self._cells():
            array[slot] = first

    def _enter_unobserved(self, weight: float) -> float:
        """`_enter` after a missing observation: no start of the gap is dropped, but merged."""
        end = self.position
        begin = self.gap[0] if self.gap[1] == end - 1 else end - 1
        self.gap = (begin, end)
        full = self.used == len(self.weights) == self.most
        if weight <= self.nothing or not full or self.weights.min() <= self.nothing:
            return self._enter(weight)
        starts = np.append(self.starts, end)
        probabilities = self._relative(np.append(self.weights, weight))
        # The start at 0 is no switch, and merged with none.
        equal = starts - self._spreads(len(starts)) >= max(begin, 1)
        in_gap = np.flatnonzero(equal)
        in_gap = in_gap[starts[in_gap].argsort()]
        lightest = int(np.where(equal, np.inf, probabilities)[:-1].argmin())
        if len(in_gap) < 2:
            # Together, the starts of the gap may weigh more than a start before it.
            if probabilities[-1] * (end - begin) < probabilities[lightest]:
                return self._enter(weight)
        else:
            older, newer = in_gap[:-1], in_gap[1:]
            lengths = end + 1 - starts
            losses = np.minimum(probabilities[older], probabilities[newer])
            losses *= 1 - lengths[newer] / lengths[older]
            best = losses.argmin()
            if equal[lightest] or losses[best] < probabilities[lightest]:
                self._merge(int(older[best]), int(newer[best]), weight)
                return self.nothing
        dropped = self.weights.item(lightest)
        self._put(lightest, weight)
        return dropped

    def _merge(self, older: int, newer: int, weight: float) -> None:
        """Put two hypotheses into one slot, and the new one of this weight into the other.

        `newer` may be the new one, which is the one after the last slot.
        """
        self.replaced = _NONE
        self._keep_filtered()
        entering = newer == len(self.weights)
        first = self.starts.item(older) - self.spreads.get(older, 0.0)
        last, other = float(self.position), weight
        if not entering:
            last = self.starts.item(newer) + self.spreads.get(newer, 0.0)
            other = self.weights.item(newer)
        one = self.weights.item(older)
        shares = self._relative(np.array([one, other]))
        share = shares[1] / shares.sum()
        for array, initial in self._cells():
            other_cell = initial if entering else array[newer]
            array[older] = array[older] + share * (other_cell - array[older])
        self.weights[older] = self.add_weights(one, other)
        self._move(older, (first + last) / 2)
        self.spreads[older] = (last - first) / 2
        if not entering:
            self._put(newer, weight)

    def _move(self, slot: int, start: float) -> None:
        """Change the start of a hypothesis."""
        self.starts[slot] = start

    @abstractmethod
    def _relative(self, weights: Slots) -> Slots:
        """Probabilities with these weights, but for a common factor."""

    def _spreads(self, count: int) -> Slots:
        spreads = np.zeros(count)
        spreads[list(self.spreads)] = list(self.spreads.values())
        return spreads

    def check_length(self, length: int) -> None:
        self.prior.check_length(length)

    def runs(self) -> Runs:
        _, starts, spreads, joint = self._given_all()
        return Runs(self.position - starts, joint / math.fsum(joint), spreads)

    def _given_all(self) -> _Filtered:
        """The hypotheses before the last one was entered, given all observations."""
        if self._filtered is not None and self._filtered.position == self.position:
            return self._filtered
        joint = self.joint.copy()
        starts = self.starts[: len(joint)].copy()
        slot, start, weight = self.replaced
        if slot < len(joint):
            starts[slot] = start
            if self.joint is self.weights:
                joint[slot] = weight
        return _Filtered(self.position, starts, self._spreads(len(joint)), joint)

    def _keep_filtered(self) -> None:
        """Remember `_given_all` before the slots change."""
        self._filtered = self._given_all()

    def arrays(self) -> dict[str, np.ndarray]:
        last, used = self._given_all(), self.used
        arrays = {
            "starts": self.starts[:used],
            "weights": self.weights[:used],
            "last_starts": last.starts[:used],
            "joint": last.joint[:used],
            **{
                f"statistics_{i}": array[:used].astype(np.float64)
                for i, array in enumerate(self.table)
            },
        }
        if self.gap[1] == self.position > 0:
            arrays["gap"] = np.array(self.gap, np.float64)
        if self.spreads or last.spreads.any():
            arrays["spreads"], arrays["last_spreads"] = self._spreads(used), last.spreads[:used]
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        count, last_count = len(arrays["weights"]), len(arrays["joint"])
        arrays = {  # what only a stream with missing observations has
            "gap": np.zeros(2),
            "spreads": np.zeros(count),
            "last_spreads": np.zeros(last_count),
            **arrays,
        }
        shapes: dict[str, tuple[int | None, ...]] = {
            f"statistics_{i}": (count, *array.shape[1:]) for i, array in enumerate(self.table)
        }
        shapes.update(dict.fromkeys(("starts", "weights", "spreads"), (count,)))
        shapes.update(dict.fromkeys(("last_starts", "joint", "last_spreads"), (last_count,)))
        check_arrays(arrays, {**shapes, "gap": (2,)})
        if not 0 < count <= self.most:
            raise DamagedError(f"its arrays are of {count} hypotheses, of at most {self.most}")
        while len(self.weights) < count:
            self._grow()
        self.used = count
        self.starts[:count], self.weights[:count] = arrays["starts"], arrays["weights"]
        for i, array in enumerate(self.table):
            array[:count] = arrays[f"statistics_{i}"]
        merged = np.flatnonzero(arrays["spreads"])
        self.spreads = dict(zip(merged.tolist(), arrays["spreads"][merged].tolist(), strict=True))
        begin, end = arrays["gap"].tolist()
        self.gap, self.replaced = (int(begin), int(end)), _NONE
        last = (arrays[name].copy() for name in ("last_starts", "last_spreads", "joint"))
        self._filtered = _Filtered(self.position, *last)
        self.joint = self._filtered.joint


class SymbolHypotheses(Hypotheses, SymbolEngine):
    """The recursion over symbols, whose weights are proportional to probabilities."""

    name = "symbols"
    nothing = 0.0
    add_weights = np.add

    def __init__(self, predictor: Exact, family: HostFamily) -> None:
        SymbolEngine.__init__(self, predictor.alphabet)
        Hypotheses.__init__(self, predictor, family)
        self.weights[0] = 1.0
        self.joint = self.weights.copy()
        self.odds = self.ends / self.stays if self.memoryless else 0.0
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
        enter = self._enter
        if symbol < 0:
            enter = self._enter_unobserved
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
        if self.memoryless:
            self.weights = joint
            enter(norm * self.odds)  # instead of all others times `stays`
            return log_prob
        starts, runs = self.starts, self._runs()
        if self.spreads:
            starts, runs = np.ceil(starts), np.floor(runs)
        ends, stays = self.law(starts, runs)
        self.weights = _multiply(joint, stays)
        enter(float(_sum_of_products(joint, ends)))
        return log_prob

    def _relative(self, weights: Slots) -> Slots:
        return weights

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(arrays)
        self._sums = []


class FamilyHypotheses(SymbolHypotheses):
    """The recursion over symbols of any family."""

    def _joint_sums(self) -> list[float]:
        self._joint_probs = self.family.probs(self.table).T * self.weights
        sums: list[float] = _sum_of_products(self._joint_probs, self._ones).tolist()
        return sums

    def _absorb(self, symbol: int) -> Slots:
        self.family.absorb(self.table, float(symbol))
        return self._joint_probs[symbol]


class CountHypotheses(SymbolHypotheses):
    """The recursion over independent symbols: P(k) = count of k / total.

    Counts with the pseudo-counts, their totals and the run lengths are the rows of one array: a
    symbol adds to all in one sum. That is ten times as fast as the formulas of the family.
    """

    def __init__(self, predictor: Exact) -> None:
        segment = as_dirichlet(predictor.segment)
        pseudo = np.asarray(segment.pseudo_counts, np.float64)
        self._fresh_rows = np.array([*pseudo, pseudo.sum(), 0.0])
        super().__init__(predictor, HostFamily(segment))

    def _hold(self, table: Table) -> None:
        pseudo = self._fresh_rows[:-2]
        with_pseudo = table[0] + pseudo
        runs = self.position - self.starts
        self._rows = rows = np.array([*with_pseudo.T, with_pseudo.sum(1), runs])
        counts, totals, self._run_lengths = rows[:-2], rows[-2], rows[-1]
        separate, shares, sums = len(pseudo) <= _FEW_SYMBOLS, np.empty_like(totals), pseudo.copy()
        super()._hold([table[0]])
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

    def _cells(self) -> Iterable[tuple[np.ndarray, Any]]:
        return [(self._rows.T, self._fresh_rows)]

    def _grow(self) -> None:
        self._count()
        super()._grow()

    def _count(self) -> None:
        """Take the counts of the symbols from the rows that they are the rows of."""
        if len(self.weights):
            counts = self._rows[:-2].T - self._fresh_rows[:-2]
            self.table = [np.rint(counts)]

    def arrays(self) -> dict[str, np.ndarray]:
        self._count()
        return super().arrays()

    def _skip(self) -> None:
        _add(self._run_lengths, _ONE, self._run_lengths)

    def _runs(self) -> Slots:
        return self._run_lengths

    def _move(self, slot: int, start: float) -> None:
        super()._move(slot, start)
        self._run_lengths[slot] = self.position - start

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(arrays)
        self._hold(self.table)


class ValueHypotheses(Hypotheses, ValueEngine):
    """The recursion over values, whose weights are logarithms."""

    name = "values"
    nothing = -math.inf
    add_weights = np.logaddexp

    def __init__(self, predictor: Exact, columns: tuple[str, ...] | None) -> None:
        ValueEngine.__init__(self, predictor.segment, columns)
        Hypotheses.__init__(self, predictor, make_family(predictor.segment))
        self.weights[0] = 0.0
        self.joint = np.exp(self.weights)
        self.norm = 0.0
        """The logarithm of the sum of the weights."""
        if self.memoryless:
            self.log_odds = math.log(self.ends / self.stays)
            self.log_stays = math.log(self.stays)
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
        enter = self._enter
        if missing:
            enter = self._enter_unobserved
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
        if self.memoryless:
            # The new weight is divided by `stays`, instead of all others times it.
            dropped = enter(evidence + self.log_odds)
            norm = evidence - self.log_stays
        else:
            starts, runs = self.starts, self.position - self.starts
            if self.spreads:
                starts, runs = np.ceil(starts), np.floor(runs)
            ends, stays = self.law(starts, runs)
            with np.errstate(divide="ignore"):
                weights += np.log(stays)
            dropped = enter(_log(float(_sum_of_products(joint, ends))) + top)
            norm = evidence
        if dropped > self.nothing:
            norm += math.log1p(-math.exp(dropped - norm))
        if abs(norm) > _LARGE:
            self.weights -= norm
            norm = 0.0
        self.norm = norm
        return log_density

    def _relative(self, weights: Slots) -> Slots:
        return np.exp(weights - weights.max())

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
